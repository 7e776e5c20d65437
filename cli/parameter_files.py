"""Parameters of a tensor map from JSON or TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from cupytma.tensormap.parameters import KINDS

from .address_names import parse_address
from .failures import Failure
from .options import check_range, parse_integer
from .sources import as_text, name_of, read_file

# Beside the parameters a document may say these.
_KIND, _TARGET, _PARAMETERS = "kind", "target", "parameters"
_ADDRESS = "global_address"
_NUMBER = re.compile(r"\s*[+-]?(\d+|0x.*)\s*$", re.IGNORECASE)


def read_parameters(path: str, kind: str, known: tuple[str, ...]) -> tuple[dict[str, Any], str | None]:
    """The parameters in a file, and the target if it names one.

    Parameters
    ----------
    path : str
        A file; ``-`` is standard input.
    kind : str
        What the file must describe if it says what it describes, such as ``"tiled"``.
    known : tuple of str
        The parameters there are.

    Raises
    ------
    Failure
        If the file cannot be read, or holds anything else.
    """
    text, name = as_text(read_file(path)), name_of(path)
    if text is None:
        raise Failure(f"{name} holds no text; parameters are read from JSON or TOML")
    document = _parse(text, name, path)
    if (named := document.get(_KIND, kind)) != kind and str(named).replace("-", "_") != kind:
        raise Failure(f"{name} describes a tensor map of kind {named!r}; {_way_out(named, kind)}")
    target = document.get(_TARGET)
    if target is not None and not isinstance(target, str):
        raise Failure(f"target in {name} is {target!r}; it is a name such as 'sm_90a'")
    inner = document.get(_PARAMETERS)
    if inner is None:
        inner = {key: value for key, value in document.items() if key not in (_KIND, _TARGET)}
    if not isinstance(inner, dict):
        raise Failure(f"parameters in {name} are no table of names and values")
    return _checked(inner, known, name), target


def _way_out(named: Any, kind: str) -> str:
    """What to do about a document of another kind."""
    wanted = str(named).replace("-", "_")
    if wanted in KINDS:
        return f"this command makes {kind!r}, `cupytma encode {wanted.replace('_', '-')}` the other"
    return f"there are {', '.join(KINDS)}"


def _parse(text: str, name: str, path: str) -> dict[str, Any]:
    if not text.strip():
        raise Failure(f"{name} is empty; it should hold parameters as JSON or TOML")
    is_json = path.endswith(".json") or (text.lstrip().startswith("{") and not path.endswith(".toml"))
    document = (_json if is_json else _toml)(text, name)
    if not isinstance(document, dict):
        raise Failure(f"{name} holds no table of names and values")
    return document


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{name} is no JSON: {error}") from None


def _toml(text: str, name: str) -> Any:
    try:
        tomllib = import_module("tomllib")
    except ImportError:  # Python 3.10
        raise Failure(f"reading TOML needs Python 3.11 or newer; write {name} as JSON instead") from None
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{name} is neither JSON (which begins with a brace) nor TOML: {error}") from None


def _checked(document: Mapping[str, Any], known: tuple[str, ...], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in document.items():
        parameter = key.replace("-", "_")
        if parameter not in known:
            raise Failure(f"{name} has {key!r}, which is no parameter; the parameters are {', '.join(known)}")
        if value is not None:
            try:
                found[parameter] = _address(value) if parameter == _ADDRESS else _number_or_name(value)
            except ValueError as error:
                raise Failure(f"{key} in {name}: {error}") from None
    return found


def _address(value: Any) -> Any:
    return parse_address(value) if isinstance(value, str) else _number_or_name(value)


def _number_or_name(value: Any) -> Any:
    """JSON has no hexadecimal, so numbers may be strings; everything else is judged by the parameters themselves."""
    if isinstance(value, list):
        return tuple(_number_or_name(entry) for entry in value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"{value!r} is neither an integer nor a name")
    if isinstance(value, int):
        return check_range(value)
    return parse_integer(value) if _NUMBER.match(value) else value
