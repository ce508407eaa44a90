"""`--format github|sarif|junit`: what a run, a recording, files and lint say to services."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from whynan.cli import commands

BAD = "import torch\nprint('begins')\nprint(torch.log(torch.zeros(2)))\n"
GOOD = "import torch\nprint(torch.log(torch.ones(2)))\n"


def whynan(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "whynan", *args]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "good.py").write_text(GOOD)
    torch.save({"w": torch.tensor([1.0, float("nan")])}, tmp_path / "bad.pt")
    torch.save({"w": torch.ones(2)}, tmp_path / "good.pt")
    return tmp_path


def test_a_run_annotates_the_line_for_github(folder: Path) -> None:
    done = whynan("run", "--format", "github", "bad.py", cwd=folder)
    assert done.returncode == 3
    assert done.stdout.startswith("begins\ntensor(")  # the script's own, and nothing else
    assert "::" not in done.stdout
    line = next(line for line in done.stderr.splitlines() if line.startswith("::"))
    assert line.startswith("::error file=bad.py,line=3,col=7,endLine=3,endColumn=32,title=N012 ")
    assert "`log` was given" in line
    assert "To change: " in line


def test_a_healthy_run_annotates_nothing(folder: Path) -> None:
    done = whynan("run", "--format", "github", "good.py", cwd=folder)
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_run_leaves_sarif_for_code_scanning(folder: Path) -> None:
    done = whynan("run", "--format", "sarif", "bad.py", cwd=folder)
    assert "whynan: wrote whynan.sarif\n" in done.stderr
    run = json.loads((folder / "whynan.sarif").read_text())["runs"][0]
    result = run["results"][0]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "bad.py"
    assert place["region"] == {"startLine": 3, "startColumn": 7, "endLine": 3, "endColumn": 32}


def test_a_healthy_run_takes_an_old_finding_back(folder: Path) -> None:
    whynan("run", "good.py", cwd=folder, WHYNAN_FORMAT="sarif", WHYNAN_OUTPUT="found.sarif")
    assert json.loads((folder / "found.sarif").read_text())["runs"][0]["results"] == []


def test_a_run_is_a_test_for_junit(folder: Path) -> None:
    whynan("run", "--format", "junit", "bad.py", cwd=folder)
    suite = ElementTree.parse(folder / "whynan-junit.xml").getroot()[0]
    assert suite.attrib["failures"] == "1"
    failure = suite[0][0]
    assert "`log` was given" in failure.attrib["message"]
    assert "all 2 values are -inf" in (failure.text or "")
    whynan("run", "--format", "junit", "good.py", cwd=folder)
    suite = ElementTree.parse(folder / "whynan-junit.xml").getroot()[0]
    assert suite.attrib["failures"] == "0"
    assert [case.attrib["name"] for case in suite] == ["good.py"]


def test_a_recording_says_the_same(folder: Path) -> None:
    whynan("run", "--recording", "r", "--format", "sarif", "bad.py", cwd=folder)
    done = whynan("report", "--format", "sarif", "r", cwd=folder)
    assert json.loads(done.stdout) == json.loads((folder / "whynan.sarif").read_text())


def test_a_file_to_write_without_a_format_is_asked_about(folder: Path) -> None:
    done = whynan("run", "--output", "x", "good.py", cwd=folder)
    assert done.returncode == 2
    assert "--output needs --format github, sarif or junit" in done.stderr


def test_checked_files_are_annotated(folder: Path) -> None:
    done = whynan("check", "--format", "github", "bad.pt", "good.pt", cwd=folder)
    assert done.returncode == 3
    assert done.stdout.startswith("::error file=bad.pt,title=bad-values::w: 2 float32")
    assert done.stdout.count("\n") == 1


def test_checked_files_are_tests_for_junit(folder: Path) -> None:
    (folder / "cut.npy").write_bytes(b"\x93NUMPY")
    done = whynan("check", "--format", "junit", ".", cwd=folder)
    suite = ElementTree.fromstring(done.stdout)[0]
    found = {case.attrib["name"]: len(case) for case in suite}
    assert found == {"bad.pt bad-values": 1, "cut.npy not-checked": 1, "good.pt": 0}


def test_checked_files_are_results_in_sarif(folder: Path) -> None:
    done = whynan("check", "--format", "sarif", "bad.pt", cwd=folder)
    results = json.loads(done.stdout)["runs"][0]["results"]
    assert [r["ruleId"] for r in results] == ["bad-values"]


def test_linted_files_are_tests_for_junit(folder: Path) -> None:
    (folder / "soft.py").write_text("import torch\n\ndef f(x):\n    return x.softmax(-1).log()\n")
    done = whynan("lint", "--format", "junit", "soft.py", "good.py", cwd=folder)
    suite = ElementTree.fromstring(done.stdout)[0]
    found = {case.attrib["name"]: len(case) for case in suite}
    assert found == {"soft.py:4 N012 log-softmax": 1, "good.py": 0}


def test_json_stands_alone_on_standard_output(folder: Path) -> None:
    done = whynan("run", "--json", "-", "bad.py", cwd=folder)
    assert done.returncode == 3
    assert json.loads(done.stdout)["anomalies"][0]["location"]["line"] == 3
    assert done.stderr.startswith("begins\n")
    assert not (folder / "-").exists()


def test_json_comes_also_where_the_program_leaves_at_once(folder: Path) -> None:
    (folder / "leaves.py").write_text(BAD + "import os\nos._exit(0)\n")
    done = whynan("run", "--json", "-", "leaves.py", cwd=folder)
    assert json.loads(done.stdout)["outcome"] == "anomaly"


def test_json_of_a_healthy_program_has_its_exit_code(folder: Path) -> None:
    (folder / "ends.py").write_text(GOOD + "raise SystemExit(7)\n")
    done = whynan("run", "--json", "-", "ends.py", cwd=folder)
    assert done.returncode == 7
    assert json.loads(done.stdout)["outcome"] == "clean"


def test_json_of_a_change_and_of_experiments_stands_alone(folder: Path) -> None:
    done = whynan("run", "--fix", "--json", "-", "bad.py", cwd=folder)
    assert json.loads(done.stdout)["anomalies"][0]["fixes"][0]["verdict"] != ""
    done = whynan("fix", "--json", "-", "bad.py", cwd=folder)
    assert json.loads(done.stdout)["schema"] == "whynan.report/1"
    assert done.stderr.startswith("begins\n")
    done = whynan("whatif", "--json", "-", "--budget", "5", "good.py", cwd=folder)
    assert json.loads(done.stdout)["schema"] == "whynan.whatif/1"


@pytest.mark.parametrize("command", ["fix", "check", "report", "whatif", "doctor"])
def test_every_option_has_a_variable_of_its_own_name(command: str) -> None:
    options = {
        o.opts[0]: o.envvar for o in commands.commands[command].params if o.opts[0] == "--json"
    }
    assert options == {"--json": f"WHYNAN_{command.upper()}_JSON"}
