"""Tensor maps that a kernel uses: where they lie, and the fences of those that change."""

from __future__ import annotations

from typing import NamedTuple

from cupytma.check.events import Event, Unit
from cupytma.check.ranges import trailing_zeros
from cupytma.check.regions import region_of
from cupytma.check.reporter import Reporter
from cupytma.check.values import Value
from cupytma.errors import EmissionError
from cupytma.ptx.rebind_check import check_rebind
from cupytma.ptx.tensormap import SCOPES

_USES = ("tensor_load", "tensor_store", "tensor_reduce", "tensor_prefetch")
_HINT = "prefetch_tensormap"
_REPLACE, _COPY = "tensormap_replace", "tensormap_cp_fenceproxy"
_ACQUIRE, _RELEASE = "fence_proxy_tensormap_acquire", "fence_proxy_tensormap_release"
_GATHERING = ("thread_barrier", "warp_barrier", "barrier_cluster_wait")
_MAP_ALIGNMENT, _CHANGED_ALIGNMENT = 64, 128
_PARAMETER_BYTES = 128


class Origin(NamedTuple):
    """Where a tensor map lies: the state space, ``"pointer"`` for one that the kernel is given, and the name."""

    space: str
    name: str


def origin_of(unit: Unit, address: Value) -> Origin | None:
    """Where an address comes from; None where it is not known."""
    found: list[Origin] = []
    for symbol, _ in unit.values.terms(address):
        if symbol.kind == "address":
            found.append(Origin(str(symbol.data[0]), str(symbol.data[1])))
        elif symbol.kind == "parameter" and unit.function.is_entry and _is_pointer(unit, str(symbol.data[0])):
            found.append(Origin("pointer", f"{symbol.data[0]}+{symbol.data[1]}"))
        elif symbol.kind == "parameter" and not unit.function.is_entry:
            return None
    addresses = [origin for origin in found if origin.space != "pointer"]
    if len(addresses) == 1:
        return addresses[0]
    return found[0] if len(found) == 1 else None


def _is_pointer(unit: Unit, name: str) -> bool:
    parameter = unit.values.variable(name)
    return parameter is not None and (parameter.size or 0) >= 8


def check_maps(unit: Unit, report: Reporter, takes_map: dict[str, set[int]]) -> None:
    """All that is said of tensor maps."""
    _check_places(unit, report)
    _check_calls(unit, report, takes_map)
    _check_alignment(unit, report)
    _check_acquire(unit, report)
    _check_scopes(unit, report)
    _check_release(unit, report)
    _check_replaces(unit, report)


def _map(event: Event) -> str:
    return "destination" if event.kind == _COPY else "tensor_map"


def _origin(unit: Unit, event: Event) -> Origin | None:
    return origin_of(unit, unit.operand(event, _map(event)))


def _check_places(unit: Unit, report: Reporter) -> None:
    for event in unit.of_kind(*_USES, _HINT):
        origin = _origin(unit, event)
        if origin is not None and origin.space == "local":
            report(
                "map-in-local-memory", unit, event,
                "the tensor map is a copy in local memory, which the unit cannot read",
            )  # fmt: skip
        elif origin is not None and origin.space == "shared":
            report(
                "map-in-shared-memory", unit, event,
                f"the tensor map is in shared memory ({origin.name}), where the unit cannot read it",
            )  # fmt: skip


def parameters_used_as_maps(units: dict[str, Unit]) -> dict[str, set[int]]:
    """For each function, the positions of parameters that it gives, or has given, to an instruction as a tensor map."""
    found: dict[str, set[int]] = {name: set() for name in units}
    while True:
        before = {name: set(places) for name, places in found.items()}
        for name, unit in units.items():
            places = {parameter.name: n for n, parameter in enumerate(unit.function.parameters)}
            addresses = [unit.operand(event, _map(event)) for event in unit.of_kind(*_USES)]
            addresses += [value for value, _ in _passed(unit, found)]
            for address in addresses:
                for symbol, _ in unit.values.terms(address):
                    if symbol.kind == "parameter" and symbol.data[0] in places and not unit.function.is_entry:
                        found[name].add(places[str(symbol.data[0])])
        if found == before:
            return found


def _passed(unit: Unit, takes_map: dict[str, set[int]]) -> list[tuple[Value, Event]]:
    """The addresses that are passed to functions as tensor maps, with the call."""
    found: list[tuple[Value, Event]] = []
    for call in unit.of_kind("call"):
        places = takes_map.get(call.given.get("function", ""), set())
        arguments = call.statement.arguments
        lists = [a for a in arguments[1:] if a.startswith("(")] if arguments[:1] and arguments[0][:1] != "(" else [
            a for a in arguments[2:] if a.startswith("(")
        ]
        if not places or not lists:
            continue
        names = [name.strip() for name in lists[0].strip("()").split(",")]
        for place in places:
            if place < len(names):
                stored = _stored(unit, names[place], call.statement.index)
                if stored is not None:
                    found.append((stored, call))
    return found


def _stored(unit: Unit, name: str, before: int) -> Value | None:
    """What was last stored to the parameter of a call."""
    for statement in reversed(unit.function.statements[max(0, before - 256) : before]):
        if statement.opcode.startswith("st.param") and len(statement.arguments) == 2:
            target = statement.arguments[0].strip("[] ").partition("+")[0].strip()
            if target == name:
                return unit.values.of(statement.arguments[1])
    return None


def _check_calls(unit: Unit, report: Reporter, takes_map: dict[str, set[int]]) -> None:
    for address, call in _passed(unit, takes_map):
        origin = origin_of(unit, address)
        if origin is not None and origin.space == "local":
            report(
                "map-in-local-memory", unit, call,
                f"the tensor map that {call.given.get('function')} is given is a copy in local memory, which the unit "
                "cannot read",
            )  # fmt: skip


def _check_alignment(unit: Unit, report: Reporter) -> None:
    for event in unit.events:
        for name in ("tensor_map", "destination", "source"):
            if event.kind not in (*_USES, _HINT, _REPLACE, _COPY) or (event.kind != _COPY and name != "tensor_map"):
                continue
            need = _CHANGED_ALIGNMENT if event.kind in (_REPLACE, _COPY) else _MAP_ALIGNMENT
            address = unit.operand(event, name)
            origin = origin_of(unit, address)
            if origin is None or origin.space in ("pointer", "local") or len(address.terms) != 1:
                continue
            variable = unit.values.variable(origin.name)
            if variable is None or variable.is_extern or (variable.space == "param" and not unit.function.is_entry):
                continue
            has = 1 << trailing_zeros(unit.values, address)
            if has < need and not (origin.space == "shared" and event.kind in _USES):
                report(
                    "map-misaligned", unit, event,
                    f"the tensor map's address ({origin.name}) is a multiple of {has} bytes, and {need} are needed",
                )  # fmt: skip


def _same_map(unit: Unit, first: Event, second: Event) -> bool:
    """Whether two events may be about one map; maps of unknown places may be any."""
    own, other = _origin(unit, first), _origin(unit, second)
    return own is None or other is None or own == other


def _check_acquire(unit: Unit, report: Reporter) -> None:
    uses = [e for e in unit.of_kind(*_USES) if (o := _origin(unit, e)) and o.space in ("pointer", "global")]
    acquires = unit.of_kind(_ACQUIRE)
    for origin in dict.fromkeys(_origin(unit, event) for event in uses):
        own = [event for event in uses if _origin(unit, event) == origin]
        about = [event for event in acquires if _same_map(unit, event, own[0])]
        changes = [e for e in unit.of_kind(_COPY, _RELEASE) if e.kind == _RELEASE or _same_map(unit, e, own[0])]
        writes = [e for e in unit.of_kind(_REPLACE) if _origin(unit, e) == origin] + _written(unit, origin)
        if not about and not changes and not writes:
            for event in own:
                report(
                    "map-from-host-not-acquired", unit, event,
                    "the tensor map lies in global memory, and the block does not acquire it: if the host or another "
                    "kernel has written it, the unit may read an older one",
                )  # fmt: skip
            continue
        ends = {e.number for e in (*about, *unit.of_kind("call"))}
        if any(unit.may_follow(acquire, change) for acquire in about for change in changes) or not changes:
            ends |= {e.number for e in unit.of_kind(*_GATHERING) if about}  # another thread's acquire
        begins = {event.number for event in changes}
        # Bit 0: on some path it is not acquired; bit 1: on some path it is, and that path may be the only one taken.
        facts = {
            block: [
                (e.number, 1 if e.number in ends else 2 if e.number in begins else 0,
                 2 if e.number in ends else int(e.number in begins))
                for e in events
            ]
            for block, events in unit.by_block.items()
        }  # fmt: skip
        arriving = unit.paths.arriving(facts, 1)
        for event in own:
            held = 0
            for bits in arriving.get(event.number, ()):
                held |= bits
            if held == 1:
                report(
                    "map-not-acquired", unit, event,
                    "the tensor map in global memory changes, and this copy uses it without a "
                    "fence.proxy.tensormap::generic.acquire after the change",
                )  # fmt: skip


def _written(unit: Unit, origin: Origin | None) -> list[Event]:
    """The ordinary stores to where a map lies."""
    return [
        event
        for event in unit.of_kind("map_write")
        if origin is not None and origin_of(unit, unit.operand(event, "destination")) == origin
    ]


def _check_scopes(unit: Unit, report: Reporter) -> None:
    acquires, releases = unit.of_kind(_ACQUIRE), unit.of_kind(_COPY, _RELEASE)
    narrow = SCOPES.index("gpu")
    for event in acquires:
        scope = str(event.words.get("scope"))
        partners = [e for e in releases if e.kind == _RELEASE or _same_map(unit, e, event)]
        if SCOPES.index(scope) < narrow and not (partners and _is_of_block(unit, unit.operand(event, "tensor_map"))):
            why = "other blocks release it" if partners else "nothing in this kernel releases it, so others write it"
            report("map-scope-narrow", unit, event, f"the tensor map is acquired with scope .{scope}, and {why}")
    for event in releases:
        scope = str(event.words.get("scope"))
        address = unit.operand(event, _map(event)) if event.kind == _COPY else _replaced(unit)
        if SCOPES.index(scope) < narrow and address is not None and not _is_of_block(unit, address):
            report(
                "map-scope-narrow", unit, event,
                f"the tensor map is released with scope .{scope}, and its address is the same for all blocks: another "
                "block that uses it need not see the change",
            )  # fmt: skip


def _replaced(unit: Unit) -> Value | None:
    """The map that is changed in place, where it is one."""
    places = {unit.operand(event, "tensor_map") for event in unit.of_kind(_REPLACE)}
    one = places.pop() if len(places) == 1 else None
    return one if one is not None and region_of(unit.values, one) is None else None


def _is_of_block(unit: Unit, address: Value, depth: int = 0) -> bool:
    """Whether an address differs between blocks, or may."""
    if depth > 8:
        return True
    for symbol, _ in unit.values.terms(address):
        if symbol.kind == "special" and str(symbol.data[0]).startswith(("ctaid", "clusterid", "smid", "cluster_cta")):
            return True
        if symbol.kind in ("result", "register", "unknown", "none"):
            return True
        if symbol.kind == "operation" and any(
            _is_of_block(unit, unit.values.value(number), depth + 1) for number in symbol.data[1:]
        ):
            return True
    return False


def _check_release(unit: Unit, report: Reporter) -> None:
    replaces = unit.of_kind(_REPLACE)
    if not replaces or not unit.function.is_entry:
        return
    bits = {event.number: 1 << place for place, event in enumerate(replaces)}
    ends = {event.number for event in unit.of_kind(_COPY, _RELEASE, "call")}
    facts = {
        block: [(e.number, -1 if e.number in ends else 0, bits.get(e.number, 0)) for e in events]
        for block, events in unit.by_block.items()
    }
    arriving = unit.paths.arriving(facts)
    late = 0
    for event in unit.of_kind(*_USES, "exit"):
        for held in arriving.get(event.number, ()):
            late |= held
    for event in replaces:
        if late & bits[event.number]:
            report(
                "map-not-released", unit, event,
                "the tensor map is changed here and not released to the tensormap proxy before it is used or "
                "the kernel "
                "ends",
            )  # fmt: skip
            break


def _check_replaces(unit: Unit, report: Reporter) -> None:
    by_map: dict[tuple[int, Value], list[Event]] = {}
    for event in unit.of_kind(_REPLACE):
        by_map.setdefault((event.block, unit.operand(event, "tensor_map")), []).append(event)
    for events in by_map.values():
        forms = [event.form for event in events if event.form is not None]
        dims = sum(str(dict(form.words).get("field")) == "global_dim" for form in forms)
        try:
            check_rebind(forms, rank=max(1, min(dims, 5)))
        except EmissionError as error:
            wrong = next((part for part in str(error).split("; ") if "out of order" in part), "")
            if wrong:
                report("map-replace-order", unit, events[0], wrong)
