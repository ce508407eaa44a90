"""`whynan lint` as a user meets it: files, folders, notebooks, formats, settings, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from whynan.cli import commands
from whynan.errors import UsageError

BAD = "import torch\n\n\ndef f(x):\n    return torch.log(torch.softmax(x, dim=-1))\n"
GOOD = "import torch\n\n\ndef f(x):\n    return torch.log_softmax(x, dim=-1)\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "bad.py").write_text(BAD)
    (tmp_path / "pkg" / "good.py").write_text(GOOD)
    return tmp_path


def lint(*args: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(commands, ["lint", *args], input=stdin, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


def code(result: Result) -> int:
    return int(result.return_value or 0)


def test_finding_is_drawn_with_its_place_source_and_remedy(tree: Path) -> None:
    result = lint("pkg")
    assert code(result) == 1
    assert result.output == (
        "error[N012]: `log` of a softmax is -inf with a NaN gradient once two logits\n"
        "  differ by 104 (18 in float16) (log-softmax)\n"
        " --> pkg/bad.py:5:12\n"
        "  |\n"
        "5 |     return torch.log(torch.softmax(x, dim=-1))\n"
        "  |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "help: F.log_softmax(x, dim) takes the logarithm before anything is rounded to 0\n"
        "  = fix: torch.nn.functional.log_softmax(x, dim=-1) (applied by --fix)\n"
        "\n"
        "1 error in 2 files; 1 can be fixed by --fix\n"
    )


def test_clean_files_exit_0_and_say_so(tree: Path) -> None:
    result = lint("pkg/good.py")
    assert code(result) == 0
    assert result.output == "nothing unstable found in 1 file\n"


def test_fix_rewrites_the_file_and_diff_only_shows(tree: Path) -> None:
    file = tree / "pkg" / "bad.py"
    shown = lint("--diff", "pkg")
    assert code(shown) == 1
    assert file.read_text() == BAD
    assert "-    return torch.log(torch.softmax(x, dim=-1))\n" in shown.output
    assert "+    return torch.nn.functional.log_softmax(x, dim=-1)\n" in shown.output
    os.chmod(file, 0o750)
    result = lint("--fix", "pkg")
    assert code(result) == 0
    assert result.output == "1 fixed; nothing unstable found in 2 files\n"
    assert "torch.nn.functional.log_softmax(x, dim=-1)" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o750
    assert sorted(p.name for p in (tree / "pkg").iterdir()) == ["bad.py", "good.py"]


def test_fix_keeps_the_encoding_of_the_file(tree: Path) -> None:
    file = tree / "latin.py"
    file.write_bytes(b"# -*- coding: latin-1 -*-\nimport torch\ns = '\xe9'; y = torch.log(1 + x)\n")
    lint("--fix", "latin.py")
    assert file.read_bytes() == b"# -*- coding: latin-1 -*-\nimport torch\ns = '\xe9'; y = torch.log1p(x)\n"  # fmt: skip
    marked = tree / "marked.py"
    marked.write_bytes(b"\xef\xbb\xbfimport torch\ny = torch.log(1 + x)\n")
    lint("--fix", "marked.py")
    assert marked.read_bytes() == b"\xef\xbb\xbfimport torch\ny = torch.log1p(x)\n"


def test_comment_allows_one_pattern_on_its_line_or_the_line_below(tree: Path) -> None:
    file = tree / "pkg" / "bad.py"
    line = "torch.log(torch.softmax(x, -1))"
    file.write_text(f"import torch\ny = {line}  # whynan: allow[log-softmax]\nz = {line}\n")
    assert ":3:5" in lint("pkg").output
    assert "1 error" in lint("pkg").output
    file.write_text(
        f"import torch\n# known: whynan: allow[N012]\n# whynan: allow[N012]\ny = {line}\n"
    )
    assert code(lint("pkg")) == 0
    file.write_text(f"import torch\ny = {line}  # whynan: allow[div-norm]\n")
    assert code(lint("pkg")) == 1
    file.write_text(f"# whynan: allow-file[log-softmax]\nimport torch\ny = {line}\n")
    assert code(lint("pkg")) == 0


def test_settings_come_from_the_nearest_pyproject(tree: Path) -> None:
    settings = tree / "pyproject.toml"
    settings.write_text('[tool.whynan.lint]\nignore = ["log-softmax"]\n')
    assert code(lint("pkg")) == 0
    settings.write_text('[tool.whynan.lint]\nexclude = ["bad.py"]\n')
    assert "in 1 file" in lint("pkg").output
    assert code(lint("pkg/bad.py")) == 1  # a file named on the command line is always checked
    settings.write_text('[tool.whynan.lint]\nselect = ["div-norm"]\n')
    assert code(lint("pkg")) == 0
    assert code(lint("--select", "log-softmax", "pkg")) == 1
    settings.write_text('[tool.whynan.lint.per-file-ignores]\n"pkg/*.py" = ["N012"]\n')
    assert code(lint("pkg")) == 0
    (tree / "bad.py").write_text(BAD)
    assert code(lint(".")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[tool.whynan.lint]\nselct = ["x"]\n', "no 'selct'"),
        ('[tool.whynan.lint]\nselect = "x"\n', "list of strings"),
        ('[tool.whynan.lint]\nselect = ["log-sofmax"]\n', "did you mean log-softmax"),
        ("[tool.whynan.lint\n", "pyproject.toml"),
    ],
)
def test_wrong_settings_are_wrong_usage(tree: Path, text: str, message: str) -> None:
    (tree / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        lint("pkg")


def test_wrong_usage_exits_with_2(tree: Path) -> None:
    for args in (["nowhere.py"], ["--select", "nonsense", "pkg"], [], ["--fix", "--diff", "pkg"]):
        done = subprocess.run([sys.executable, "-m", "whynan", "lint", *args], capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 2, args
        assert done.stderr


def test_select_and_ignore_take_names_codes_and_severities(tree: Path) -> None:
    (tree / "two.py").write_text(BAD + "\n\ndef g(x):\n    return torch.exp(x) - 1\n")
    assert "log-softmax" not in lint("--select", "info", "two.py").output
    assert "expm1" not in lint("--select", "N012,div-norm", "two.py").output
    assert code(lint("--ignore", "N012", "--ignore", "expm1", "two.py")) == 0
    (tree / "clip.py").write_text("import torch\ntorch.nn.utils.clip_grad_norm_(p, 1.0)\n")
    assert code(lint("clip.py")) == 0
    assert code(lint("--select", "all", "clip.py")) == 1
    assert code(lint("--select", "default,clip-nonfinite", "clip.py")) == 1


def test_syntax_error_is_reported_and_the_others_are_checked(tree: Path) -> None:
    (tree / "pkg" / "broken.py").write_text("import torch\nx = torch.log((\n")
    (tree / "pkg" / "bytes.py").write_bytes(b"import torch\nx = '\xff\xfe'\n")
    result = lint("pkg")
    assert code(result) == 1
    assert "pkg/broken.py:2:" in result.output
    assert "cannot be read as Python" in result.output
    assert "log-softmax" in result.output
    assert "pkg/bytes.py was not read" in result.output


def test_json_names_every_fact(tree: Path) -> None:
    result = lint("--format", "json", "pkg")
    report = json.loads(result.output)
    assert report["schema"] == "whynan.lint/1"
    assert report["files"] == 2
    (found,) = report["findings"]
    assert found == found | {
        "path": "pkg/bad.py", "line": 5, "column": 11, "end_line": 5, "end_column": 46,
        "code": "N012", "slug": "log-softmax", "severity": "error", "cell": None,
    }  # fmt: skip
    assert found["fix"]["text"] == "torch.nn.functional.log_softmax(x, dim=-1)"


def test_sarif_describes_rules_results_and_fixes(tree: Path) -> None:
    report = json.loads(lint("--format", "sarif", "pkg").output)
    assert report["version"] == "2.1.0"
    (run,) = report["runs"]
    (result,) = run["results"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert rule["id"] == result["ruleId"] == "N012/log-softmax"
    assert result["level"] == "error"
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 5, "startColumn": 12, "endLine": 5, "endColumn": 47}
    replacement = result["fixes"][0]["artifactChanges"][0]["replacements"][0]
    assert replacement["insertedContent"]["text"].startswith("torch.nn.functional.log_softmax(")


def test_github_annotations_escape_what_would_end_them(tree: Path) -> None:
    (tree / "a,b:c.py").write_text(BAD)
    (line,) = lint("--format", "github", "a,b:c.py").output.splitlines()
    assert line.startswith("::error file=a%2Cb%3Ac.py,line=5,col=12,endLine=5,endColumn=47,title=N012 log-softmax::")  # fmt: skip


def test_statistics_count_by_pattern(tree: Path) -> None:
    (tree / "pkg" / "more.py").write_text(BAD + "z = torch.exp(f(1)) - 1\n")
    lines = lint("--statistics", "pkg").output.splitlines()
    assert [line.split() for line in lines] == [
        ["2", "N012", "log-softmax", "error"],
        ["1", "N071", "expm1", "info"],
    ]


def test_standard_input_is_checked_and_fixed(tree: Path) -> None:
    assert "stdin.py:5:12" in lint("-", stdin=BAD).output
    assert "model.py:5:12" in lint("--stdin-filename", "model.py", "-", stdin=BAD).output
    result = lint("--fix", "-", stdin=BAD)
    assert code(result) == 0
    assert result.output == BAD.replace("torch.log(torch.softmax(x, dim=-1))", "torch.nn.functional.log_softmax(x, dim=-1)")  # fmt: skip


def cell(*lines: str, kind: str = "code") -> dict[str, object]:
    body = "\n".join(lines).splitlines(keepends=True)
    base: dict[str, object] = {"cell_type": kind, "metadata": {}, "source": body}
    return base | ({"outputs": [], "execution_count": None} if kind == "code" else {})


def test_notebook_cells_are_one_program_and_are_fixed_in_place(tree: Path) -> None:
    cells = [
        cell("# Größe: torch.log(torch.softmax(x, -1))", kind="markdown"),
        cell("%matplotlib inline", "import torch", "!nvidia-smi", "x?"),
        cell("%%bash", "torch (((("),
        cell("p = torch.softmax(x, -1)"),
        cell("", "y = torch.log(p)", "print(y)"),
    ]
    document = {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}  # fmt: skip
    file = tree / "study.ipynb"
    raw = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    file.write_text(raw, encoding="utf-8")
    assert "--> study.ipynb:cell 5:2:5" in lint(".").output
    (found,) = json.loads(lint("--format", "json", "study.ipynb").output)["findings"]
    assert (found["cell"], found["line"]) == (5, 2)
    assert "+y = torch.nn.functional.log_softmax(x, dim=-1)" in lint("--diff", "study.ipynb").output
    assert code(lint("--fix", "study.ipynb")) == 0
    after = file.read_text(encoding="utf-8")
    expected = raw.replace("y = torch.log(p)", "y = torch.nn.functional.log_softmax(x, dim=-1)")
    assert after == expected


def test_damaged_notebook_is_reported(tree: Path) -> None:
    (tree / "torn.ipynb").write_text('{"cells": [torch')
    result = lint(".")
    assert code(result) == 1
    assert "torn.ipynb was not read: not a notebook" in result.output


def test_hidden_folders_and_environments_are_skipped(tree: Path) -> None:
    for folder in (".hidden", "venv", "__pycache__", "node_modules"):
        (tree / folder).mkdir()
        (tree / folder / "bad.py").write_text(BAD)
    assert "in 2 files" in lint(".").output
    assert code(lint(".hidden/bad.py")) == 1


def test_many_files_are_shared_among_processes_with_the_same_answer(tree: Path) -> None:
    many = tree / "many"
    many.mkdir()
    for n in range(210):
        (many / f"m{n:03}.py").write_text(BAD if n % 70 == 0 else GOOD)
    alone, shared = (
        subprocess.run(
            [sys.executable, "-m", "whynan", "lint", "--jobs", jobs, "--format", "json", "many"],
            capture_output=True,
            text=True,
        ).stdout
        for jobs in ("1", "2")
    )
    assert shared == alone
    assert len(json.loads(alone)["findings"]) == 3


def test_neither_torch_nor_libcst_is_imported(tree: Path) -> None:
    for args in (["pkg"], ["--diff", "pkg"], ["--format", "sarif", "pkg"]):
        script = (
            "import sys; from whynan.cli import commands\n"
            f"commands(['lint', *{args!r}], standalone_mode=False)\n"
            "sys.exit(bool({'torch', 'numpy', 'libcst', 'rich'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_explain_shows_lint_pages_beside_those_of_the_run() -> None:
    run = CliRunner().invoke(commands, ["explain", "N012"], standalone_mode=False).output
    assert "log-of-nonpositive" in run
    assert "log-softmax" in run
    page = CliRunner().invoke(commands, ["explain", "ce_softmax"], standalone_mode=False).output
    assert page.startswith("N061 ce-softmax (lint, error")
    assert "When it is fine" in page
    listed = CliRunner().invoke(commands, ["explain", "--list"], standalone_mode=False).output
    assert "N090  opaque-op" in listed
    assert "N041  empty-read" in listed


@pytest.mark.parametrize("text", ["def f(:\n", "print 'python 2'\n", "import torch\ndef f(:\n"])
def test_a_named_file_that_cannot_be_parsed_is_always_told(tree: Path, text: str) -> None:
    (tree / "broken.py").write_text(text)
    for result in (lint("broken.py"), lint("--fix", "broken.py"), lint("-", stdin=text)):
        assert "N000" in result.output
        assert code(result) == 1


def test_a_named_notebook_that_is_none_is_always_told(tree: Path) -> None:
    (tree / "broken.ipynb").write_text("{")
    result = lint("broken.ipynb")
    assert "was not read" in result.output
    assert code(result) == 1


def test_folders_are_searched_without_parsing_what_is_irrelevant(tree: Path) -> None:
    (tree / "old").mkdir()
    (tree / "old" / "broken.py").write_text("print 'python 2'\n")
    assert code(lint("old")) == 0
