"""What a change leaves without a reader goes with it; what anything still reads stays."""

from __future__ import annotations

import pytest

from whynan.repair.tidy import tidied

BEFORE = """import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        return F.log_softmax(x, 1) + torch.log(self.softmax(self.out(x)))
"""
AFTER = BEFORE.replace(
    "F.log_softmax(x, 1) + torch.log(self.softmax(self.out(x)))", "self.out(x).log_softmax(1)"
)


def test_an_unread_import_and_a_module_without_weights_go() -> None:
    text = tidied(BEFORE, AFTER, [])
    assert "import torch\n" not in text
    assert "functional" not in text
    assert "self.softmax" not in text
    assert "self.out = nn.Linear(4, 3)\n" in text


@pytest.mark.parametrize("other", ["probs = net.softmax(x)", "getattr(net, 'softmax')"])
def test_a_module_that_another_file_reads_stays(other: str) -> None:
    assert "self.softmax = nn.Softmax(dim=1)" in tidied(BEFORE, AFTER, [other])


def test_what_nobody_read_before_is_not_touched() -> None:
    text = "import os\nimport torch\n" + BEFORE
    assert "import os\n" in tidied(text, "import os\nimport torch\n" + AFTER, [])


def test_an_import_of_several_names_keeps_those_that_are_read() -> None:
    before = "import math, sys\nfrom torch.nn.functional import softmax, log_softmax as ls\nprint(math.pi, softmax, ls)\n"
    after = before.replace("print(math.pi, softmax, ls)", "print(ls)")
    expected = "import math, sys\nfrom torch.nn.functional import log_softmax as ls\nprint(ls)\n"
    assert tidied(before, after, []) == expected.replace("import math, sys", "import sys")
