"""Which infinities and NaNs are the program's own, and which torch or arithmetic put in."""

from __future__ import annotations

import importlib
import linecache
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.record.test_tracer import anomalies_of, expect
from whynan.model import Site
from whynan.source.meant import names_nonfinite

FILL = float("nan")


def mirrored() -> torch.Tensor:
    matrix = torch.diag(torch.tensor([1.0, -0.5, 3.0]))
    return matrix.requires_grad_()


def test_logdet_of_a_negative_determinant_is_a_logarithm() -> None:
    def program() -> None:
        w = mirrored()
        (1 + torch.logdet(w * 1)).backward()

    expect(program, "torch.logdet", "log_nonpositive")
    found = anomalies_of(program)[0]
    assert found.finding.observed == ("the determinant of the matrix is -1.5",)
    assert "slogdet" in found.finding.fixes[0].title


def test_the_matrix_of_a_batch_is_named() -> None:
    def program() -> object:
        both = torch.stack([torch.eye(3), mirrored().detach()])
        return both.logdet().sum().item()

    expect(program, "both.logdet", "log_nonpositive")
    found = anomalies_of(program)[0]
    assert found.finding.observed == ("the determinant of the matrix at [1] is -1.5",)


def test_a_nan_that_the_program_hands_in_is_its_own() -> None:
    def selected() -> None:
        x = torch.tensor([1.0, -1.0])
        torch.where(x > 0, x, FILL).log().sum().item()

    def filled() -> None:
        x = torch.tensor([1.0, -1.0])
        x.masked_fill(x < 0, FILL).log().sum().item()

    def of_the_sign() -> None:
        sign, size = torch.linalg.slogdet(mirrored().detach())
        torch.where(sign == -1, FILL, size).exp().item()

    expect(selected, "torch.where", "nan_literal")
    expect(filled, "masked_fill", "nan_literal")
    expect(of_the_sign, "torch.where", "nan_literal")


LOWEST = float("-inf")
TINY = -1e308 * 10


class Settings:
    lowest = LOWEST
    table = {"hidden": LOWEST}  # noqa: RUF012


class Mask:
    def __init__(self, fill: float = LOWEST) -> None:
        self.fill = fill


def masked(row: torch.Tensor, fill: float = LOWEST) -> torch.Tensor:
    row[:] = fill
    return row


def by_a_name(row: torch.Tensor) -> None:
    row[:] = LOWEST  # nobody may look there


def by_an_attribute(row: torch.Tensor) -> None:
    row[:] = Settings.lowest


def by_a_key(row: torch.Tensor) -> None:
    row[:] = Settings.table["hidden"]


def by_what_an_object_was_given(row: torch.Tensor) -> None:
    mask = Mask()
    row[:] = mask.fill


def by_a_default(row: torch.Tensor) -> None:
    masked(row)


def by_a_tensor(row: torch.Tensor) -> None:
    row[:] = torch.tensor(LOWEST)


@pytest.mark.parametrize(
    "hide",
    [
        by_a_name,
        by_an_attribute,
        by_a_key,
        by_what_an_object_was_given,
        by_a_default,
        by_a_tensor,
    ],
)
def test_a_mask_is_meant_whatever_its_infinity_is_called(
    hide: Callable[[torch.Tensor], None],
) -> None:
    def program() -> object:
        scores = torch.zeros(2, 3)
        hide(scores[1])
        return torch.softmax(scores, dim=-1).sum().item()

    expect(program, "torch.softmax", "all_masked_softmax")


def test_an_infinity_that_was_computed_is_not_meant() -> None:
    def program() -> object:
        scores = torch.zeros(2, 3)
        scores[1] = TINY
        return torch.softmax(scores, dim=-1).sum().item()

    expect(program, "scores[1]", "nonfinite_data", "data")


def test_a_constant_of_another_module_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "marks_of_ours.py").write_text("LOWEST = -1e308 * 10\n")
    (tmp_path / "uses_marks.py").write_text(
        "import marks_of_ours\nfrom marks_of_ours import LOWEST\n"
        "own = -1e308 * 10\nx = {}\nx[0] = LOWEST\nx[1] = marks_of_ours.LOWEST\nx[2] = own\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    file = importlib.import_module("uses_marks").__file__
    assert file is not None

    def site(line: int) -> Site:
        return Site(
            file=file, line=line, end_line=line, column=0, end_column=4, function="<module>",
            source=f"x[{line - 5}] = ...", expression=f"x[{line - 5}]",
        )  # fmt: skip

    assert [names_nonfinite(site(line)) for line in (5, 6, 7)] == [True, True, False]


def test_names_that_are_handed_on_in_circles_come_to_an_end(tmp_path: Path) -> None:
    handed_on = "def f{i}(a=b, b=c, c=d, d=a): g(a=b, b=c, c=a, d=b)\n"
    file = tmp_path / "circles.py"
    file.write_text("".join(handed_on.format(i=i) for i in range(80)) + "x[0] = a\n")
    site = Site(
        file=str(file), line=81, end_line=81, column=0, end_column=4, function="<module>",
        source="x[0] = a", expression="x[0]",
    )  # fmt: skip
    assert not names_nonfinite(site)
    file.write_text(file.read_text().replace("d=a)", "d=float('-inf'))", 1))
    linecache.clearcache()
    assert names_nonfinite(site)
