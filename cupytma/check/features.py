"""Instructions that the module's target or PTX version does not have."""

from __future__ import annotations

from cupytma.check.events import Unit
from cupytma.check.reporter import Reporter
from cupytma.errors import TargetError
from cupytma.targets import TARGETS, Feature, Target, target


def target_of(name: str) -> Target | None:
    """The target of a module; None for one that is not known."""
    try:
        return target(name)
    except TargetError:
        return None


def check_features(unit: Unit, report: Reporter) -> None:
    """Forms that the target lacks, and what is slow there."""
    chosen, version = target_of(unit.module.target), unit.module.version
    for event in unit.events:
        form = event.form
        if form is None:
            continue
        if chosen is not None and not form.supported_on(chosen):
            having = ", ".join(map(str, form.targets)) or "no known target"
            report(
                "target-lacks-instruction", unit, event,
                f"{form.mnemonic} does not exist on {chosen}; it does on {having}",
            )  # fmt: skip
        elif version is not None and form.ptx_version > version:
            needed, had = (".".join(map(str, v)) for v in (form.ptx_version, version))
            text = f"{form.mnemonic} needs PTX {needed}, and this is PTX {had}"
            report("target-lacks-instruction", unit, event, text)
        elif chosen is not None and event.words.get("multicast") and not chosen.has(Feature.FAST_MULTICAST):
            having = ", ".join(t for t in _having_fast_multicast())
            report(
                "multicast-slow", unit, event,
                f"a multicast compiled for {chosen} may be much slower than for the targets that have it in "
                f"full: {having}",
            )  # fmt: skip


def _having_fast_multicast() -> list[str]:
    return [name for name, row in TARGETS.items() if row.has(Feature.FAST_MULTICAST)]
