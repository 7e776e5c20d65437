"""Findings and rules for other programs: JSON, and SARIF 2.1.0 for code hosts and editors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from cupytma.check.finding import Finding, Rule
from cupytma.check.rules import RULES
from cupytma.version import __version__

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as plain data.

    Parameters
    ----------
    findings : iterable of Finding

    Returns
    -------
    list of dict
        The attributes of each `Finding`.
    """
    return [asdict(finding) for finding in findings]


def rules_as_json(rules: Mapping[str, Rule] = RULES) -> list[dict[str, Any]]:
    """Rules as plain data, their examples included."""
    return [{**asdict(rule), "severity": rule.severity.value} for rule in rules.values()]


def as_sarif(findings: Iterable[Finding], artifact: str = "", rules: Mapping[str, Rule] = RULES) -> dict[str, Any]:
    """Findings as a SARIF log.

    Parameters
    ----------
    findings : iterable of Finding
    artifact : str, optional
        The file that was checked, for findings that have no line in a source.
    rules : mapping of str to Rule, optional

    Returns
    -------
    dict
        For `json.dump`.
    """
    found = tuple(findings)
    used = [rules[name] for name in dict.fromkeys(finding.rule for finding in found)]
    places = {rule.id: place for place, rule in enumerate(used)}
    driver = {
        "name": "cupytma",
        "version": __version__,
        "rules": [_sarif_rule(rule) for rule in used],
    }
    results = [_sarif_result(finding, places[finding.rule], artifact) for finding in found]
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "help": {"text": f"{rule.fix}. Source: {rule.source}."},
        "defaultConfiguration": {"level": rule.severity.value},
    }


def _sarif_result(finding: Finding, rule: int, artifact: str) -> dict[str, Any]:
    region: dict[str, int] = {"startLine": max(finding.line, 1)}
    if finding.column > 0:
        region["startColumn"] = finding.column
    location: dict[str, Any] = {"region": region}
    if finding.file or artifact:
        location["artifactLocation"] = {"uri": quote(finding.file or artifact)}
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": finding.severity,
        "message": {"text": f"{finding.message}. Fix: {finding.fix}."},
        "locations": [
            {"physicalLocation": location, "logicalLocations": [{"name": finding.function, "kind": "function"}]}
        ],
    }
