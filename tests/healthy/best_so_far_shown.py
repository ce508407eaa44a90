"""The best validation loss is a tensor that begins at infinity and is shown before it is set."""
import torch
from torch import nn

torch.manual_seed(3)
net = nn.Linear(4, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
best = torch.tensor(float("inf"))
for step in range(25):
    x = torch.randn(8, 4)
    loss = (net(x) - x.mean(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step in (7, 12):
        print(f"step {step}: best so far {best.item()}")
    if step == 18:
        best = torch.minimum(best, loss.detach())
print(f"best {best.item():.3f}")
