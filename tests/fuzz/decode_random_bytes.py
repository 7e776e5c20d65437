"""Decode a million byte strings, random ones and real tensor maps with bits flipped: ``python FILE [COUNT] [SEED]``.

Every one must decode, or be refused with a `DescriptorError` that names bits. Anything else is reported and exits 1.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from cupytma.errors import DescriptorError
from cupytma.tensormap import TensorMap


def main(count: int = 1_000_000, seed: int = 0) -> int:
    generator = random.Random(seed)
    with np.load(Path(__file__).parents[1] / "golden" / "encoder_calls.npz") as file:
        rows = file["records"]
    real = [row.tobytes() for row in rows["bytes"][rows["rc"] == 0]]
    outcomes: Counter[str] = Counter()
    started = time.perf_counter()
    for _ in range(count):
        data = generator.randbytes(128) if generator.random() < 0.5 else flipped(generator, generator.choice(real))
        try:
            outcomes[examine(data)] += 1
        except Exception as error:
            print(f"{type(error).__name__}: {error}\n{data.hex()}", file=sys.stderr)
            outcomes["failed"] += 1
    took = time.perf_counter() - started
    print(f"{count} byte strings in {took:.0f} s: " + ", ".join(f"{n} {what}" for what, n in outcomes.most_common()))
    return 1 if outcomes["failed"] else 0


def flipped(generator: random.Random, data: bytes) -> bytes:
    value = int.from_bytes(data, "little")
    for _ in range(generator.randrange(1, 6)):
        value ^= 1 << generator.randrange(1024)
    return value.to_bytes(128, "little")


def examine(data: bytes) -> str:
    """Decode and look at everything a map shows."""
    tensor_map = TensorMap.from_bytes(data)
    repr(tensor_map)
    try:
        parameters = tensor_map.decode()
    except DescriptorError as error:
        if "w1[" not in str(error):
            raise AssertionError(f"names no bits: {error}") from error
        return "refused"
    tensor_map.fields()
    tensor_map.box_bytes, tensor_map.shared_alignment, tensor_map.verified  # noqa: B018
    legal = not parameters.violations()
    parameters.warnings()
    if legal and not tensor_map.reserved_bits:
        again = bytes(parameters.encode("sm_100a" if not tensor_map.verified else "sm_90a"))
        assert again[:64] == (bytes(data[:64]) if not tensor_map.words[1] >> 21 & 1 else again[:64])
    return "legal" if legal else "decoded, with broken rules"


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
