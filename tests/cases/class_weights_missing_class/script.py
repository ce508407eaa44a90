from dataclasses import dataclass

import torch
from torch import nn, optim


@dataclass
class Config:
    classes: int = 6
    features: int = 20
    batch: int = 32
    lr: float = 1e-2
    smoothing: float = 0.1


def synth(cfg, n, gen):
    prior = torch.tensor([0.4, 0.3, 0.15, 0.0, 0.1, 0.05])
    y = torch.multinomial(prior, n, replacement=True, generator=gen)
    centers = torch.randn(cfg.classes, cfg.features, generator=gen)
    return centers[y] + torch.randn(n, cfg.features, generator=gen), y


def balanced_weights(labels, classes):
    counts = torch.bincount(labels, minlength=classes)
    freq = counts / counts.sum()
    return 1.0 / (classes * freq)


def run(cfg: Config):
    gen = torch.Generator().manual_seed(2024)
    x, y = synth(cfg, 400, gen)
    x = (x - x.mean(0)) / (x.std(0) + 1e-6)
    weight = balanced_weights(y, cfg.classes)
    criterion = nn.CrossEntropyLoss(weight=weight, label_smoothing=cfg.smoothing)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(cfg.features, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, cfg.classes))
    opt = optim.AdamW(model.parameters(), lr=cfg.lr)
    for epoch in range(3):
        for idx in torch.randperm(len(x)).split(cfg.batch):
            loss = criterion(model(x[idx]), y[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
        print(f"epoch {epoch}: {loss.item():.3f}")


run(Config())
