"""Public functions that a function makes, such as ``reduce_add``: on the site with their signatures and docstrings.

What reads the sources sees assignments alone, so these are read from the package as it is imported.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from types import FunctionType
from typing import Any

import griffe

_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: griffe.ParameterKind.positional_only,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.VAR_POSITIONAL: griffe.ParameterKind.var_positional,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
    inspect.Parameter.VAR_KEYWORD: griffe.ParameterKind.var_keyword,
}


class MadeFunctions(griffe.Extension):
    """Puts functions in the place of the public attributes that hold them."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, agent: Any, **_: Any) -> None:
        """Look at an assignment in a module."""
        module = attr.parent
        if not isinstance(module, griffe.Module) or attr.name.startswith("_") or attr.docstring:
            return
        made = getattr(import_module(module.path), attr.name, None)
        if isinstance(made, FunctionType) and made.__qualname__ == attr.name:
            module.set_member(attr.name, _function(made, attr, agent))


def _function(made: FunctionType, attr: griffe.Attribute, agent: Any) -> griffe.Function:
    signature = inspect.signature(made)
    parameters = griffe.Parameters(*(_parameter(parameter) for parameter in signature.parameters.values()))
    function = griffe.Function(attr.name, parameters=parameters, returns=_annotation(signature.return_annotation))
    function.lineno, function.endlineno = attr.lineno, attr.endlineno
    function.docstring = griffe.Docstring(
        inspect.cleandoc(made.__doc__ or ""), lineno=attr.lineno, parent=function,
        parser=agent.docstring_parser, parser_options=agent.docstring_options,
    )  # fmt: skip
    return function


def _parameter(parameter: inspect.Parameter) -> griffe.Parameter:
    default = None if parameter.default is inspect.Parameter.empty else repr(parameter.default)
    annotation = _annotation(parameter.annotation)
    return griffe.Parameter(parameter.name, annotation=annotation, kind=_KINDS[parameter.kind], default=default)


def _annotation(given: Any) -> str | None:
    """As it is written: the package's annotations are not evaluated."""
    return None if given is inspect.Parameter.empty else str(given)
