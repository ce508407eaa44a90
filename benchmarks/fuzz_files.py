"""Damaged and hostile files by the thousand: does `whynan check` ever crash, hang or swell?

    python benchmarks/fuzz_files.py --minutes 10

A worker process damages sound files of every kind, also inside their headers, pickles and
archives, and checks them; the input is on disk before it is checked, so that a crash leaves it.
"""

from __future__ import annotations

import argparse
import io
import json
import pickle
import random
import resource
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

from whynan.checking.files import check_file

MEMORY = 4 << 30
SLOW_SECONDS = 5.0


def seeds(folder: Path) -> dict[str, list[bytes]]:
    """Sound files by ending."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    from safetensors.torch import save_file

    x = torch.randn(17, 9)
    state = {"w": x, "t": x.T, "half": x.half(), "n": {"steps": [1, 2.5, None]}, "a": np.ones(3)}
    torch.save(state, folder / "1.pt")
    torch.save(state, folder / "2.pt", _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Linear(3, 2), folder / "3.pt")
    save_file({"a": x, "b": x.bfloat16()}, folder / "1.safetensors")
    np.save(folder / "1.npy", x.numpy())
    np.save(folder / "2.npy", np.zeros(4, [("i", "i4"), ("v", ">f8")]))
    np.savez(folder / "1.npz", x=x.numpy(), y=np.arange(4))
    np.savez_compressed(folder / "2.npz", x=x.numpy())
    table = pa.table(
        {"a": [1.0, None, 3.0] * 30, "b": list(range(90)), "v": [[1.0], [], None] * 30}
    )
    pq.write_table(table, folder / "1.parquet")
    pq.write_table(table, folder / "2.parquet", compression="gzip", data_page_version="2.0")
    (folder / "1.csv").write_text("a,b,c\n" + "".join(f"{i},{i / 7},x\n" for i in range(50)))
    (folder / "m.index.json").write_text(json.dumps({"weight_map": {"a": "1.safetensors"}}))
    found: dict[str, list[bytes]] = {}
    for path in sorted(folder.iterdir()):
        ending = ".index.json" if path.name.endswith(".index.json") else path.suffix
        found.setdefault(ending, []).append(path.read_bytes())
    return found


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One to eight small injuries."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            size = rng.choice((1, 2, 4, 8))
            out[at : at + size] = rng.choice((0, 1, 0xFF, 2**31, 2**63, 2**64 - 1)).to_bytes(8, "little")[:size]  # fmt: skip
        elif kind == 3:
            del out[at : at + rng.choice((1, 4, 64, len(out)))]
        elif kind == 4:
            out[at:at] = rng.randbytes(rng.choice((1, 3, 16)))
        else:
            start = rng.randrange(len(out) + 1)
            out[at:at] = out[start : start + rng.choice((4, 32, 256))]
    return bytes(out)


def inside(ending: str, data: bytes, rng: random.Random) -> bytes:
    """Damage what lies within a sound container."""
    if ending in (".pt", ".npz") and data[:2] == b"PK":
        made = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
            names = old.namelist()
            victim = rng.choice([n for n in names if n.endswith((".pkl", ".npy"))] or names)
            for name in names:
                text = old.read(name)
                new.writestr(name, damaged(text, rng) if name == victim else text)
        return made.getvalue()
    if ending == ".safetensors":
        length = int.from_bytes(data[:8], "little")
        header = damaged(data[8 : 8 + length], rng)
        return len(header).to_bytes(8, "little") + header + data[8 + length :]
    if ending == ".pt" and rng.random() < 0.3:
        return b"\x80\x02" + bytes(rng.choice(b"()]}lt.0123euRbcqQhjN\x85\x86\x87\x89\x8c\x93\x94K\x01") for _ in range(60))  # fmt: skip
    return damaged(data, rng)


def hostile() -> dict[str, list[bytes]]:
    """Made by hand: bombs and lies."""
    nested = b"\x80\x04" + b")" + b"2\x86" * 10_000 + b"}" + b"\x94." + b"."
    memo = b"\x80\x02]r\xff\xff\xff\xff."
    bytes8 = b"\x80\x04\x8e" + (1 << 60).to_bytes(8, "little") + b"x."
    array8 = b"\x80\x05\x96" + (1 << 60).to_bytes(8, "little") + b"x."
    keys = b"\x80\x04)" + b"2\x86" * 60 + b"}\x8c\x01a0."
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (1 << 26,)})  # type: ignore[arg-type]  # fmt: skip
        archive.writestr("x.npy", head.getvalue() + bytes(1 << 28))
    lie = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}})
    deep = "[" * 100_000
    evil = pickle.dumps(Evil())
    return {
        ".pt": [nested, memo, bytes8, array8, keys, evil],
        ".npz": [bomb.getvalue()],
        ".safetensors": [len(t).to_bytes(8, "little") + t.encode() + b"1234" for t in (lie, deep)],
        ".npy": [b"\x93NUMPY\x01\x00" + len(h).to_bytes(2, "little") + h for h in (b"(" * 5000, b"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999,)}\n")],
        ".csv": [b"a," * 100_000 + b"\n", b'"' * 100_000],
        ".index.json": [deep.encode(), b'{"weight_map": {"a": "../../../etc/passwd"}}'],
    }  # fmt: skip


class Evil:
    """Were it ever executed, the fuzzer would end here."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return sys.exit, (66,)


def work(folder: Path, seed: int, seconds: float) -> None:
    """Check damaged files until the time is up; the last line of output is the tally."""
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    rng = random.Random(seed)
    source = folder / "seeds"
    source.mkdir(exist_ok=True)
    sound, made = seeds(source), hostile()
    queue = [(e, d) for e, many in made.items() for d in many] if seed == 0 else []
    outcomes: Counter[str] = Counter()
    slowest, ending = 0.0, ""
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if queue:
            ending, data = queue.pop()
        else:
            ending = rng.choice(list(sound))
            data = rng.choice(sound[ending])
            data = inside(ending, data, rng) if rng.random() < 0.5 else damaged(data, rng)
        path = folder / f"input{ending}"
        path.write_bytes(data)
        start = time.monotonic()
        report = check_file(path, lambda size: None)
        spent = time.monotonic() - start
        if spent > SLOW_SECONDS:
            print(f"slow: {spent:.1f} s", flush=True)
            (folder / f"slow{ending}").write_bytes(data)
        if spent > slowest:
            slowest = spent
        outcomes[ending] += 1
        outcomes["refused" if report.error is not None else "read"] += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"outcomes": outcomes, "slowest": slowest, "peak_mb": (peak - base) >> 10}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--worker", type=int)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.folder, options.worker, options.minutes * 60)
        return
    folder = Path(tempfile.mkdtemp(prefix="whynan-fuzz-"))
    end, seed, crashes = time.monotonic() + options.minutes * 60, 0, 0
    total: Counter[str] = Counter()
    slowest, peak = 0.0, 0
    while time.monotonic() < end - 1:
        minutes = min((end - time.monotonic()) / 60, 2.0)
        command = [sys.executable, __file__, "--worker", str(seed), "--folder", str(folder), "--minutes", str(minutes)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=minutes * 60 + 600)
        seed += 1
        if done.returncode:
            crashes += 1
            print(f"worker {seed} ended with {done.returncode}; {folder}\n{done.stderr[-2000:]}", flush=True)  # fmt: skip
            for path in folder.glob("input*"):
                path.rename(folder / f"crash{seed}-{path.name}")
            continue
        *messages, last = done.stdout.strip().splitlines()
        print("\n".join(messages), end="\n" if messages else "", flush=True)
        found = json.loads(last)
        total.update(found["outcomes"])
        slowest, peak = max(slowest, found["slowest"]), max(peak, found["peak_mb"])
    print(f"{total['read'] + total['refused']:,} files in {options.minutes:g} minutes: {crashes} crashes, "
          f"{total['refused']:,} refused, {total['read']:,} read; slowest {slowest:.2f} s, memory grew by at most {peak} MB")  # fmt: skip
    print(", ".join(f"{k} {v:,}" for k, v in sorted(total.items()) if k.startswith(".")))


if __name__ == "__main__":
    main()
