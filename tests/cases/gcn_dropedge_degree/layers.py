import torch
import torch.nn as nn


def drop_edges(edge_index, p, generator=None):
    keep = torch.rand(edge_index.size(1), generator=generator) >= p
    return edge_index[:, keep]


class MeanConv(nn.Module):
    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.lin_self = nn.Linear(in_dim, out_dim)
        self.lin_nbr = nn.Linear(in_dim, out_dim, bias=False)

    def forward(self, x, edge_index):
        src, dst = edge_index
        ones = torch.ones(src.numel(), dtype=x.dtype)
        degree = torch.zeros(x.size(0), dtype=x.dtype).index_add(0, dst, ones)
        gathered = torch.zeros_like(x).index_add(0, dst, x[src])
        scale = degree.reciprocal()
        mean = gathered * scale.unsqueeze(-1)
        return self.lin_self(x) + self.lin_nbr(mean)
