import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Assays(Dataset):
    """Many molecules, three assays, and most assays were never measured (NaN)."""

    def __init__(self, n=96):
        g = torch.Generator().manual_seed(35)
        self.x = torch.randn(n, 10, generator=g)
        self.y = self.x @ torch.randn(10, 3, generator=g) / 3
        self.y[torch.rand(n, 3, generator=g) < 0.6] = float("nan")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(10, 24), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(24, 1) for _ in range(3))

    def forward(self, x):
        h = self.shared(x)
        return torch.cat([head(h) for head in self.heads], dim=1)


def masked_loss(pred, target):
    measured = ~torch.isnan(target)
    if not measured.any():
        return pred.sum() * 0
    return nn.functional.mse_loss(pred[measured], target[measured])


def main():
    torch.manual_seed(35)
    loader = DataLoader(Assays(), batch_size=16, shuffle=True, num_workers=2)
    model = MultiTask()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        total, seen = 0.0, 0
        for x, y in loader:
            loss = masked_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n = int(torch.isfinite(y).sum())
            total, seen = total + loss.item() * n, seen + n
        print(f"epoch {epoch} mse {total / seen:.4f} over {seen} measurements")


if __name__ == "__main__":
    main()
