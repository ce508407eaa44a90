"""Metric learning on small grey images: proxies on the unit sphere."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Embedder(nn.Module):
    def __init__(self, width: int = 32, dim: int = 16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, bias=False),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, width, 3, stride=2, bias=False),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.project = nn.Linear(width, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.project(self.features(x))
        return z / z.norm(dim=1, keepdim=True)


class ProxyLoss(nn.Module):
    def __init__(self, classes: int, dim: int, scale: float = 12.0):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(classes, dim))
        self.scale = scale

    def forward(self, z, y):
        p = self.proxies / self.proxies.norm(dim=1, keepdim=True)
        return nn.functional.cross_entropy(self.scale * z @ p.t(), y)


def make_data(n: int = 96):
    g = torch.Generator().manual_seed(11)
    labels = torch.randint(0, 5, (n,), generator=g)
    images = torch.rand(n, 1, 16, 16, generator=g) + labels.view(-1, 1, 1, 1) * 0.2
    images[57] = 0.0
    return TensorDataset(images, labels)


def main():
    torch.manual_seed(0)
    model, criterion = Embedder(), ProxyLoss(5, 16)
    params = list(model.parameters()) + list(criterion.parameters())
    opt = torch.optim.SGD(params, lr=0.05, momentum=0.9)
    loader = DataLoader(make_data(), batch_size=12, shuffle=False)
    for epoch in range(2):
        running = 0.0
        for images, labels in loader:
            loss = criterion(model(images), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
        print("epoch", epoch, "mean loss", running / len(loader))


if __name__ == "__main__":
    main()
