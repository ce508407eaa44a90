"""What lies about in real folders: pointers, links, hostile pickles, other people's formats, many files."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.checking.files_for_tests import bad_names, checked, saved
from whynan.checking.file_text import exit_code, lines_of
from whynan.checking.files import find_files
from whynan.errors import UsageError


def run(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "whynan", "check", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


class Acts:
    def __init__(self, function: Any, *args: Any) -> None:
        self.made = (function, args)

    def __reduce__(self) -> Any:
        return self.made


def test_what_a_hostile_pickle_would_run_is_said_and_not_done(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = saved(tmp_path / "model.pt", {"w": torch.ones(3), "x": Acts(os.system, f"touch {mark}")})
    report = checked(path)
    text = "\n".join(lines_of(report, verbose=False))
    assert f"danger  loading it would run os.system('touch {mark}')" in text
    assert "1 tensor, 3 values: no NaN, no Inf" in text
    assert exit_code([report]) == 3
    assert not mark.exists()


def test_a_call_whose_result_is_thrown_away_is_seen_too(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R0}.")
    assert checked(path).dangers == ("os.system('ls')",)


def test_eval_is_a_danger_and_an_ordinary_checkpoint_is_none(tmp_path: Path) -> None:
    assert checked(saved(tmp_path / "a.pt", [Acts(eval, "1")])).dangers == ("builtins.eval('1')",)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    state = {
        "model": model,
        "path": tmp_path,
        "args": {"lr": 0.1},
        "array": np.ones(3),
        "set": {1, 2},
    }
    report = checked(saved(tmp_path / "b.pt", state))
    assert (report.dangers, report.error) == ((), None)
    legacy = saved(tmp_path / "c.pt", state, _use_new_zipfile_serialization=False)
    assert checked(legacy).dangers == ()


def test_a_pointer_of_git_lfs_is_called_one(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text(
        "version https://git-lfs.github.com/spec/v1\n"
        f"oid sha256:{'0' * 64}\nsize 4404483400\n"
    )  # fmt: skip
    assert checked(path).error == (
        "a Git LFS pointer to a file of 4,404,483,400 bytes, not the file itself; `git lfs pull` gets it"
    )


def test_a_link_to_nothing_is_named_with_its_target(tmp_path: Path) -> None:
    link = tmp_path / "model.pt"
    link.symlink_to("blobs/abc")
    with pytest.raises(UsageError, match="a link to blobs/abc, which is not there"):
        find_files([link])
    saved(tmp_path / "good.pt", torch.ones(2))
    done = run(tmp_path)
    assert done.returncode == 2
    assert f"{link}: not checked: a link to blobs/abc, which is not there" in done.stderr
    assert "good.pt: 1 tensor" in done.stdout


def test_scales_that_are_powers_of_two_are_read(tmp_path: Path) -> None:
    path = tmp_path / "scales.safetensors"
    header = {"s": {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes([127, 128, 126, 255]))
    (item,) = checked(path).items
    assert (item.summary.stats.min, item.summary.stats.max) == (0.5, 2.0)
    assert (item.summary.stats.nan, item.summary.first_bad) == (1, (3,))
    kept = torch.tensor([127, 0, 254, 255], dtype=torch.uint8).view(torch.float8_e8m0fnu)
    torch.save({"s": kept}, tmp_path / "s.pt")
    (item,) = checked(tmp_path / "s.pt").items
    assert (item.summary.stats.min, item.summary.stats.max) == (2.0**-127, 2.0**127)
    assert item.summary.stats.nan == 1


def gguf(path: Path, tensors: dict[str, tuple[tuple[int, ...], int, bytes]]) -> Path:
    """A model's file as llama.cpp writes it: shapes from the fastest dimension on."""

    def text(x: str) -> bytes:
        return struct.pack("<Q", len(x)) + x.encode()

    facts = text("general.name") + struct.pack("<I", 8) + text("toy")
    facts += text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    facts += text("scores") + struct.pack("<IIQ", 9, 6, 2) + struct.pack("<2f", 1, 2)
    head, body = b"", b""
    for name, (shape, kind, raw) in tensors.items():
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += text(name) + dims + struct.pack("<IQ", kind, len(body))
        body += raw + b"\0" * (-len(raw) % 32)
    start = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), 3) + facts + head
    path.write_bytes(start + b"\0" * (-len(start) % 32) + body)
    return path


def test_gguf_is_read_packed_tensors_by_their_scales(tmp_path: Path) -> None:
    plain = np.arange(6, dtype=np.float32)
    plain[4] = np.nan
    block = np.float16(0.5).tobytes() + b"\x01" * 32
    broken = np.float16(np.inf).tobytes() + b"\x01" * 32
    path = gguf(tmp_path / "m.gguf", {
        "norm": ((2, 3), 0, plain.tobytes()),
        "half": ((3,), 1, np.ones(3, np.float16).tobytes()),
        "ffn": ((2, 64), 8, block + broken + block + block),
        "other": ((256,), 99, b"\0" * 66),
    })  # fmt: skip
    report = checked(path)
    assert bad_names(report) == ["norm", "ffn (scales of Q8_0)"]
    norm, ffn = report.bad
    assert (norm.summary.stats.nan, norm.summary.first_bad) == (1, (1, 1))
    assert (ffn.summary.stats.posinf, ffn.summary.first_bad) == (1, (1, 0))
    assert report.unread == (("other", "packed as type 99, which is not known"),)


def test_a_damaged_gguf_is_one_line(tmp_path: Path) -> None:
    whole = gguf(
        tmp_path / "m.gguf", {"w": ((40,), 0, np.ones(40, np.float32).tobytes())}
    ).read_bytes()
    assert checked(tmp_path / "m.gguf").error is None
    for length in range(1, len(whole) - 1, 3):
        path = tmp_path / "cut.gguf"
        path.write_bytes(whole[:length])
        assert checked(path).error, length


def test_many_files_close_with_the_worst_first(tmp_path: Path) -> None:
    for n in range(25):
        x = np.ones(10)
        x[: {7: 1, 9: 5}.get(n, 0)] = np.nan
        np.save(tmp_path / f"{n:02}.npy", x)
    (tmp_path / "z.pt").write_bytes(pickle.dumps(Acts(os.system, "ls"), protocol=2))
    done = run(tmp_path)
    closing = done.stdout.splitlines()[-4:]
    assert closing == [
        "26 files, 250 values: 3 bad, 0 not checked",
        f"  {tmp_path / 'z.pt'}: would run os.system('ls')",
        f"  {tmp_path / '09.npy'}: 1 bad, 5 of 10 values not finite, such as its array",
        f"  {tmp_path / '07.npy'}: 1 bad, 1 of 10 values not finite, such as its array",
    ]
    assert done.returncode == 3
