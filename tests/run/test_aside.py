"""A second run changes none of the user's files, and finds them as the first one did."""

from __future__ import annotations

from pathlib import Path

from tests.watching.test_faults import BY_HAND, run
from tests.watching.test_policies import written

WRITES = """
import json, shutil
os.mkdir("runs")
try:
    os.mkdir("old")
except FileExistsError:
    pass
with open("log.txt", "a") as log: log.write("line\\n")
torch.save({"a": 1}, "runs/model.pt")
assert torch.load("runs/model.pt") == {"a": 1}
with open("runs/part", "x") as part: part.write("done")
os.replace("runs/part", "runs/whole")
assert sorted(os.listdir("runs")) == ["model.pt", "whole"]
assert open("runs/whole").read() == "done" and not os.path.exists("runs/part")
assert os.path.exists("old/notes")
if not os.path.exists("kept"): open("kept", "w").write("first")
else: raise RuntimeError("resumed")
shutil.rmtree("scrap", ignore_errors=True)
assert not os.path.exists("scrap")
os.mkdir("scrap"); open("scrap/new", "w").close()
assert os.listdir("scrap") == ["new"]
torch.manual_seed(0)
"""


def test_no_line_is_appended_twice_and_what_the_first_run_made_is_not_there(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        BY_HAND.replace("torch.manual_seed(0)", WRITES).replace("SECOND", ""),
    )
    (tmp_path / "log.txt").write_text("before\n")
    for name in ("old", "scrap"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes").write_text("mine")
    result = run(script, "--json", "report.json")
    assert result.returncode == 3
    assert "running the script again" in result.stderr
    assert '"reproduced": "rerun"' in (tmp_path / "report.json").read_text(), result.stderr
    assert (tmp_path / "log.txt").read_text() == "before\nline\n"
    assert (tmp_path / "runs" / "whole").read_text() == "done"
    assert (tmp_path / "old" / "notes").read_text() == "mine"
    assert [p.name for p in (tmp_path / "scrap").iterdir()] == ["new"]
