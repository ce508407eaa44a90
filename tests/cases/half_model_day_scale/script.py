import torch
import torch.nn as nn


class TravelTime(nn.Module):
    """Predicts a trip's duration in seconds."""

    def __init__(self, cells=30, dim=16):
        super().__init__()
        self.origin = nn.Embedding(cells, dim)
        self.dest = nn.Embedding(cells, dim)
        self.body = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))
        self.seconds = nn.Parameter(torch.tensor(86400.0))
        self.register_buffer("floor", torch.tensor(60.0))

    def forward(self, o, d):
        h = torch.cat([self.origin(o), self.dest(d)], dim=-1)
        fraction = torch.sigmoid(self.body(h)) * 0.1
        return torch.maximum(fraction.squeeze(-1) * self.seconds, self.floor)


def evaluate(net, pairs):
    net.eval()
    with torch.no_grad():
        return net(pairs[:, 0], pairs[:, 1])


torch.manual_seed(3)
net = TravelTime()
pairs = torch.randint(0, 30, (12, 2))
reference = evaluate(net, pairs)
print("float32 mean", reference.mean().item())
small = net.half()
quick = evaluate(small, pairs)
error = (quick.float() - reference).abs().max()
print("float16 mean", quick.float().mean().item(), "max error", error.item())
