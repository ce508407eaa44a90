"""Attention and pooling over graphs in which a node is alone, and distances that stay infinite."""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATv2Conv, GCNConv, global_max_pool

torch.manual_seed(0)
EDGES = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
graphs = [Data(x=torch.randn(4, 3), edge_index=EDGES, y=torch.tensor([i % 2])) for i in range(8)]
attend, spread, head = GATv2Conv(3, 6, add_self_loops=False), GCNConv(6, 6), torch.nn.Linear(6, 2)
optimizer = torch.optim.Adam([p for m in (attend, spread, head) for p in m.parameters()], lr=0.01)
for batch in DataLoader(graphs, batch_size=4, shuffle=True):
    h = spread(attend(batch.x, batch.edge_index).relu(), batch.edge_index)
    loss = torch.nn.functional.cross_entropy(head(global_max_pool(h, batch.batch)), batch.y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
steps = torch.full((4, 4), float("inf")).fill_diagonal_(0)
steps[EDGES[0], EDGES[1]] = 1
for middle in range(4):
    steps = torch.minimum(steps, steps[:, middle, None] + steps[middle])
print("reached", int(steps.isfinite().sum()), "loss", round(loss.item(), 4))
