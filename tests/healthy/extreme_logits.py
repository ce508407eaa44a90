import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(23)


class Overconfident(nn.Module):
    def __init__(self):
        super().__init__()
        self.binary = nn.Linear(6, 1)
        self.classes = nn.Linear(6, 5)
        with torch.no_grad():
            self.binary.weight.mul_(5e3)
            self.classes.weight.mul_(5e3)

    def forward(self, x):
        return self.binary(x).squeeze(-1), self.classes(x)


x = torch.randn(40, 6)
yb = (x[:, 0] > 0).float()
yc = torch.randint(0, 5, (40,))
net = Overconfident()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(8):
    b, c = net(x)
    parts = {
        "bce": F.binary_cross_entropy_with_logits(b, yb),
        "softplus": (F.softplus(b) - yb * b).mean(),
        "logsigmoid": -(yb * F.logsigmoid(b) + (1 - yb) * F.logsigmoid(-b)).mean(),
        "ce": F.cross_entropy(c, yc),
        "nll": F.nll_loss(F.log_softmax(c, dim=1), yc),
        "lse": torch.logsumexp(c, dim=1).mean() - c.mean(),
    }
    loss = sum(parts.values())
    opt.zero_grad()
    loss.backward()
    opt.step()
print({k: round(v.item(), 2) for k, v in parts.items()})

edge = torch.tensor([-torch.inf, -1e30, -200.0, 0.0, 200.0, 1e30, torch.inf])
print("sigmoid", torch.sigmoid(edge).tolist())
print("tanh", torch.tanh(edge).tolist())
print("exp of the lower half", edge[:4].exp().tolist())
print("atan", edge.atan().tolist(), "erf", torch.erf(edge).tolist())
print("softmax", torch.softmax(edge[:5], dim=0).tolist(), "reciprocal", edge[[0, 6]].reciprocal().abs().tolist())
