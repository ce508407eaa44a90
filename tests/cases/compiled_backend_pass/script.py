"""A spectrum is fitted with a compiled Planck law; the compiler's own pass rewrites one operation."""

import torch
import torch.nn as nn


def one_exponential(graph, inputs):
    """A backend that has no `expm1` and writes it as `exp(x) - 1`."""
    for node in graph.graph.nodes:
        if node.target in (torch.expm1, torch.ops.aten.expm1.default):
            with graph.graph.inserting_before(node):
                exponential = graph.graph.call_function(torch.exp, node.args)
                less_one = graph.graph.call_function(torch.sub, (exponential, 1.0))
            node.replace_all_uses_with(less_one)
            graph.graph.erase_node(node)
    graph.recompile()
    return graph.forward


class Planck(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(1.0))
        self.gain = nn.Parameter(torch.tensor(0.0))

    def forward(self, frequency):
        x = frequency * torch.exp(-self.log_temperature)
        occupancy = torch.log(torch.expm1(x))
        return 3 * torch.log(frequency) - occupancy + self.gain


def spectrum(n, lowest):
    frequency = torch.logspace(lowest, 1, n)
    return frequency, 3 * torch.log(frequency) - torch.log(torch.expm1(frequency / 3)) + 0.2


def main():
    torch.manual_seed(11)
    model = Planck()
    law = torch.compile(model, backend=one_exponential)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(8):
        frequency, target = spectrum(48, lowest=-3 if step < 4 else -9)
        loss = (law(frequency) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{step} {loss.detach().item():.4f}")


if __name__ == "__main__":
    main()
