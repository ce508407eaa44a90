"""How fast `whynan.check` and `whynan check` are, beside what people use instead.

    python benchmarks/check_speed.py [--lovely FOLDER]

lovely-tensors is measured when it can be imported (or lies in FOLDER). Medians of interleaved
repeats, one thread.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import whynan
from whynan.checking.files import check_file

REPEATS = 9
SIZE = 1 << 24


def medians(work: dict[str, Callable[[], object]], repeats: int = REPEATS) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in work}
    for i in range(repeats + 1):
        for name, run in work.items():
            start = time.perf_counter()
            run()
            if i:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(spent) for name, spent in times.items()}


def values(lovely: bool) -> None:
    print(f"| {SIZE >> 20}M values | " + " | ".join(["check", "assert_finite", "isfinite().all()", "lovely-tensors", "sum"]) + " |")  # fmt: skip
    print("|---|---|---|---|---|---|")
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        x = torch.randn(SIZE).to(dtype)
        work: dict[str, Callable[[], object]] = {
            "check": lambda x=x: whynan.check(x),
            "assert_finite": lambda x=x: whynan.assert_finite(x),
            "isfinite": lambda x=x: bool(torch.isfinite(x).all()),
            "sum": lambda x=x: x.sum().item(),
        }
        if lovely:
            import lovely_tensors

            work["lovely"] = lambda x=x: str(lovely_tensors.lovely(x))
        row(str(dtype).removeprefix("torch."), medians(work), x.element_size())
    y = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    found = medians({
        "check": lambda: whynan.check(y), "assert_finite": lambda: whynan.assert_finite(y),
        "isfinite": lambda: bool(np.isfinite(y).all()), "sum": lambda: float(y.sum()),
    })  # fmt: skip
    row("NumPy float32", found, 4)


def row(name: str, found: dict[str, float], item: int) -> None:
    cells = []
    for key in ("check", "assert_finite", "isfinite", "lovely", "sum"):
        spent = found.get(key)
        cells.append("-" if spent is None else f"{spent * 1e3:.0f} ms ({SIZE * item / spent / 1e9:.1f} GB/s)")  # fmt: skip
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def files(folder: Path, megabytes: int) -> None:
    from safetensors.torch import save_file

    tensors = {f"layer.{i}": torch.randn(megabytes * 1024 * 1024 // 4 // 32) for i in range(32)}
    save_file(tensors, folder / "x.safetensors")
    torch.save(tensors, folder / "x.pt")
    save_file({k: v.bfloat16() for k, v in tensors.items()}, folder / "bf16.safetensors")
    np.save(folder / "x.npy", torch.cat(list(tensors.values())).numpy())
    rows = np.random.default_rng(0).normal(size=(200_000, 10))
    np.savetxt(folder / "x.csv", rows, delimiter=",", header=",".join("abcdefghij"), comments="")
    print("\n| file | size | plain reading | `whynan check` | ratio |")
    print("|---|---|---|---|---|")
    for path in sorted(folder.iterdir()):
        found = medians(
            {"read": lambda p=path: read(p), "check": lambda p=path: check_file(p, lambda n: None)},
            5,
        )
        size = path.stat().st_size
        print(f"| `{path.name}` | {size / 1e6:,.0f} MB | {size / found['read'] / 1e9:.1f} GB/s | {size / found['check'] / 1e9:.2f} GB/s | {found['check'] / found['read']:.1f} x |", flush=True)  # fmt: skip


def read(path: Path) -> None:
    buffer = bytearray(1 << 22)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def memory(folder: Path, gigabytes: int) -> None:
    """A sparse file costs no disk: its zeros are read all the same. Limited to 2 GB of memory."""
    path = folder / "large.npy"
    n = gigabytes * (1 << 30) // 4
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n,)})  # type: ignore[arg-type] # as documented  # fmt: skip
        start = file.tell()
        file.truncate(start + 4 * n)
        file.seek(start + 4 * (n - 1))
        file.write(np.float32(np.nan).tobytes())

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    start_time = time.perf_counter()
    # The kernel's own high-water mark: getrusage would count this process before the exec.
    peak = "import atexit, sys; atexit.register(lambda: print([s for s in open('/proc/self/status') if 'VmHWM' in s][0].strip(), file=sys.stderr)); from whynan.cli import main; main()"  # fmt: skip
    command = [sys.executable, "-c", peak, "check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    spent = time.perf_counter() - start_time
    print(f"\n{gigabytes} GB file under a limit of 2 GB of address space: exit {done.returncode}, {spent:.0f} s")  # fmt: skip
    print(done.stdout.replace(str(folder), "...") + done.stderr)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lovely", type=Path)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--gigabytes", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.lovely:
        sys.path.append(str(options.lovely))
    try:
        import lovely_tensors  # noqa: F401

        lovely = True
    except ImportError:
        lovely = False
    values(lovely)
    with tempfile.TemporaryDirectory() as folder:
        files(Path(folder), options.megabytes)
    with tempfile.TemporaryDirectory() as folder:
        memory(Path(folder), options.gigabytes)


if __name__ == "__main__":
    main()
