"""A real notebook, executed by a real kernel: the report stands under the cell."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = {
    "load": "%load_ext whynan",
    "define": "import torch\ndef entropy(p):\n    return -(p * torch.log(p)).sum()",
    "harm": "%%whynan\np = torch.tensor([0.0, 1.0])\nprint('before')\nh = entropy(p)\nprint(h.item())\nprint('after')",
    "next": "p.tolist()",
    "healthy": "%%whynan\nq = torch.ones(2) / 2\nprint(entropy(q).item())\n'last value'",
    "own line": "%%whynan\n\nz = torch.zeros(2)\n\nprint((z / z).sum().item())",
    "goes on": "%%whynan warn\nprint(torch.zeros(1).log().item())\nprint('after')",
    "raises": "%%whynan\nraise ValueError('its own')",
    "raises of NaN": "%%whynan\ntorch.multinomial(torch.zeros(2) / 0, 1)",
    "usage": "%%whynan sometimes\n1",
    "syntax": "%%whynan\nx = = 1",
    "stats": "import whynan\nwhynan.TensorStats(shape=(2,), dtype='float32', nan=1)",
    "traced": "with whynan.trace() as r:\n    low = torch.zeros(1).log()\nwhynan.diagnose(r)",
    "stale": "w = torch.zeros(2, requires_grad=True)\nw.sqrt().sum().backward()",
    "watched": "m = torch.nn.Linear(2, 1)\nwith whynan.watch(m, torch.optim.SGD(m.parameters(), lr=0.1)) as o:\n    (m(torch.ones(3, 2)) * 0).pow(2).sum().sqrt().backward()\n    torch.optim.SGD(m.parameters(), lr=0.1).step()",
    "differentiates": "%%whynan\ng, = torch.autograd.grad((w + 1).sum(), w)\nprint(g.sum().item())",
    "left as found": "from torch.utils._python_dispatch import _get_current_dispatch_mode as mode\nmode() is None",
}  # fmt: skip


@pytest.fixture(scope="module")
def cells() -> dict[str, list[Any]]:
    notebook: Any = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    NotebookClient(notebook, timeout=120, allow_errors=True).execute()
    outputs = [cell.outputs for cell in notebook.cells]
    return dict(zip(CELLS, outputs, strict=True))


def printed(outputs: list[Any]) -> str:
    return "".join(o.text for o in outputs if o.output_type == "stream")


def shown(outputs: list[Any], kind: str = "text/plain") -> str:
    return "".join(o.data.get(kind, "") for o in outputs if "data" in o)


def errors(outputs: list[Any]) -> list[str]:
    return [o.ename for o in outputs if o.output_type == "error"]


def test_the_report_names_the_line_of_the_cell_that_made_it(cells: dict[str, list[Any]]) -> None:
    text = shown(cells["harm"])
    assert "because `log` was given" in text
    assert " --> In[2]:3:18" in text
    assert "In[3]:2" in text  # where the zero comes from
    assert "3 + return -torch.xlogy(p, p).sum()" in text
    page = shown(cells["harm"], "text/html")
    assert "torch.log(p)" in page
    assert "--- a/In[2]" in page
    assert "<code>%%whynan</code>" in page  # as typed


def test_the_last_word_of_a_cell_is_told_at_its_end(cells: dict[str, list[Any]]) -> None:
    assert printed(cells["harm"]) == "before\nnan\nafter\n"
    assert errors(cells["harm"]) == []
    assert shown(cells["next"]) == "[0.0, 1.0]"


def test_lines_are_counted_as_in_the_cell(cells: dict[str, list[Any]]) -> None:
    assert " --> In[6]:5:8" in shown(cells["own line"])


def test_a_healthy_cell_shows_its_value_and_its_health(cells: dict[str, list[Any]]) -> None:
    assert printed(cells["healthy"]).startswith("0.69")
    assert shown(cells["healthy"]).startswith("'last value'whynan: no harm found\n")


def test_a_cell_may_go_on_after_a_harm(cells: dict[str, list[Any]]) -> None:
    assert printed(cells["goes on"]) == "-inf\nafter\n"
    assert "error[N012]" in shown(cells["goes on"])


def test_the_cells_own_exception_stays_its_own(cells: dict[str, list[Any]]) -> None:
    assert errors(cells["raises"]) == ["ValueError"]
    assert shown(cells["raises"]) == ""
    assert errors(cells["raises of NaN"]) == ["RuntimeError"]
    assert "divided 0 by 0" in shown(cells["raises of NaN"])


def test_wrong_use_is_said(cells: dict[str, list[Any]]) -> None:
    assert errors(cells["usage"]) == ["UsageError"]
    assert errors(cells["syntax"]) == ["SyntaxError"]


def test_stats_are_one_line_and_a_drawing(cells: dict[str, list[Any]]) -> None:
    assert shown(cells["stats"]) == "float32 2, 1 NaN"
    assert "1 NaN" in shown(cells["stats"], "text/html")


def test_a_block_traced_in_a_cell_is_named_as_the_cell_is(cells: dict[str, list[Any]]) -> None:
    assert " --> In[13]:2:11" in shown(cells["traced"])
    assert "ipykernel" not in shown(cells["traced"], "text/html")


def test_a_watched_block_shows_the_report_and_no_frames_of_whynan(
    cells: dict[str, list[Any]],
) -> None:
    page = shown(cells["watched"], "text/html")
    assert page.count("What to change") == 1
    (error,) = (o for o in cells["watched"] if o.output_type == "error")
    assert error.ename == "AnomalyFound"
    assert len(error.traceback) == 1
    assert "has no finite gradient at 0" in error.traceback[0]


def test_a_report_under_a_cell_opens_with_the_change_and_folds_the_rest(
    cells: dict[str, list[Any]],
) -> None:
    page = shown(cells["harm"], "text/html")
    change, source, folded = (
        page.index(text) for text in ("What to change", "Source</h", '<details class="folded">')
    )
    assert change < source < folded < page.index("How it got there")
    assert "whynan fix" not in page  # there is no script to try it on
    healthy = shown(cells["healthy"], "text/html")
    assert healthy.index("no harm found") < healthy.index('<details class="folded">')


def test_a_gradient_of_an_earlier_cell_is_not_this_cells(cells: dict[str, list[Any]]) -> None:
    assert printed(cells["differentiates"]) == "2.0\n"
    assert "no harm found" in shown(cells["differentiates"])


def test_nothing_is_left_behind(cells: dict[str, list[Any]]) -> None:
    assert shown(cells["left as found"]) == "True"
