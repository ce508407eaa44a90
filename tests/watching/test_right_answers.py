"""A table with entries that have no value is the right answer; a mean that they spoil is not."""

from __future__ import annotations

from pathlib import Path

from tests.harness import ForkServer
from tests.watching.test_policies import written

RECALLS = """
import torch
from torch import nn

torch.manual_seed(8)
x = torch.randn(240, 6)
y = (x @ torch.randn(6, 3)).argmax(dim=1)  # the fourth class never occurs
net = nn.Linear(6, 4)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)

class Recall:
    def __init__(self):
        self.hits, self.all, self.known = torch.zeros(4, dtype=torch.long), torch.zeros(4, dtype=torch.long), None
    def update(self, guess, y):
        self.hits += torch.bincount(y[guess == y], minlength=4)
        self.all += torch.bincount(y, minlength=4)
    def compute(self):
        if self.known is None:
            self.known = SHARES
        return self.known

for epoch in range(12):
    recall = Recall()
    for rows in torch.randperm(240).split(60):
        loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        recall.update(net(x).argmax(dim=1), y)
    table = recall.compute()
    print(epoch, [round(v, 2) for v in table.tolist()], table.MEAN().item())
"""


MARKED = """
import torch
from torchmetrics.classification import MulticlassJaccardIndex

torch.manual_seed(1)
net = torch.nn.Linear(4, 5)
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
overlap = MulticlassJaccardIndex(5, average=None, zero_division=float("nan"))
for epoch in range(4):
    overlap.reset()
    for batch in range(20):
        x = torch.randn(32, 4)
        y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 1).long()  # the fifth class never occurs
        scores = net(x) - torch.tensor([0.0, 0, 0, 0, 50])
        loss = torch.nn.functional.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        overlap.update(scores, y)
    table = overlap.compute()
    print(epoch, [round(v, 2) for v in table.tolist()], table.nanmean().item())
"""


def test_a_table_of_a_library_is_no_harm(programs: ForkServer, tmp_path: Path) -> None:
    script = written(tmp_path, MARKED)
    plain = programs.run(script, traced=False)
    ran = programs.run(script)
    assert (ran.code, ran.stdout) == (0, plain.stdout)


def test_its_mean_is_told(programs: ForkServer, tmp_path: Path) -> None:
    ran = programs.run(
        written(tmp_path, RECALLS.replace("MEAN", "mean").replace("SHARES", "self.hits / self.all"))
    )
    assert ran.code == 3
    assert ran.report is not None
    assert ran.report["anomalies"][0]["location"]["line"] == 19
