"""Fine-tune a small half-precision regressor with gradient accumulation."""
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Config:
    micro_batch: int = 64
    accumulate: int = 8
    lr: float = 1e-7
    seed: int = 0


class Meter(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 1)

    def forward(self, x):
        return self.linear(x).squeeze(-1)


def make_data(n):
    watts = torch.rand(n, 5) * 160 + 100
    cost = watts @ torch.tensor([0.35, 0.3, 0.4, 0.2, 0.3]) + 20
    return watts.half(), cost.half()


def main(cfg: Config):
    torch.manual_seed(cfg.seed)
    x, y = make_data(1024)
    model = Meter().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    done = 0
    for epoch in range(2):
        for i, (xb, yb) in enumerate(zip(x.split(cfg.micro_batch), y.split(cfg.micro_batch))):
            error = (model(xb) - yb).abs()
            loss = error.sum()
            loss.backward()
            if (i + 1) % cfg.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
                done += 1
        print(f"epoch {epoch} updates {done} mean error {error.mean().item():.2f}")


if __name__ == "__main__":
    main(Config())
