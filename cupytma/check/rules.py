"""The table of everything that the checker looks for: the checker, the command and the documentation read it."""

from __future__ import annotations

from cupytma.check.finding import Rule
from cupytma.check.rules_barriers import BARRIER_RULES
from cupytma.check.rules_maps import MAP_RULES
from cupytma.check.rules_operands import OPERAND_RULES
from cupytma.check.rules_stores import STORE_RULES

RULES: dict[str, Rule] = {
    rule.id: rule for rule in (*STORE_RULES, *BARRIER_RULES, *MAP_RULES, *OPERAND_RULES)
}
"""What the checker looks for, by id."""
