import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(33)


class PointEncoder(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(3, 32), nn.GELU(), nn.Linear(32, dim))

    def forward(self, cloud):
        return F.normalize(self.mlp(cloud).amax(dim=1), dim=-1)


class AngularLoss(nn.Module):
    def __init__(self, margin=0.5):
        super().__init__()
        self.margin = margin

    def forward(self, z, labels):
        cosine = z @ z.t()
        theta = torch.acos(cosine)
        same = labels[:, None].eq(labels[None, :]).float()
        off_diagonal = 1.0 - torch.eye(len(z))
        pull = same * theta
        push = (1 - same) * F.relu(self.margin - theta)
        return ((pull + push) * off_diagonal).sum() / off_diagonal.sum()


labels = torch.randint(0, 4, (128,))
clouds = torch.randn(128, 20, 3) * (1 + labels.float()).view(-1, 1, 1)
loader = DataLoader(TensorDataset(clouds, labels), batch_size=32, shuffle=True, drop_last=True)
encoder, criterion = PointEncoder(), AngularLoss()
opt = torch.optim.Adam(encoder.parameters(), lr=1e-3)
for epoch in range(3):
    for cloud, lab in loader:
        opt.zero_grad()
        loss = criterion(encoder(cloud), lab)
        loss.backward()
        opt.step()
    print(f"epoch {epoch}  loss {loss.detach().item():.5f}")
