import torch
import torch.nn as nn

torch.manual_seed(25)


class PointCloud(nn.Module):
    """Offsets start at zero, so every length, spread, angle and distance starts at its corner."""

    def __init__(self, n=10):
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(n, 2))
        self.height = nn.Parameter(torch.zeros(n))

    def forward(self):
        lengths = self.offset.norm(dim=1)
        frobenius = torch.linalg.vector_norm(self.offset)
        spread = self.height.std() + self.offset.std(dim=0).sum()
        angle = torch.atan2(self.offset[:, 1], self.offset[:, 0])
        pairwise = torch.cdist(self.offset, self.offset)
        return lengths, frobenius, spread, angle, pairwise


cloud = PointCloud()
goal = torch.randn(10, 2)
optimizer = torch.optim.SGD(cloud.parameters(), lr=0.05)
history = []
for it in range(20):
    lengths, frobenius, spread, angle, pairwise = cloud()
    fit = (cloud.offset - goal).pow(2).sum() if it else 0.0
    loss = fit + lengths.sum() + frobenius + spread + 0.1 * angle.sum() + 0.01 * pairwise.sum()
    loss = loss + cloud.height.abs().sum() + cloud.height.prod()
    optimizer.zero_grad()
    loss.backward()
    if it == 0:
        print("first gradients", cloud.offset.grad.abs().max().item(), cloud.height.grad.abs().max().item())
    optimizer.step()
    history.append(loss.item())
print("loss", [round(v, 3) for v in history[::5]])
print("diagonal of distances", pairwise.diagonal().abs().max().item())
