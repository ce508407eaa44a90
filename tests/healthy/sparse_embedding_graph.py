import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore", message="Sparse CSR")
torch.manual_seed(31)
USERS, ITEMS = 40, 25


def normalised_adjacency(n_edges=90):
    rows = torch.randint(0, USERS - 3, (n_edges,))
    cols = torch.randint(0, ITEMS, (n_edges,))
    degree = torch.bincount(rows, minlength=USERS).float()
    inverse = degree.pow(-0.5)
    inverse[degree == 0] = 0.0
    values = inverse[rows]
    return torch.sparse_coo_tensor(torch.stack([rows, cols]), values, (USERS, ITEMS), check_invariants=True).coalesce(), rows, cols


class Recommender(nn.Module):
    def __init__(self, adjacency):
        super().__init__()
        self.user = nn.Embedding(USERS, 8, sparse=True)
        self.item = nn.Embedding(ITEMS, 8, sparse=True)
        self.tags = nn.EmbeddingBag(12, 8, mode="sum", sparse=True)
        self.register_buffer("adjacency", adjacency)

    def forward(self, u, i, tags, offsets):
        item = self.item(i) + self.tags(tags, offsets)
        return (self.user(u) * item).sum(dim=-1)

    def smooth(self):
        return torch.sparse.mm(self.adjacency, self.item.weight.detach())


adjacency, rows, cols = normalised_adjacency()
model = Recommender(adjacency)
optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.02)
for step in range(15):
    pick = torch.randint(0, len(rows), (20,))
    tags = torch.randint(0, 12, (30,))
    offsets = torch.arange(20)
    score = model(rows[pick], cols[pick], tags, offsets)
    noise = model(rows[pick], torch.randint(0, ITEMS, (20,)), tags, offsets)
    loss = -F.logsigmoid(score - noise).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item(), "sparse gradient", model.user.weight.grad.is_sparse)

csr = adjacency.to_sparse_csr()
dense = csr @ model.item.weight.detach()
print("isolated users", int((dense.abs().sum(dim=1) == 0).sum()), torch.allclose(dense, model.smooth(), atol=1e-6))
