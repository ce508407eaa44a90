"""Equal singular values are said to be equal only where a distance between two was 0."""

from __future__ import annotations

import pytest

from tests.builders import origin
from whynan.diagnosis.decompositions import from_decomposition
from whynan.model import Operand


@pytest.mark.parametrize(
    ("maker", "derived", "told"), [("sub", True, 1), ("_linalg_svd", False, 0)]
)
def test_a_singular_value_of_0_is_not_called_equal(maker: str, derived: bool, told: int) -> None:
    made = origin(op=f"aten.{maker}.default", derived=derived)
    zero = Operand(role="other", stats=None, value=0.0, upstream=(made,))
    op = origin(op="aten.div.Tensor", derived=True, node="LinalgSvdBackward0", inputs=(zero,))
    assert len([*from_decomposition("gradient_singularity", op, zero)]) == told
