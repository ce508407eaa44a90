"""Damaged and hostile files: one clear line each, nothing executed, no crash, no swelling."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tests.checking.files_for_tests import checked, sample, saved
from whynan.checking.pickles import Call, Global, describe


class Evil:
    """Touches a file if it is ever unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


def test_a_pickle_is_never_executed(tmp_path: Path) -> None:
    target = tmp_path / "executed"
    plain = tmp_path / "plain.pt"
    plain.write_bytes(pickle.dumps(Evil(target)))
    assert checked(plain).error is None
    report = checked(saved(tmp_path / "zip.pt", {"w": sample(), "e": Evil(target)}))
    assert [item.name for item in report.bad] == ["w"]
    saved(tmp_path / "a.npy", np.array([Evil(target)], object))
    assert checked(tmp_path / "a.npy").error == "holds pickled Python objects, which are not opened"
    assert not target.exists()
    pickle.loads(plain.read_bytes())
    assert target.exists()  # so it would have been


def test_a_pickle_is_described() -> None:
    call = describe(io.BytesIO(pickle.dumps(complex(1, 2))))
    assert isinstance(call, Call)
    assert (call.function, call.args) == (Global("builtins", "complex"), (1.0, 2.0))


def deep_pair(times: int) -> bytes:
    """((..), (..)) where both are the same: hashing or printing it takes 2**times steps."""
    return b")" + b"2\x86" * times


BOMBS = {
    "memo index": b"\x80\x02]r\xff\xff\xff\xff.",
    "bytes length": b"\x80\x04\x8e" + (1 << 60).to_bytes(8, "little") + b"x.",
    "bytearray length": b"\x80\x05\x96" + (1 << 60).to_bytes(8, "little") + b"x.",
    "exponential key": b"\x80\x04}" + deep_pair(80) + b"N\x73.",
    "exponential walk": b"\x80\x04" + deep_pair(80) + b".",
    "deep nesting": b"\x80\x04" + b"]" * 20_000 + b"a" * 19_999 + b".",
    "extension": b"\x80\x02\x82\x01.",
    "no end": b"\x80\x02]]]",
    "only a header": b"\x80",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_pickle_bombs_do_not_go_off(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(text)
    report = checked(path)
    assert report.error or not report.items


def test_every_kind_of_damage_has_its_line(tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole.pt", {"w": torch.ones(5000)}).read_bytes()
    legacy = saved(tmp_path / "old.pt", {"w": torch.ones(5000)}, _use_new_zipfile_serialization=False).read_bytes()  # fmt: skip
    save_file({"w": torch.ones(5000)}, tmp_path / "whole.safetensors")
    tensors = (tmp_path / "whole.safetensors").read_bytes()
    array = saved(tmp_path / "whole.npy", np.ones(500)).read_bytes()

    def header(text: str) -> bytes:
        return len(text).to_bytes(8, "little") + text.encode() + b"1234"

    def tensor(**change: Any) -> bytes:
        return header(json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | change}))  # fmt: skip

    damages = {
        "a.pt": (b"", "empty"),
        "b.pt": (b"hello", "not a PyTorch file: neither an archive nor a pickle"),
        "c.pt": (whole[:3000], "corrupt or truncated archive (File is not a zip file)"),
        "d.pt": (legacy[:-10], "truncated: 10 bytes are missing at its end"),
        "a.safetensors": (tensors[:-10], "truncated: tensor w ends 10 bytes behind the file"),
        "b.safetensors": (b"\xff" * 20, "corrupt or truncated: its header is longer than the file"),
        "c.safetensors": (header("[" * 99_999), "corrupt: its header is not JSON"),
        "d.safetensors": (header("[]"), "corrupt: its header is not a table of tensors"),
        "e.safetensors": (tensor(shape=[1 << 50, 1 << 50]), "corrupt: tensor w has 4 bytes, its shape needs"),
        "f.safetensors": (tensor(shape=[-1]), "corrupt: tensor w is not described in full"),
        "g.safetensors": (tensor(dtype="X9"), "tensor w has type 'X9', which is not known"),
        "a.npy": (array[:-8], "truncated: 8 bytes are missing at its end"),
        "b.npy": (b"\x93NUMPY", "corrupt: not a NumPy header"),
        "a.npz": (b"PK\3\4", "corrupt or truncated archive"),
        "a.parquet": (b"PAR1xxxxPAR1", "corrupt or truncated table"),
        "a.csv": (b"a," * 20_001 + b"\n", "has 20,002 columns; at most 20,000 are read"),
        "a.index.json": (b"{", "corrupt: no table `weight_map` of file names beside it"),
    }  # fmt: skip
    for name, (data, message) in damages.items():
        path = tmp_path / name
        path.write_bytes(data)
        error = checked(path).error
        assert error is not None, name
        assert error.startswith(message), name
        assert "\n" not in error


def rezipped(path: Path, change: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, data in parts.items():
            short = name.split("/", 1)[1]
            new.writestr(name, change.get(short, data))


def test_a_tensor_larger_than_its_storage_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.pt", {"w": torch.ones(64)})
    rezipped(path, {"data/0": b"1234"})
    assert checked(path).error == "corrupt: w needs 256 bytes of a storage of 4"


def test_a_repeated_element_costs_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.pt", {"w": torch.ones(1).expand(1 << 50)})
    (item,) = checked(path).items
    assert item.summary.stats.shape == (1 << 50,)


def test_overlapping_archive_entries_are_refused(tmp_path: Path) -> None:
    """The directory of this archive lists one large entry many times, as a zip bomb does."""
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", bytes(100_000))
        for i in range(50):
            info = zipfile.ZipInfo(f"{i}.npy")
            original = archive.filelist[0]
            info.header_offset, info.file_size = original.header_offset, original.file_size
            info.compress_size, info.CRC = original.compress_size, original.CRC
            archive.filelist.append(info)
    assert checked(path).error == "corrupt: the archive's entries overlap"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("sound")
    x = sample()
    saved(folder / "a.pt", {"w": x, "t": x.T, "n": [1, 2.5, None]})
    saved(folder / "b.bin", {"w": x}, _use_new_zipfile_serialization=False)
    save_file({"a": x, "b": x.half()}, folder / "c.safetensors")
    saved(folder / "d.npy", x.numpy())
    np.savez_compressed(folder / "e.npz", x=x.numpy())
    pq.write_table(pa.table({"a": [1.0, None] * 30, "v": [[1.0], []] * 30}), folder / "f.parquet")
    (folder / "g.csv").write_text("a,b\n1,2\n3,\n")
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


@given(st.integers(0, 6), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 100), st.binary(max_size=8)), min_size=1, max_size=4))  # fmt: skip
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_damage_never_crashes(
    sound: dict[str, bytes], tmp_path: Path, which: int, damages: list[tuple[float, int, bytes]]
) -> None:
    name = sorted(sound)[which]
    content = bytearray(sound[name])
    for where, size, put in damages:
        at = int(where * len(content))
        content[at : at + size] = put
    path = tmp_path / name
    path.write_bytes(content)
    report = checked(path)
    assert report.error is None or "\n" not in report.error
