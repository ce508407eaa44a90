import torch
import torch.nn as nn

ROWS, DIM = 4096, 512


def audit_pages(n_pages):
    """Share of rated cells over all pages of the user-item table."""
    rated = 0
    for i in range(n_pages):
        page = torch.full((ROWS, DIM), float("nan"))
        page[i % ROWS, ::9] = 4.0
        rated += page.numel() - page.isnan().sum().item()
    return rated / (n_pages * ROWS * DIM)


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
    share = audit_pages(12)
    print(f"{share:.5f} of the table is rated")
    bank = torch.empty(ROWS, DIM)
    model = MomentumBank()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x = torch.randn(32, 10)
        slots = torch.randperm(ROWS)[:32]
        z, mixed = model(x, bank, slots)
        loss = (z - mixed).square().sum(1).mean() + 0.1 * (1 - z.square()).relu().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        bank[slots] = mixed.detach()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
