import torch
import torch.nn as nn

from ops import envelope


class Picker(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(2, 6, 7, padding=3), nn.ReLU(), nn.Conv1d(6, 1, 7, padding=3))

    def forward(self, trace):
        env = envelope(trace)
        scaled = trace / (trace.abs().amax(-1, keepdim=True) + 1e-6)
        return self.conv(torch.stack([scaled, env], dim=1)).squeeze(1)


def batch(i, size=6, n=64):
    g = torch.Generator().manual_seed(1000 + i)
    onset = torch.randint(10, 50, (size,), generator=g)
    t = torch.arange(n)
    burst = (t[None] >= onset[:, None]) * torch.sin(0.9 * t)[None]
    trace = burst + 0.05 * torch.randn(size, n, generator=g)
    if i == 3:
        trace[4] = 0.0
    return trace, onset


def main():
    torch.manual_seed(0)
    picker = Picker()
    opt = torch.optim.Adam(picker.parameters(), lr=5e-3)
    for i in range(6):
        trace, onset = batch(i)
        score = picker(trace)
        loss = nn.functional.cross_entropy(score, onset)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(i, f"{loss.item():.3f}")


if __name__ == "__main__":
    main()
