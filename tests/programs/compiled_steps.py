"""Compiled functions and modules, with breaks and recompilations, and what the compiler counted."""
import contextlib
import sys

import torch
from torch import nn
from torch._dynamo.utils import counters

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        h = torch.relu(self.norm(self.first(x)))
        torch._dynamo.graph_break()
        return self.last(h)


net = Net()
model = torch.compile(net, backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)


@torch.compile(backend="eager")
def loss_of(y, target):
    loss = ((y - target) ** 2).mean()
    if loss.item() > 1e9:
        print("large", loss)
    return loss


@torch.compile(backend="eager")
def train_step(x, target):
    optimizer.zero_grad()
    loss = loss_of(net(x), target)
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.compile(backend="eager")
def evaluate(x):
    with torch.no_grad():
        return net(x).abs().amax()


def block():
    if "watched" not in sys.argv:
        return contextlib.nullcontext()
    import whynan

    return whynan.watch(net, optimizer)


with block():
    for step in range(12):
        x = torch.randn(6 + step % 3, 4)
        loss = loss_of(model(x), x.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for step in range(3):
        train_step(x, x.flip(1))
    with torch.no_grad():
        print(f"{float(model(x).sum()):.6f} {float(evaluate(x)):.6f}")
print(f"{loss.item():.6f}")
for name in ("stats", "graph_break", "recompile_limit", "resumes", "unimplemented"):
    found = dict(counters[name])
    print(name, sum(found.values()) if name == "graph_break" else found)
