"""Recordings of what a GPU's TMA unit does, made with any GPU and compared with the simulator.

`record_random` draws random copies from a seed, runs each on the hardware and keeps what it did; `read` and
`disagreements` hold a recording against the simulator, which needs no GPU.
"""

from cupytma.record.hardware import record_cases, record_random
from cupytma.record.prediction import Disagreement, disagreements, predict, undescribed
from cupytma.record.recording import Case, Observation, Recording, read

__all__ = [
    "Case", "Disagreement", "Observation", "Recording", "disagreements", "predict", "read",
    "record_cases", "record_random", "undescribed",
]
