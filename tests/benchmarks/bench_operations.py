"""The operations beside torch and CuPy: bytes read plus written a second, medians, all ways in alternation.

Needs a GPU:

    python tests/benchmarks/bench_operations.py
"""

from __future__ import annotations

from cupytma.ops.benchmark import cases, measure


def main() -> None:
    copied = None
    print(f"{'operation':46s} {'ms':>8s} {'GB/s':>7s} {'of copy':>8s}   beside")
    for case in cases():
        found = measure(case)
        copied = copied or found.bytes / found.others.get("cudaMemcpyAsync", found.seconds)
        beside = ", ".join(
            f"{name} {found.bytes / seconds / 1e9:.0f} GB/s ({seconds / found.seconds:.2f} ×)"
            for name, seconds in found.others.items()
        )
        rate, part = found.rate / 1e9, found.rate / copied
        print(f"{found.name:46s} {1e3 * found.seconds:8.3f} {rate:7.0f} {part:8.3f}   {beside}", flush=True)
        del case


if __name__ == "__main__":
    main()
