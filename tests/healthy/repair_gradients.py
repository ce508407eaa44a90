import torch
import torch.nn as nn

torch.manual_seed(20)
torch.set_num_threads(1)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, a, b):
        d = self.trunk(a) - self.trunk(b)
        return torch.sqrt(d.pow(2).sum(dim=1))


def pairs(n, identical):
    a = torch.randn(n, 8)
    b = a + 0.5 * torch.randn(n, 8)
    same = torch.rand(n) < 0.5
    b[~same] = torch.randn(int((~same).sum()), 8)
    if identical:
        b[0] = a[0]
        same[0] = True
    return a, b, same.float()


def contrastive(dist, same, margin=1.0):
    return (same * dist ** 2 + (1 - same) * torch.relu(margin - dist) ** 2).mean()


model = Siamese()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
repaired = 0
for step in range(30):
    a, b, same = pairs(24, identical=step % 7 == 3)
    loss = contrastive(model(a, b), same)
    optimizer.zero_grad()
    loss.backward()
    bad = False
    for p in model.parameters():
        finite = torch.isfinite(p.grad)
        if not finite.all():
            p.grad.zero_() if step % 2 else p.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            bad = True
    repaired += bad
    optimizer.step()

print("repaired steps", repaired, "loss", round(loss.item(), 5))
print("weights finite", all(bool(torch.isfinite(p).all()) for p in model.parameters()))
