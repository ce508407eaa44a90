"""The programs of the self-test: each is written to a file and run as a user's own would be.

The line that `# here` marks is the one to be found. Faults come in step 25, which nobody records
as it happens, so that finding them takes all that finding one takes.
"""

from __future__ import annotations

from dataclasses import dataclass

_START = """\
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

device = torch.device(sys.argv[1])
torch.manual_seed(0)
rows = torch.randn(40 * 16, 8)
model = torch.nn.Linear(8, 4, bias=False).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = DataLoader(TensorDataset(rows), batch_size=16)
"""

_STEP = """\
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A failing program and the truth about it."""

    name: str
    phase: str
    mechanism: str
    step: int
    text: str

    @property
    def line(self) -> int:
        lines = self.text.splitlines()
        return 1 + next(i for i, line in enumerate(lines) if line.endswith("# here"))


FAULTS = (
    Fault(
        name="forward",
        phase="forward",
        mechanism="log_nonpositive",
        step=25,
        text=f"""{_START}
rows[25 * 16 + 3] = 1000.0
for (batch,) in batches:
    probabilities = model(batch.to(device)).softmax(dim=-1)
    loss = -probabilities.log().mean()  # here
{_STEP}""",
    ),
    Fault(
        name="backward",
        phase="backward",
        mechanism="gradient_singularity",
        step=25,
        text=f"""{_START}
rows[25 * 16 + 3] = 0.0
for (batch,) in batches:
    squares = model(batch.to(device)).pow(2).sum(dim=-1)
    loss = squares.sqrt().mean()  # here
{_STEP}""",
    ),
    Fault(
        name="optimizer",
        phase="optimizer",
        mechanism="overflow",
        step=25,
        text=f"""{_START}
for index, (batch,) in enumerate(batches):
    loss = 1000 * model(batch.to(device)).pow(2).mean()
    if index == 25:
        optimizer.param_groups[0]["lr"] = 3e38
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # here
""",
    ),
    Fault(
        name="inference",
        phase="forward",
        mechanism="division_by_zero",
        step=0,
        text="""\
import sys

import torch


class Shares(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.score = torch.nn.Linear(8, 4)

    def forward(self, x):
        scores = self.score(x).relu()
        return scores / scores.sum(dim=-1, keepdim=True)  # here


device = torch.device(sys.argv[1])
torch.manual_seed(0)
model = Shares().to(device).eval()
torch.nn.init.constant_(model.score.bias, -100.0)
with torch.no_grad():
    print(model(torch.randn(4, 8).to(device)))
""",
    ),
)

# A training with what looks like trouble and is none. It prints what it learnt, to the last bit, the
# time of a step, and how often the program waited for the device, where the device counts that.
HEALTHY = """\
import hashlib
import math
import statistics
import sys
import time
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, LEFT_OUT = 260, 110  # the first steps, and the 10th and 100th, are not like the others
device = torch.device(sys.argv[1])
torch.manual_seed(0)
rows, labels = torch.randn(STEPS * 64, 64), torch.randint(10, (STEPS * 64,))
model = nn.Sequential(
    nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 256),
    nn.ReLU(), nn.Linear(256, 10),
).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def wait():
    if device.type != "cpu":
        torch.accelerator.synchronize()


def counted(seen):
    if device.type == "cuda":
        return sum("synchronizing" in str(warning.message) for warning in seen)
    count = getattr(torch.get_device_module(device), "synchronisations", None)
    return count() if count is not None else None


times = []
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    batches = DataLoader(TensorDataset(rows, labels), batch_size=64, shuffle=True)
    for step, (x, y) in enumerate(batches):
        if step == LEFT_OUT:
            if device.type == "cuda":
                torch.cuda.set_sync_debug_mode("warn")
            before = counted(seen)
        if step >= LEFT_OUT and (step - LEFT_OUT) % 10 == 0:
            now = time.perf_counter()
            if times:
                times[-1] = now - times[-1]
            times.append(now)
        scores = model(x.to(device)).masked_fill(torch.arange(10, device=device) == 9, -math.inf)
        y = y.to(device).clamp(max=8)
        loss = nn.functional.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = counted(seen)
    if device.type == "cuda":
        torch.cuda.set_sync_debug_mode("default")
    wait()
    times[-1] = time.perf_counter() - times[-1]
learnt = [t.detach().cpu().reshape(-1).view(torch.uint8) for t in model.state_dict().values()]
learnt = bytes(torch.cat(learnt).tolist())
waits = "none" if after is None else (after - before) / (STEPS - LEFT_OUT)
print(hashlib.sha256(learnt).hexdigest(), statistics.median(times) / 10, waits)
"""
