"""Comments that silence a finding, and comments that only seem to."""

from __future__ import annotations

import json

import pytest

from whynan.lint.checker import Checker
from whynan.lint.notebook import Notebook
from whynan.lint.table import patterns

LINE = "y = torch.log(torch.softmax(x, -1))"


def slugs(text: str) -> list[str]:
    return [f.slug for f in Checker(patterns()).check(f"import torch\n{text}\n", "train.py")]


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: N012",
        "# noqa:N012",
        "# NOQA: E501, N012",
        "# noqa: E501 N012",
        "# noqa: log-softmax",
        "# noqa",
        "# whynan: allow[log-softmax]",
    ],
)
def test_a_comment_on_the_line_silences_it(comment: str) -> None:
    assert slugs(f"{LINE}  {comment}") == []


@pytest.mark.parametrize("comment", ["# noqa: E501", "# noqa: N010", "# no quality"])
def test_a_comment_about_something_else_does_not(comment: str) -> None:
    assert slugs(f"{LINE}  {comment}") == ["log-softmax"]


@pytest.mark.parametrize("comment", ["# whynan: allow", "# whynan: allow[]"])
def test_an_allow_that_names_nothing_is_reported(comment: str) -> None:
    assert sorted(slugs(f"{LINE}  {comment}")) == ["log-softmax", "unknown-allow"]


@pytest.mark.parametrize("where", ["allow", "allow-file"])
def test_an_allow_of_a_name_that_does_not_exist_is_reported(where: str) -> None:
    text = f"# whynan: {where}[log-softmaks]\n{LINE}"
    assert sorted(slugs(text)) == ["log-softmax", "unknown-allow"]


def test_a_notebook_whose_shell_command_goes_on_in_the_next_line_is_linted() -> None:
    source = "!pip install \\\n    torch \\\n    numpy\nimport torch\n" + LINE
    cells = [{"cell_type": "code", "source": source, "metadata": {}, "outputs": []}]
    notebook = Notebook(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}))
    found = Checker(patterns()).check(notebook.program, "study.ipynb")
    assert [(f.slug, notebook.place(f.line)) for f in found] == [("log-softmax", (1, 5))]


def test_a_cell_that_is_no_python_does_not_hide_the_others() -> None:
    sources = [
        "pip install torch",
        "import torch\nx = torch.ones(3)\ntorch.log(torch.softmax(x, 0))",
    ]
    cells = [{"cell_type": "code", "source": s, "outputs": [], "metadata": {}} for s in sources]
    notebook = Notebook(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}))
    found = Checker(patterns()).check(notebook.program, "study.ipynb")
    assert [(f.slug, notebook.place(f.line)) for f in found] == [("log-softmax", (2, 3))]
