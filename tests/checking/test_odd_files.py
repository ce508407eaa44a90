"""Arrays and tables that are stored in unusual ways: read rightly, or named as not read."""

from __future__ import annotations

import math
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.checking.files_for_tests import checked, saved
from whynan.checking.compare import compare
from whynan.checking.file_text import exit_code, lines_of

NAN, INF = np.nan, np.inf
BOTH = np.array([[1.0, 2.0, 3.0], [4.0, NAN, INF]])


def stored(path: Path, array: Any) -> Path:
    np.save(path, array)
    return path


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c16", "g"])
def test_every_float_in_every_order(tmp_path: Path, kind: str, order: Any) -> None:
    report = checked(stored(tmp_path / "x.npy", np.asarray(BOTH.astype(kind), order=order)))
    (item,) = report.bad
    stats = item.summary.stats
    assert (stats.shape, stats.nan, stats.posinf) == ((2, 3), 1, 1)
    assert item.summary.first_bad == (1, 1)
    assert (stats.min, stats.max) == ((0, 4) if "c" in kind else (1, 4))


def test_bfloat16_is_known_by_its_header(tmp_path: Path) -> None:
    (item,) = checked(stored(tmp_path / "x.npy", BOTH.astype(ml_dtypes.bfloat16))).bad
    assert (item.summary.stats.dtype, item.summary.first_bad) == ("bfloat16", (1, 1))


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, "V2", "V5"], ids=str)
def test_values_without_a_type_are_no_all_clear(tmp_path: Path, kind: Any) -> None:
    report = checked(stored(tmp_path / "x.npy", np.zeros(3, dtype=kind)))
    assert "without a type" in str(report.error)
    assert exit_code([report]) == 2


def test_one_value_and_none(tmp_path: Path) -> None:
    assert checked(stored(tmp_path / "a.npy", np.array(NAN))).bad[0].summary.first_bad == ()
    assert lines_of(checked(stored(tmp_path / "b.npy", np.array(2.0))), verbose=False) == [
        f"{tmp_path / 'b.npy'}: 1 tensor, 1 value: no NaN, no Inf"
    ]
    assert checked(stored(tmp_path / "c.npy", np.zeros((0, 3)))).bad == ()


@pytest.mark.parametrize("order", ["C", "F"])
def test_every_field_of_a_structured_array(tmp_path: Path, order: Any) -> None:
    kind = np.dtype([
        ("name", "U3"), ("x", ">f4"), ("pair", "f8", (2,)), ("in", [("y", "f2"), ("n", "i4")]),
    ])  # fmt: skip
    table = np.zeros((3, 2), kind, order=order)
    table["x"][2, 1] = table["pair"][1, 0, 1] = table["in"]["y"][0, 1] = NAN
    report = checked(stored(tmp_path / "t.npy", table))
    assert [(i.name, i.summary.stats.shape) for i in report.items] == [
        ("x", (3, 2)), ("pair", (3, 2, 2)), ("in.y", (3, 2)), ("in.n", (3, 2)),
    ]  # fmt: skip
    bad = {i.name: i.summary.first_bad for i in report.bad}
    assert bad == {"x": (2, 1), "pair": (1, 0, 1), "in.y": (0, 1)}


def test_one_object_in_an_archive_leaves_the_others_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    objects = np.array([{}, None], dtype=object)
    np.savez(path, good=np.arange(3.0), names=np.array(["a", "b"]), odd=objects, bad=BOTH)
    report = checked(path)
    lines = lines_of(report, verbose=True)
    assert lines[:3] == [
        f"{path}: 2 tensors (and 1 of words or dates), 9 values: 1 bad",
        "  not checked: odd: holds pickled Python objects, which are not opened",
        "  bad   bad: 2x3 float64  in [1, 4]  mean 2.5, std 1.118  | 1 NaN (first at [1, 1]), 1 inf",
    ]
    assert "  words names" in lines
    assert exit_code([report]) == 3
    np.savez(path, good=np.arange(3.0), odd=objects)
    assert exit_code([checked(path)]) == 2
    np.savez(path, good=np.arange(3.0), names=np.array(["a", "b"]))
    assert exit_code([checked(path)]) == 0


def test_what_was_not_read_is_not_said_to_be_new_or_gone(tmp_path: Path) -> None:
    sound, damaged = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(sound, x=np.ones(3), y=np.ones(3))
    damaged.write_bytes(sound.read_bytes()[:200])
    lines = [f"  not compared: {damaged}, which could not be checked"]
    assert compare([checked(sound)], [checked(damaged)]).lines() == lines
    assert compare([checked(damaged)], [checked(sound)]).lines() == lines
    partly = tmp_path / "c.npz"
    np.savez(partly, x=np.ones(3), y=np.array([None], dtype=object))
    assert compare([checked(partly)], [checked(sound)]).lines() == [
        f"  not compared: y in {partly}, which could not be checked"
    ]


def test_a_plain_number_in_a_checkpoint_may_be_nan(tmp_path: Path) -> None:
    state = {
        "model": {"w": torch.ones(2)},
        "best": math.inf,
        "epoch": 3,
        "history": [0.5, math.nan],
    }
    report = checked(saved(tmp_path / "x.pt", state))
    assert [str(item) for item in report.bad] == ["history.1: scalar float64  | 1 NaN"]
    sound = {"w": torch.ones(2), "best": -math.inf, "lr": 1e-3}
    assert not checked(saved(tmp_path / "y.pt", sound)).bad


TABLES = {
    "nothing but NaN in a column": ("a,b\n1,nan\n2,NaN\n", {"b": "2 missing"}),
    "an empty column": ("a,b\n1,\n2,\n", {"b": "2 missing"}),
    "a comma at the end of each line": ("a,b,\n1,3,\n2,4,\n", {}),
    "no names": ("1,2\n3,nan\n", {"f1": "1 missing"}),
    "no names, one column": ("1\n\n3\ninf\n", {"f0": "1 inf"}),
    "a year as the only name": ("year,2024\na,1\nb,inf\n", {"2024": "1 inf"}),
}


@pytest.mark.parametrize("name", TABLES)
def test_odd_tables(tmp_path: Path, name: str) -> None:
    text, expected = TABLES[name]
    path = tmp_path / "t.csv"
    path.write_text(text)
    report = checked(path)
    assert report.error is None
    found = {item.name: item.troubles[0].text for item in report.bad}
    assert found.keys() == expected.keys()
    assert all(found[column].startswith(said) for column, said in expected.items())


def test_a_column_that_becomes_text_late_is_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,remark\n" + "1.5,\n" * 1_000_000 + "2.5,late\n")
    report = checked(path)
    assert ([item.name for item in report.items], report.left_out) == (["a"], ("remark",))
    assert not report.bad


def test_utf16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-16")
    assert checked(path).error == "is UTF-16: save it as UTF-8 to check it"


def test_decimals_and_dates_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    price = pa.array([1, None, 3], pa.decimal128(5, 2))
    dates = pa.array([0, 1, 2], pa.date32())
    pq.write_table(pa.table({"price": price, "day": dates, "ok": [True, None, False]}), path)
    report = checked(path)
    assert [(i.name, i.troubles[0].text) for i in report.bad] == [("price", "1 missing")]
    assert report.left_out == ("day",)


@pytest.mark.parametrize("ending", [".pt", ".npz"])
def test_an_entry_beyond_any_file_is_corrupt(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    info = zipfile.ZipInfo("archive/data.pkl" if ending == ".pt" else "x.npy")
    info.extra = struct.pack("<HHQ", 1, 8, 1 << 63)  # where a large archive keeps the offset
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, b"anything")
    raw = bytearray(path.read_bytes())
    offset = raw.index(b"PK\1\2") + 42
    raw[offset : offset + 4] = b"\xff" * 4
    path.write_bytes(raw)
    assert checked(path).error == "corrupt: the archive's entries lie beyond its end"
