"""Tensor maps and parameters as text and plain values: dictionaries, JSON, C, hex, the debug line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, cast

from cupytma import targets
from cupytma.errors import CupytmaError, DescriptorError
from cupytma.tensormap import debug_line, parsing
from cupytma.tensormap.base import TensorMapBytes
from cupytma.tensormap.enums import DriverEnum
from cupytma.tensormap.fields import SIZE

T = TypeVar("T", bound="TextForms")
P = TypeVar("P", bound="DictForms")

_WORDS_PER_LINE = 4
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
# Beside the parameters a document may say these, and a document of a tensor map holds them one level down.
_KIND, _TARGET, _PARAMETERS = "kind", "target", "parameters"


class TextForms(TensorMapBytes):
    """What a tensor map can be written as and read from. Part of `TensorMap`."""

    __slots__ = ()

    @classmethod
    def parse(cls: type[T], source: str | bytes | bytearray | memoryview) -> T:
        """A tensor map from whatever shows one.

        Parameters
        ----------
        source : str or bytes
            Hex in memory order (spaces and line breaks do not matter); a C initialiser of 16 words of 64 bits, 32 of
            32, 64 of 16 or 128 bytes; what gdb or cuda-gdb print of memory (``x/16gx`` and its kin) or of the value;
            JSON with ``bytes`` or ``words``, such as `to_json` writes; a ``DESC_TMA512`` line. As bytes: the same as
            text in UTF-8 or UTF-16, or the 128 bytes themselves.

        Raises
        ------
        DescriptorError
            If the source is none of these, or too long or short; the message says which was tried.

        Examples
        --------
        >>> TensorMap.parse("00" * 128).decode().data_type
        DataType.UINT8
        """
        return cls.from_bytes(parsing.parse_tensor_map(source))

    def to_hex(self) -> str:
        """The 128 bytes as 256 hex digits, in memory order."""
        return bytes(self).hex()

    def to_c(self, name: str = "tensor_map") -> str:
        """A definition in C: ``CUtensorMap name = {{0x…, …}};`` with 16 words of 64 bits."""
        words = [f"{word:#018x}" for word in self._words()]
        rows = (f"    {', '.join(words[i : i + _WORDS_PER_LINE])}," for i in range(0, len(words), _WORDS_PER_LINE))
        return "\n".join((f"CUtensorMap {name} = {{{{", *rows, "}};"))

    def debug_line(self, words: int = debug_line.PAYLOAD_WORDS) -> str:
        """The founding document's line, ``DESC_TMA512: 0x…``.

        Parameters
        ----------
        words : int
            8 for the payload (the default), 4 as the document's format string prints, 16 for all 128 bytes.

        Raises
        ------
        DescriptorError
            For any other count.
        """
        return debug_line.write_debug_line(self._words(), words)

    @classmethod
    def from_debug_line(cls: type[T], text: str, template: TextForms | None = None) -> T:
        """A tensor map from a ``DESC_TMA512`` line of 4, 8 or 16 words.

        Parameters
        ----------
        text : str
            May hold other lines; the first with the label counts.
        template : TensorMap, optional
            Gives the words that the line does not have. Without one, a line of 8 words gets words 8 and 9 as the
            encoders record them, and a line of 4 is refused.

        Raises
        ------
        DescriptorError
            If there is no such line, or words are missing; the message says what they hold.
        """
        return cls.from_bytes(debug_line.read_debug_line(text, None if template is None else bytes(template)))

    def to_dict(self, target: str | targets.Target | None = None) -> dict[str, Any]:
        """Everything known of the map as plain values.

        Parameters
        ----------
        target : str or Target, optional
            What it was encoded for, where that is known; recorded and not otherwise used.

        Returns
        -------
        dict
            ``kind``, ``target``, ``parameters`` (None where the bytes cannot be decoded), ``bytes`` and ``words`` as
            hex, ``box_bytes``, ``shared_alignment``, ``verified``, ``reserved_bits``, ``fields``; ``error``
            where something could not be read.
        """
        return map_document(self, target)

    @classmethod
    def from_dict(cls: type[T], document: Mapping[str, Any]) -> T:
        """The map that a dictionary of `to_dict` holds, from its ``bytes`` or ``words``.

        Its ``parameters`` are remembered where they encode to the same bytes: they may say more than the bytes do.

        Raises
        ------
        DescriptorError
            If it has neither, or they differ.
        """
        made = cls.from_bytes(parsing.bytes_of_document(document))
        return _with_parameters(made, document)

    def to_json(self, target: str | targets.Target | None = None) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(target), indent=2)

    @classmethod
    def from_json(cls: type[T], text: str | bytes) -> T:
        """The map that JSON of `to_json` holds.

        Raises
        ------
        DescriptorError
            If the text is no JSON, or JSON of something else.
        """
        return cls.from_dict(parsing.document_of(text))

    def _words(self) -> tuple[int, ...]:
        data = bytes(self)
        return tuple(int.from_bytes(data[i : i + 8], "little") for i in range(0, SIZE, 8))


class DictForms:
    """What parameters can be written as and read from. Part of `Parameters`."""

    def to_dict(self) -> dict[str, Any]:
        """The parameters as plain values: the kind, enumerations by name, sequences as lists."""
        return {_KIND: getattr(self, _KIND), **parameter_values(self)}

    @classmethod
    def from_dict(cls: type[P], document: Mapping[str, Any]) -> P:
        """Parameters from a dictionary: those of `to_dict`, or the ``parameters`` of a tensor map's.

        Called on `Parameters` it makes what ``kind`` says (tiled if it says nothing); called on a kind it makes that.

        Raises
        ------
        DescriptorError
            If a parameter is missing or unknown, or the dictionary is of another kind.
        """
        values = {key: value for key, value in _inner(document).items() if key not in (_KIND, _TARGET)}
        kind = _kind(cls, document.get(_KIND, _inner(document).get(_KIND)))
        known = {field.name: field for field in fields(kind)}
        problems = {
            "unknown": [str(name) for name in values if name not in known],
            "missing": [name for name, field in known.items() if field.default is MISSING and name not in values],
        }
        if any(problems.values()):
            listed = "; ".join(f"{what}: {', '.join(names)}" for what, names in problems.items() if names)
            raise DescriptorError(f"these are no parameters of a tensor map of kind {getattr(kind, _KIND)}; {listed}")
        made: P = kind(**{name: _loaded(value) for name, value in values.items()})
        return made

    def to_json(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls: type[P], text: str | bytes) -> P:
        """Parameters from JSON; see `from_dict`.

        Raises
        ------
        DescriptorError
            If the text is no JSON, or JSON of something else.
        """
        return cls.from_dict(parsing.document_of(text))


def _with_parameters(made: T, document: Mapping[str, Any]) -> T:
    """The map as its parameters encode it, if they encode to its bytes."""
    from cupytma.tensormap.parameters import Parameters

    if not isinstance(document.get(_PARAMETERS), Mapping):
        return made
    for target in dict.fromkeys((document.get(_TARGET) or "sm_90a", "sm_90a", "sm_100a")):
        try:
            encoded = Parameters.from_dict(document).encode(target)
        except (CupytmaError, TypeError):
            continue
        if bytes(encoded) == bytes(made):
            return cast("T", encoded)
    return made


def map_document(tensor_map: Any, target: str | targets.Target | None = None) -> dict[str, Any]:
    """Everything known of a tensor map as plain values; see `TextForms.to_dict`."""
    document: dict[str, Any] = {
        _KIND: None,
        _TARGET: None if target is None else targets.target(target).name,
        _PARAMETERS: None,
        "bytes": tensor_map.to_hex(),
        "words": [f"{word:#018x}" for word in tensor_map.words],
        "box_bytes": None,
        "shared_alignment": None,
        "verified": None,
        "reserved_bits": [],
        "fields": [],
    }
    try:
        document["reserved_bits"] = list(tensor_map.reserved_bits)
        document["fields"] = [
            {"field": f.label, "bits": f.bits, "value": f.value, "meaning": f.meaning} for f in tensor_map.fields()
        ]
        parameters = tensor_map.decode()
        document.update(
            kind=parameters.kind, parameters=parameter_values(parameters),
            box_bytes=tensor_map.box_bytes, shared_alignment=tensor_map.shared_alignment,
            verified=tensor_map.verified,
        )
    except DescriptorError as error:
        document["error"] = str(error)
    return document


def parameter_values(parameters: Any) -> dict[str, Any]:
    """Every parameter by name as a plain value."""
    return {field.name: _plain(getattr(parameters, field.name)) for field in fields(parameters)}


def _plain(value: Any) -> Any:
    if isinstance(value, DriverEnum):
        return str(value)
    return [int(entry) for entry in value] if isinstance(value, tuple) else int(value)


def _loaded(value: Any) -> Any:
    """JSON has no hexadecimal, so numbers may be strings; everything else is judged by the parameters themselves."""
    if isinstance(value, list):
        return tuple(_loaded(entry) for entry in value)
    return int(value, 0) if isinstance(value, str) and _HEXADECIMAL.fullmatch(value) else value


def _inner(document: Any) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise DescriptorError("parameters of a tensor map are an object of names and values")
    inner = document.get(_PARAMETERS, document)
    if not isinstance(inner, Mapping):
        raise DescriptorError("the parameters of this document are no object of names and values")
    return inner


def _kind(cls: type[Any], named: Any) -> type[Any]:
    """The class to make: the one asked for, which must be what the document says if it says anything."""
    from cupytma.tensormap.parameters import KINDS

    wanted = getattr(cls, _KIND, None)
    if wanted is not None and named in (None, wanted):
        return cls
    found = KINDS.get(named or "tiled") if wanted is None else None
    if found is None:
        expected = wanted or ", ".join(KINDS)
        raise DescriptorError(f"these parameters are of kind {named!r}; expected {expected}")
    return found
