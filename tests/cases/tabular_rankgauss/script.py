from typing import Tuple

import torch
from torch import Tensor, nn


def rank_gauss(column: Tensor) -> Tensor:
    """Map a column to normal quantiles through its ranks."""
    n = column.numel()
    ranks = column.argsort().argsort().to(torch.float32)
    uniform = ranks / (n - 1)
    return 2 ** 0.5 * torch.erfinv(2 * uniform - 1)


def standard(column: Tensor) -> Tensor:
    return (column - column.mean()) / column.std()


def load_table(rows: int = 300) -> Tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(55)
    income = torch.empty(rows).log_normal_(10, 1, generator=g)
    age = torch.randint(18, 90, (rows,), generator=g).float()
    tenure = torch.empty(rows).exponential_(0.3, generator=g)
    defaulted = (income.log() - 0.02 * age + torch.randn(rows, generator=g) < 9).float()
    table = torch.stack([rank_gauss(income), standard(age), standard(torch.log1p(tenure))], dim=1)
    return table, defaulted


class CreditNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block1 = nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.block2 = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.out = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.block2(self.block1(x)))[:, 0]


def main() -> None:
    table, label = load_table()
    torch.manual_seed(0)
    net = CreditNet()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    for epoch in range(2):
        for rows in torch.arange(len(table)).chunk(6):
            loss = nn.functional.binary_cross_entropy_with_logits(net(table[rows]), label[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print("loss after training", loss.item())


if __name__ == "__main__":
    main()
