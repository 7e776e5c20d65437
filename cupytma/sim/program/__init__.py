"""A small model of asynchronous kernels: why a program hangs or races, and what it computes."""

from cupytma.sim.program.errors import ProgramError
from cupytma.sim.program.memory import Mbarrier, ProgramArray
from cupytma.sim.program.operation import Operation, PhaseToken
from cupytma.sim.program.program import Program, Role
from cupytma.sim.program.report import Finding, Place, Report
from cupytma.sim.program.rules import RULES, Rule
from cupytma.sim.program.thread import Thread
from cupytma.sim.program.trace import Execution, Flight, Trace

__all__ = [
    "RULES",
    "Execution",
    "Finding",
    "Flight",
    "Mbarrier",
    "Operation",
    "PhaseToken",
    "Place",
    "Program",
    "ProgramArray",
    "ProgramError",
    "Report",
    "Role",
    "Rule",
    "Thread",
    "Trace",
]
