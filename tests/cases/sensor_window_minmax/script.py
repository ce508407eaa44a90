import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class VibrationWindows(Dataset):
    """Sliding windows over a machine's vibration sensor, scaled to 0..1 each."""

    def __init__(self, signal, window=32, hop=16):
        self.signal = signal
        self.window = window
        self.starts = list(range(0, len(signal) - window - 1, hop))

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        chunk = self.signal[s:s + self.window]
        target = self.signal[s + self.window]
        lo, hi = chunk.min(), chunk.max()
        scaled = (chunk - lo) / (hi - lo)
        return scaled, target


def simulate(n=1600, seed=5):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n)
    s = torch.sin(2 * math.pi * t / 25) + 0.1 * torch.randn(n, generator=g)
    s[700:760] = 0.25
    return s


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 5, padding=2)
        self.gru = nn.GRU(8, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        h = torch.relu(self.conv(x.unsqueeze(1))).transpose(1, 2)
        _, last = self.gru(h)
        return self.out(last[-1]).squeeze(-1)


torch.manual_seed(1)
data = VibrationWindows(simulate())
loader = DataLoader(data, batch_size=8, shuffle=True)
net = Forecaster()
optim = torch.optim.Adam(net.parameters(), lr=3e-3)
mse = nn.MSELoss()
for step, (x, y) in enumerate(loader):
    optim.zero_grad()
    loss = mse(net(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optim.step()
print("final loss", loss.item())
