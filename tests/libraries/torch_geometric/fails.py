"""Graphs in batches; in one of them a node has no neighbour."""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_add_pool

from layer import Mean

torch.manual_seed(0)


def ring(i):
    edges = torch.stack([torch.arange(4), torch.arange(4).roll(1)])
    return Data(x=torch.randn(4, 3), edge_index=edges if i != 9 else edges[:, :3], y=torch.randn(1))


mean, head = Mean(), torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
for batch in DataLoader([ring(i) for i in range(16)], batch_size=4):
    out = global_add_pool(head(mean(batch.x, batch.edge_index)), batch.batch)
    loss = (out.squeeze(1) - batch.y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
