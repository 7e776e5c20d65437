"""What is known of values: the numbers they lie between, and by which power of two they can be divided."""

from __future__ import annotations

from cupytma.check.values import Symbol, Value, Values, add
from cupytma.limits import MAX_BLOCK, MAX_CLUSTER, WARP_THREADS

_MOST_ZEROS = 62
_MOST = {
    "laneid": WARP_THREADS - 1, "tid.x": MAX_BLOCK[0] - 1, "tid.y": MAX_BLOCK[1] - 1, "tid.z": MAX_BLOCK[2] - 1,
    "cluster_ctarank": MAX_CLUSTER - 1,
}  # fmt: skip
_DEEPEST = 12

Bounds = tuple["int | None", "int | None"]
Terms = frozenset[tuple[int, int]]


def zeros_of(number: int) -> int:
    """How many zero bits a number ends with."""
    return (number & -number).bit_length() - 1 if number else _MOST_ZEROS


def trailing_zeros(values: Values, value: Value, depth: int = 0) -> int:
    """How many zero bits a value is known to end with."""
    if depth > _DEEPEST:
        return 0
    plain = zeros_of(value.constant)
    for number, factor in value.terms:
        plain = min(plain, zeros_of(factor) + _symbol_zeros(values, values.symbols[number], depth))
    return max(plain, _rounded(values, value, depth))


def _rounded(values: Values, value: Value, depth: int) -> int:
    """For ``x + (-x & mask)``, the bits of the mask: an address rounded up."""
    for number, factor in value.terms:
        symbol = values.symbols[number]
        if factor != 1 or symbol.kind != "operation" or symbol.data[0] != "and" or len(symbol.data) != 3:
            continue
        masked, mask = values.value(symbol.data[1]), values.value(symbol.data[2])
        # Bits that are zero anyway may be missing from the mask.
        bits = mask.constant | ((1 << trailing_zeros(values, masked, depth + 1)) - 1)
        if not mask.is_constant or mask.constant <= 0 or bits & (bits + 1):
            continue
        rest = Value(value.terms - {(number, 1)}, value.constant)
        zeros = trailing_zeros(values, add(rest, masked), depth + 1)
        return min(zeros, bits.bit_length())
    return 0


def _symbol_zeros(values: Values, symbol: Symbol, depth: int) -> int:
    if symbol.kind == "address":
        variable = values.variable(symbol.data[1])
        return zeros_of(variable.alignment) if variable else 0
    if symbol.kind == "induction" and isinstance(symbol.data[1], int):
        return symbol.data[1]
    if symbol.kind == "peer":
        return trailing_zeros(values, values.value(symbol.data[0]), depth + 1)
    if symbol.kind != "operation":
        return 0
    name, operands = symbol.data[0], [values.value(data) for data in symbol.data[1:]]
    zeros = [trailing_zeros(values, operand, depth + 1) for operand in operands]
    if name == "and":
        return max(zeros)
    if name in ("xor", "or", "min.u", "max.u", "min.s", "max.s"):
        return min(zeros)
    if name == "mul":
        return min(sum(zeros), _MOST_ZEROS)
    if name == "selp" and len(zeros) == 3:
        return min(zeros[:2])
    if name == "bfi" and operands[2].is_constant:
        return min(zeros[0] + max(operands[2].constant, 0), zeros[1])
    return 0


def bounds(values: Values, value: Value, depth: int = 0) -> Bounds:
    """The least and the greatest that a value can be, offsets from addresses excluded; None where unknown."""
    terms, remainders = _without_remainders(values, value.terms) if len(value.terms) > 1 else (value.terms, 0)
    low: int | None = value.constant
    high: int | None = value.constant + remainders
    for number, factor in terms:
        least, most = _symbol_bounds(values, values.symbols[number], depth)
        if factor < 0:
            least, most = most, least
        low = None if low is None or least is None else low + factor * least
        high = None if high is None or most is None else high + factor * most
    return low, high


def _without_remainders(values: Values, terms: Terms) -> tuple[Terms, int]:
    """The terms without those that together are remainders of a division by a constant, and the most that those are.

    Compilers write ``x % c`` as ``x - c * (x * m >> s)``, where m is 2 to the power of s divided by c, rounded up.
    """
    most = 0
    factors = dict(terms)
    for number, factor in list(factors.items()):
        divided = _quotient(values, values.symbols[number])
        if divided is None:
            continue
        own, divisor = divided
        if factors.get(own, 0) > 0 and factor == -factors[own] * divisor:
            most += factors.pop(own) * (divisor - 1)
            factors.pop(number)
    return frozenset(factors.items()), most


def _quotient(values: Values, symbol: Symbol) -> tuple[int, int] | None:
    """For a symbol that is another one divided by a constant: that one, and the constant."""
    if symbol.kind != "operation" or symbol.data[0] != "shr.u" or len(symbol.data) != 3:
        return None
    product, shift = values.value(symbol.data[1]), values.value(symbol.data[2])
    if not shift.is_constant or len(product.terms) != 1 or product.constant or not 0 <= shift.constant < 64:
        return None
    ((number, factor),) = product.terms
    bits = shift.constant
    inner = values.symbols[number]
    if factor == 1 and inner.kind == "operation" and inner.data[0] == "mul.hi.u":
        wide, magic = values.value(inner.data[1]), values.value(inner.data[2])
        if len(wide.terms) != 1 or wide.constant or not magic.is_constant:
            return None
        ((number, one),) = wide.terms
        if one != 1:
            return None
        factor, bits = magic.constant, bits + 32
    multiplier = factor & (0xFFFF if -(1 << 15) <= factor < 1 << 16 else 0xFFFFFFFF)  # PTX writes it signed
    divisor = ((1 << bits) + multiplier // 2) // multiplier if multiplier else 0
    return (number, divisor) if divisor > 1 and -(-(1 << bits) // divisor) == multiplier else None


def _symbol_bounds(values: Values, symbol: Symbol, depth: int) -> Bounds:
    if symbol.kind == "special":
        most = _MOST.get(str(symbol.data[0]))
        return (0, most) if most is not None else (None, None)
    if symbol.kind == "register" and depth < _DEEPEST:
        return _ring(values, str(symbol.data[0]), depth)
    if symbol.kind != "operation" or depth >= _DEEPEST:
        return None, None
    name, operands = symbol.data[0], [values.value(data) for data in symbol.data[1:]]
    last = operands[-1]
    if name == "and" and last.is_constant and last.constant >= 0:
        return 0, last.constant
    if name == "rem.u" and last.is_constant and last.constant > 0:
        return 0, last.constant - 1
    if name == "shr.u" and last.is_constant and 0 < last.constant < 64:
        low, high = bounds(values, operands[0], depth + 1)
        most = high if high is not None and low is not None and low >= 0 else (1 << 32) - 1
        return 0, most >> last.constant
    if name == "selp" and len(operands) == 3:
        both = [bounds(values, operand, depth + 1) for operand in operands[:2]]
        lows, highs = [low for low, _ in both], [high for _, high in both]
        return (
            None if None in lows else min(low for low in lows if low is not None),
            None if None in highs else max(high for high in highs if high is not None),
        )
    return None, None


def _ring(values: Values, name: str, depth: int) -> Bounds:
    """A register that counts up and goes back to where it began: ``i = i + 1 == n ? 0 : i + 1``."""
    own = values.term("register", name)
    starts: list[int] = []
    ends: list[int] = []
    for statement in values.definitions.get(name, ()):
        if statement.opcode.startswith("selp") and len(statement.arguments) == 4:
            first, second = values.of(statement.arguments[1]), values.of(statement.arguments[2])
            condition = values.terms(values.of(statement.arguments[3]))
            if len(condition) != 1 or condition[0][0].kind != "comparison":
                return None, None
            relation, _, difference = condition[0][0].data
            again, onward = (first, second) if relation == "eq" else (second, first)
            if not again.is_constant or onward.terms != own.terms or onward.constant != 1:
                return None, None
            compared = values.value(difference)
            if compared.terms != own.terms:
                return None, None
            starts.append(again.constant)
            ends.append(1 - compared.constant - 1)
        elif statement.opcode.startswith("mov") and len(statement.arguments) == 2:
            start = values.of(statement.arguments[1])
            if start.is_constant:  # another register's start is taken to be within the ring
                starts.append(start.constant)
        else:
            return None, None
    if not starts or not ends:
        return None, None
    return min(starts), max(*starts, *ends)
