"""Files of every kind: what is bad in them is found at its place, whatever the layout."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.checking.files_for_tests import bad_names, checked, sample, saved
from whynan.checking.compare import compare
from whynan.checking.file_text import exit_code
from whynan.checking.files import find_files
from whynan.errors import UsageError


def first_bad(path: Path) -> dict[str, tuple[int, ...] | None]:
    report = checked(path)
    assert report.error is None, report.error
    return {item.name: item.summary.first_bad for item in report.bad}


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_torch_files_of_both_formats(tmp_path: Path, zipped: bool) -> None:
    x = sample()
    tensors = {
        "plain": x,
        "transposed": x.T,
        "strided": x[:, ::2],
        "window": x[2:5, 3:6],
        "expanded": x[3].expand(7, 30),
        "half": x.half(),
        "bfloat16": x.bfloat16(),
        "float8": x.to(torch.float8_e4m3fn),
        "double": x.double(),
        "complex": torch.complex(x, x),
        "scalar": torch.tensor(math.nan),
        "parameter": torch.nn.Parameter(x),
        "good": torch.ones(3),
        "integers": torch.arange(4),
        "booleans": torch.tensor([True, False]),
        "empty": torch.empty(0, 3),
    }
    path = saved(tmp_path / "x.pt", tensors, _use_new_zipfile_serialization=zipped)
    assert first_bad(path) == {
        "plain": (3, 4), "transposed": (4, 3), "strided": (3, 2), "window": (1, 1),
        "expanded": (0, 4), "half": (3, 4), "bfloat16": (3, 4), "float8": (3, 4),
        "double": (3, 4), "complex": (3, 4), "scalar": (), "parameter": (3, 4),
    }  # fmt: skip
    shapes = {item.name: item.summary.stats.shape for item in checked(path).items}
    assert shapes == {name: tuple(t.shape) for name, t in tensors.items()}


def test_statistics_from_a_file_are_those_of_the_tensor(tmp_path: Path) -> None:
    x = torch.randn(700, 900, generator=torch.Generator().manual_seed(1)) * 3 + 5
    (item,) = checked(saved(tmp_path / "x.pt", {"x": x})).items
    assert item.summary.mean == pytest.approx(x.double().mean().item(), rel=1e-5)
    assert item.summary.std == pytest.approx(x.double().std(correction=0).item(), rel=1e-5)
    assert (item.summary.stats.min, item.summary.stats.max) == (x.min().item(), x.max().item())


class Anything:
    """A class that no reader knows."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight


def test_whole_models_and_unknown_objects_are_looked_into(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    with torch.no_grad():
        model.get_parameter("0.weight")[1, 2] = math.inf
        optimizer.state[model.get_parameter("0.bias")]["exp_avg"][0] = math.nan
    everything = {"model": model, "optimizer": optimizer.state_dict(), "own": Anything(sample())}
    report = checked(saved(tmp_path / "x.ckpt", everything))
    assert bad_names(report) == ["model.0.weight", "optimizer.state.1.exp_avg", "own.weight"]


def test_numpy_arrays_in_a_pickle(tmp_path: Path) -> None:
    arrays = {"c": np.array([1.0, np.nan]), "f": np.asfortranarray(sample().numpy())}
    assert first_bad(saved(tmp_path / "x.pt", arrays)) == {"c": (1,), "f": (3, 4)}
    plain = tmp_path / "y.bin"
    for protocol in (2, 4, 5):
        plain.write_bytes(pickle.dumps(arrays, protocol))
        assert first_bad(plain) == {"c": (1,), "f": (3, 4)}


def test_safetensors(tmp_path: Path) -> None:
    x = sample()
    types = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float64]
    tensors = {str(t): x.to(t) for t in types} | {"good": torch.arange(3)}
    path = tmp_path / "x.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    assert first_bad(path) == {str(t): (3, 4) for t in types}


def test_numpy_files(tmp_path: Path) -> None:
    x = sample().numpy()
    for name, array in {"c": x, "f": np.asfortranarray(x), "h": x.astype(">f8")}.items():
        assert first_bad(saved(tmp_path / f"{name}.npy", array)) == {"": (3, 4)}
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(3))
    np.savez_compressed(tmp_path / "b.npz", x=x, y=np.arange(3))
    assert first_bad(tmp_path / "a.npz") == first_bad(tmp_path / "b.npz") == {"x": (3, 4)}
    fields = np.array([(1, 2.0), (2, np.inf)], [("i", "i4"), ("v", ">f8")])
    assert first_bad(saved(tmp_path / "s.npy", fields)) == {"v": (1,)}


def test_remarks_about_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors = {
        "fine": torch.randn(100, 100) * 0.02,
        "dead": torch.zeros(10),
        "overflows": torch.tensor([1e5, 1.0, 2.0]),
        "wide": torch.randn(1000) * 500,
        "double": torch.tensor([1e300, 1.0], dtype=torch.float64),
    }
    path = saved(tmp_path / "x.pt", tensors)
    kinds = {i.name: {t.kind for t in i.troubles} for i in checked(path).items}
    assert kinds == {
        "fine": set(), "dead": {"constant"}, "overflows": {"float16", "scale"},
        "wide": {"scale"}, "double": {"float16", "bfloat16"},
    }  # fmt: skip
    assert not checked(path).bad


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{i},{i * 0.5},{i % 7},x,7" for i in range(300)]
    rows[10] = "10,,3,x,7"
    rows[20] = "20,inf,3,x,7"
    rows[30] = "30,1.5,900000000,,7"
    path.write_text("id,half,third,text,same\n" + "\n".join(rows))
    report = checked(path)
    found = {i.name: [t.text for t in i.troubles] for i in report.items if i.troubles}
    assert bad_names(report) == ["half"]
    assert found["half"] == ["1 missing", "1 inf (first at [20])"]
    assert found["same"] == ["constant 7"]
    assert "unscaled: reaches 9e+08" in found["third"]
    assert "text" not in {i.name for i in report.items}


@pytest.mark.parametrize("mark", [";", "|", "\t"])
def test_a_table_may_be_parted_by_something_else(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3,\n".replace(",", mark))
    assert [(i.name, len(i.faults)) for i in checked(path).items] == [("a", 0), ("b", 1)]


def test_what_is_no_array_in_an_archive_is_no_all_clear(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones(3))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("inner.npz", b"anything")
    assert checked(path).unread == (("inner.npz", "no array: unpack it to check it"),)
    assert exit_code([checked(path)]) == 2


def test_commas_in_a_quoted_name_are_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('"' + "a," * 30_000 + '",b\n1,2\n3,4\n')
    assert len(checked(path).items) == 2


def test_columns_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,a,b\n1,,x\n2,5,y\n")
    report = checked(path)
    assert [(i.name, len(i.faults)) for i in report.items] == [("a", 0), ("a", 1)]


@pytest.mark.parametrize("at", [10, 290_000], ids=["near", "far"])
def test_words_among_numbers_in_a_csv_are_counted(tmp_path: Path, at: int) -> None:
    path = tmp_path / "t.tsv"
    rows = [f"{i + 1_000_000}\t{i * 0.25}" for i in range(300_000)]  # more than one block
    rows[at] = "oops\t1e5"
    rows[at + 1] = "\t-3"
    path.write_text("a\tb\n" + "\n".join(rows))
    report = checked(path)
    assert bad_names(report) == ["a"]
    assert [t.text for t in report.bad[0].faults] == ["1 missing", "1 not a number, such as 'oops'"]
    assert report.items[1].summary.stats.count == 300_000


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = {"a": [1.0, math.nan], "n": [1, None], "v": [[1.0, math.inf], []], "s": ["x", "y"], "g": [1, 2]}  # fmt: skip
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    report = checked(tmp_path / "t.parquet")
    assert {i.name: [t.kind for t in i.faults] for i in report.bad} == {"a": ["nan"], "n": ["missing"], "v": ["inf"]}  # fmt: skip


def test_sharded_checkpoint(tmp_path: Path) -> None:
    save_file({"a": sample()}, tmp_path / "m-1.safetensors")
    save_file({"b": torch.ones(3)}, tmp_path / "m-2.safetensors")
    index = tmp_path / "m.safetensors.index.json"
    shards = {"a": "m-1.safetensors", "b": "m-2.safetensors"}
    index.write_text(json.dumps({"weight_map": shards}))
    assert [p.name for p in find_files([index])] == [index.name, *shards.values()]
    assert checked(index).error is None
    index.write_text(json.dumps({"weight_map": shards | {"c": "m-2.safetensors"}}))
    assert checked(index).error == "m-2.safetensors lacks 1 tensors, such as c"
    index.write_text(json.dumps({"weight_map": shards | {"c": "m-3.safetensors"}}))
    assert checked(index).error == "its part m-3.safetensors is missing, with 1 tensors"
    index.write_text(json.dumps({"weight_map": {"a": "../m-1.safetensors"}}))
    assert "no table `weight_map` of file names" in (checked(index).error or "")


def test_folders_and_wrong_names(tmp_path: Path) -> None:
    saved(tmp_path / "b.npy", np.ones(2))
    (tmp_path / "sub").mkdir()
    saved(tmp_path / "sub" / "a.pt", {})
    (tmp_path / "notes.txt").write_text("x")
    assert [p.name for p in find_files([tmp_path])] == ["b.npy", "a.pt"]
    for wrong, message in {"none.pt": "no such file", "notes.txt": "unknown kind of file"}.items():
        with pytest.raises(UsageError, match=message):
            find_files([tmp_path / wrong])


def test_what_changed_between_two_checkpoints(tmp_path: Path) -> None:
    old = {"a": torch.ones(4), "b": torch.ones(4), "c": torch.ones(4), "gone": torch.ones(1)}
    new = {"a": torch.tensor([1.0, math.nan, 1, 1]), "b": torch.full((4,), 50.0), "c": torch.ones(5), "new": torch.ones(1)}  # fmt: skip
    found = compare(
        [checked(saved(tmp_path / "new.pt", new))], [checked(saved(tmp_path / "old.pt", old))]
    )
    assert found.went_bad == ("a",)
    assert found.grew == (("b", 1.0, 50.0),)
    assert (found.reshaped, found.added, found.removed) == (("c",), ("new",), ("gone",))
    assert found.lines()[:2] == ["  went bad since OLD: a", "  grew 50 x: b, rms 1 to 50"]


READ_LARGE = """
import resource, sys
from pathlib import Path
from whynan.checking.files import check_file
check_file(Path(sys.argv[1]), lambda size: None)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = check_file(Path(sys.argv[2]), lambda size: None)
assert report.error is None, report.error
assert report.bad
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("ending", [".safetensors", ".pt", ".npy"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, ending: str) -> None:
    def write(path: Path, n: int) -> Path:
        x = torch.ones(n)
        x[-1] = math.nan
        if ending == ".safetensors":
            save_file({"x": x}, path)
        else:
            saved(path, x.numpy() if ending == ".npy" else {"x": x})
        return path

    small, large = (
        write(tmp_path / f"s{ending}", 5_000_000),
        write(tmp_path / f"l{ending}", 30_000_000),
    )
    done = subprocess.run(
        [sys.executable, "-c", READ_LARGE, small, large], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4_000  # kilobytes, for 100 MB more


def run_cli(*args: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "whynan", "check", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True)


def test_command_line(tmp_path: Path) -> None:
    good = saved(tmp_path / "good.pt", {"w": torch.randn(3, 3), "b": torch.randn(3)})
    bad = saved(tmp_path / "bad.pt", {"w": torch.randn(3, 3), "b": torch.tensor([1, math.nan, 2])})
    broken = tmp_path / "broken.npy"
    broken.write_bytes(b"")
    clean = run_cli(good)
    assert (clean.returncode, clean.stdout) == (
        0,
        f"{good}: 2 tensors, 12 values: no NaN, no Inf\n",
    )
    found = run_cli(bad, "--against", good, "--json", tmp_path / "r.json")
    assert found.returncode == 3
    assert (
        "  bad   b: 3 float32  in [1, 2]  mean 1.5, std 0.5  | 1 NaN (first at [1])" in found.stdout
    )
    assert "  went bad since OLD: b" in found.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["schema"] == "whynan.check/1"
    assert report["outcome"] == "bad"
    assert report["against"]["went_bad"] == ["b"]
    item = report["files"][0]["items"][1]
    assert (item["name"], item["nan"], item["first_bad"]) == ("b", 1, [1])
    unread = run_cli(good, broken)
    assert (unread.returncode, unread.stderr) == (2, f"{broken}: not checked: empty\n")
    assert run_cli(broken, bad).returncode == 3
    assert run_cli(tmp_path / "none.pt").returncode == 2
    assert json.loads(run_cli(good, "--json", "-").stdout)["outcome"] == "clean"
    assert "  ok    w: 3x3 float32" in run_cli(good, "-v").stdout
