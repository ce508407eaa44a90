"""A NaN that torch puts in by itself is not the program's own."""

from __future__ import annotations

import torch

from tests.record.test_tracer import anomalies_of, expect

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
    def program() -> None:
        both = torch.stack([torch.eye(3), mirrored().detach()])
        both.logdet().sum().item()

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
