"""A histogram with open ends: its edges are -inf and inf."""
import torch
torch.manual_seed(29)
edges = torch.tensor([-torch.inf, -1, 0, 1, torch.inf])
x = torch.randn(200)
where = torch.bucketize(x, edges) - 1
print(edges, torch.bincount(where, minlength=4))
print("widths", edges.diff())
