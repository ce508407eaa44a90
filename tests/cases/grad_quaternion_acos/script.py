import torch
from torch import nn


class PoseHead(nn.Module):
    """Predicts a unit quaternion; starts at the neutral pose."""

    def __init__(self, width=24):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(15, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Linear(width, 4)
        nn.init.zeros_(self.out.weight)
        with torch.no_grad():
            self.out.bias.copy_(torch.tensor([1.0, 0.0, 0.0, 0.0]))

    def forward(self, landmarks):
        q = self.out(self.trunk(landmarks))
        return q / q.norm(dim=-1, keepdim=True).clamp(min=1e-8)


def angular_error(q_pred, q_true):
    cosine = (q_pred * q_true).sum(-1).abs()
    cosine = cosine.clamp(-1.0, 1.0)
    return 2.0 * torch.acos(cosine)


def make_poses(n):
    axis = torch.randn(n, 3)
    axis = axis / axis.norm(dim=1, keepdim=True)
    half = torch.rand(n, 1) * 0.6
    half[n // 3] = 0.0
    q = torch.cat([half.cos(), axis * half.sin()], dim=1)
    x = torch.cat([q, q.roll(1, 1) ** 2, torch.randn(n, 7)], dim=1)
    return x, q


def main():
    torch.manual_seed(0)
    x, q = make_poses(64)
    head = PoseHead()
    opt = torch.optim.SGD(head.parameters(), lr=0.01, momentum=0.9)
    history = []
    for it in range(6):
        pred = head(x)
        err = angular_error(pred, q)
        reg = torch.log(pred.abs().sum(-1)).mean()
        loss = err.mean() + 0.01 * reg
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(loss.detach())
    print("mean angle:", [round(float(h), 4) for h in history])


main()
