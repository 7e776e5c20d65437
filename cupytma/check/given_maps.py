"""The tensor maps that a caller gives to the checker, by the parameter that each is passed in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cupytma.check.events import Event, Unit
from cupytma.errors import CheckError, DescriptorError
from cupytma.ptx.checks import shown
from cupytma.tensormap import Im2col, Im2colWide, TensorMap, Tiled
from cupytma.words import counted

_ROWS_GATHERED = 4
Parameters = Tiled | Im2col | Im2colWide


class GivenMaps:
    """Tensor maps by parameter: position, name in PTX, or name in the source; those in a variable by its name.

    All maps that are reached through one pointer are taken to be alike.

    Parameters
    ----------
    maps : mapping of int or str to TensorMap
    names : mapping of str to sequence of str
        For each kernel, the names of its parameters in the source.
    """

    def __init__(
        self, maps: Mapping[int | str, TensorMap], names: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._maps = dict(maps)
        self._names = dict(names or {})

    def check_are_taken(self, text: str, parameters: int) -> None:
        """Refuse a map for a parameter that nothing in a module has: it would be left out without a word.

        Parameters
        ----------
        text : str
            The module.
        parameters : int
            The most that one of its kernels has.

        Raises
        ------
        CheckError
            Naming each.
        """
        known = {name for names in self._names.values() for name in names}
        lost = [
            key for key in self._maps
            if (not 0 <= key < parameters if isinstance(key, int) else key not in known and not _stands_in(text, key))
        ]  # fmt: skip
        if lost:
            named = f", named {', '.join(sorted(known))}" if known else ""
            raise CheckError(
                f"a tensor map is given for {', '.join(map(shown, lost))}, which no kernel here takes: they have up to "
                f"{counted(parameters, 'parameter')}, from 0{named}"
            )

    def of(self, unit: Unit, event: Event) -> TensorMap | None:
        """The map that a copy goes through, where it is given."""
        if not self._maps or "tensor_map" not in event.given:
            return None
        terms = unit.values.terms(unit.operand(event, "tensor_map"))
        named = [symbol for symbol, factor in terms if factor == 1 and symbol.kind in ("address", "parameter")]
        if len(named) != 1 or (named[0].kind == "address" and len(terms) > 1):
            return None
        name = str(named[0].data[1] if named[0].kind == "address" else named[0].data[0])
        places = [place for place, parameter in enumerate(unit.function.parameters) if parameter.name == name]
        candidates: list[int | str] = [name, *places]
        known = self._names.get(unit.function.name, ())
        candidates += [known[place] for place in places if place < len(known)]
        return next((self._maps[key] for key in candidates if key in self._maps), None)

    def parameters_of(self, unit: Unit, event: Event) -> Parameters | None:
        """The parameters of the map that a copy goes through."""
        found = self.of(unit, event)
        if found is None:
            return None
        try:
            return found.decode()
        except DescriptorError:
            return None

    def bytes_of(self, unit: Unit, load: Event) -> int | None:
        """How many bytes a copy brings to its barrier; None where that is not known."""
        if load.kind in ("bulk_copy", "bulk_reduce"):
            count = unit.operand(load, "bytes")
            return count.constant if count.is_constant else None
        found = self.of(unit, load) if load.kind == "tensor_load" else None
        if found is None:
            return None
        mode = load.words.get("mode")
        if mode == "tile::gather4":
            return found.box_bytes * _ROWS_GATHERED
        return found.box_bytes if mode in ("tile", "im2col") else None


def _stands_in(text: str, name: str) -> bool:
    return bool(name) and re.search(rf"(?<![\w$%]){re.escape(name)}(?![\w$])", text) is not None
