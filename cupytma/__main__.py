"""``python -m cupytma``: the command line."""

from importlib import import_module

# By name, because in a source tree the command line stands beside this package, where type checkers do not look.
import_module("cupytma.cli").main()
