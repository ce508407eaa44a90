"""DistributedDataParallel; on the last rank, from step 4 on, a compiled function is wrong where eager mode is right."""

import torch
import torch.distributed as dist
from torch import nn


def one_exponential(graph, inputs):
    """A backend that has no `expm1` and writes it as `exp(x) - 1`."""
    for node in graph.graph.nodes:
        if node.target in (torch.expm1, torch.ops.aten.expm1.default):
            node.target = lambda x: torch.exp(x) - 1
    graph.recompile()
    return graph.forward


class Planck(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return torch.log(torch.expm1(x * self.scale))  # LINE: wrong


dist.init_process_group("gloo")
is_last = dist.get_rank() == dist.get_world_size() - 1
model = nn.parallel.DistributedDataParallel(torch.compile(Planck(), backend=one_exponential))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    lowest = 1e-9 if is_last and step >= 4 else 0.1
    loss = model(torch.linspace(lowest, 1.0, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
