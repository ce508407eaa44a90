import torch
import torch.nn as nn

BANK, DIM = 64, 32


def missing_table():
    """Placeholder rows for items that were never rated."""
    return torch.full((BANK, DIM), float("nan"))


def profile_users(n_users):
    coverage = 0
    for u in range(n_users):
        pages = [missing_table() for _ in range(24)]
        for page in pages:
            page[u % BANK] = 1.0
            coverage += int((~page.isnan().any(1)).sum())
    return coverage


class MomentumBank(nn.Module):
    def __init__(self, decay=0.9):
        super().__init__()
        self.decay = decay
        self.encoder = nn.Linear(10, DIM)

    def forward(self, x, bank, slots):
        z = torch.tanh(self.encoder(x))
        mixed = self.decay * bank[slots] + (1 - self.decay) * z
        return z, mixed


def main():
    torch.manual_seed(18)
    print("coverage", profile_users(6))
    bank = torch.empty(BANK, DIM)
    model = MomentumBank()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x = torch.randn(16, 10)
        slots = torch.randperm(BANK)[:16]
        z, mixed = model(x, bank, slots)
        loss = (z - mixed).square().sum(1).mean() + 0.1 * (1 - z.square()).relu().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        bank[slots] = mixed.detach()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
