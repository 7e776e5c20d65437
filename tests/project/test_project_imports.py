"""What starting up loads, and how long it takes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"cupy", "cuda", "numpy", "torch", "ml_dtypes", "rich", "matplotlib"}


def _loaded(code: str) -> set[str]:
    """The heavy top-level modules that some code loads, beyond what starting Python does."""
    report = f"""
import atexit, json, sys
before = set(sys.modules)
def show():
    new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
    print(json.dumps(sorted(new)), file=sys.stderr)
atexit.register(show)
{code}
"""
    result = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(json.loads(result.stderr.splitlines()[-1])) & HEAVY


def _command(*arguments: str) -> str:
    return f"sys.argv = ['cupytma', *{arguments!r}]\nfrom cupytma.cli import main\nmain()"


def test_importing_the_package_loads_nothing_heavy():
    assert _loaded("import cupytma") == set()


def test_building_a_descriptor_loads_nothing_heavy():
    assert _loaded(
        "import cupytma\n"
        "cupytma.Tiled(data_type='FLOAT16', global_address=0, global_dim=(64, 64), box_dim=(64, 8)).encode()"
    ) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["encode", "tiled", "--help"], ["decode", "--help"]])
def test_help_loads_nothing_heavy(arguments):
    assert _loaded(_command(*arguments)) == set()


def test_the_help_of_every_command_loads_nothing_heavy():
    code = """
from cupytma.cli.application import COMMANDS, cli
for path in (*((name,) for name in COMMANDS), ("encode", "im2col"), ("emit", "tensor_load"), ("emit", "recipe")):
    cli([*path, "--help"], standalone_mode=False)
"""
    assert _loaded(code) == set()


def test_encoding_loads_no_cuda_and_only_tables_need_rich():
    options = ["encode", "tiled", "--data-type", "FLOAT16", "--global-dim", "64", "--box-dim", "64"]
    assert _loaded(_command(*options, "-o", "hex")) == set()
    assert _loaded(_command(*options)) == {"rich"}


def test_instructions_load_nothing_heavy():
    assert _loaded("from cupytma import ptx\nptx.header(target='sm_90a')") == set()


def test_the_runtime_loads_what_is_used_of_it():
    assert _loaded("from cupytma import runtime\nruntime.compile, runtime.Module, dir(runtime)") == set()
    every = "import cupytma.runtime\nfor name in cupytma.runtime.__all__: getattr(cupytma.runtime, name)"
    assert _loaded(every) <= {"numpy", "ml_dtypes"}


def test_simulating_loads_numpy_alone():
    assert _loaded("from cupytma import sim") <= {"numpy", "ml_dtypes"}


def test_modules_that_are_imported_first_hide_no_function():
    code = """
import importlib, pkgutil, types
from cupytma import ops, runtime
for package in (ops, runtime):
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")
    names = [name for name in package.__all__ if isinstance(getattr(package, name), types.ModuleType)]
    assert not names, names
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def _seconds(*arguments: str) -> float:
    """Processor time of a command, the best of a few runs.

    Starting up waits for nothing, so on an idle machine this is the time on the clock; on one that runs other tests at
    the same time the clock would measure those.
    """
    resource = pytest.importorskip("resource", reason="processor time of another process is read as Unix does")
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        (["-c", "import cupytma"], 0.15),
        (["-m", "cupytma", "--help"], 0.25),
        (["-m", "cupytma", "encode", "tiled", "--data-type", "UINT8", "--global-dim", "16", "--box-dim", "16"], 0.4),
    ],
)
def test_start_up_time(arguments, limit):
    assert _seconds(*arguments) - _seconds("-c", "pass") <= limit
