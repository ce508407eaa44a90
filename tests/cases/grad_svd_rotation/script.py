import torch
import torch.nn as nn


class RotationRegressor(nn.Module):
    """Regresses a 3x3 matrix and projects it on SO(3)."""

    def __init__(self, points: int = 10):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(points * 6, 64), nn.GELU())
        self.matrix = nn.Linear(64, 9)
        nn.init.zeros_(self.matrix.weight)
        self.matrix.bias.data = torch.eye(3).flatten()

    def project(self, m):
        u, s, vh = torch.linalg.svd(m)
        sign = torch.det(u @ vh)
        fix = torch.ones_like(s)
        fix[:, 2] = sign
        return u @ torch.diag_embed(fix) @ vh

    def forward(self, src, dst):
        pair = torch.cat([src.flatten(1), dst.flatten(1)], dim=1)
        raw = self.matrix(self.encoder(pair)).view(-1, 3, 3)
        return self.project(raw)


def random_rotations(n):
    q, r = torch.linalg.qr(torch.randn(n, 3, 3))
    q = q * torch.diagonal(r, dim1=1, dim2=2).sign().unsqueeze(1)
    return q * torch.det(q).sign().view(-1, 1, 1)


torch.manual_seed(3)
rotations = random_rotations(96)
src = torch.randn(96, 10, 3)
dst = src @ rotations.transpose(1, 2)
model = RotationRegressor()
optim = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(2):
    order = torch.randperm(96)
    for idx in order.split(24):
        predicted = model(src[idx], dst[idx])
        loss = (predicted - rotations[idx]).square().sum(dim=(1, 2)).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
    print("epoch", epoch, "chordal loss", float(loss))
