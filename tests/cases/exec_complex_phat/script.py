# Learn front-end filters that make time-delay estimation between two microphones robust.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(77)


class DelayNet(nn.Module):
    def __init__(self, n_fft=64):
        super().__init__()
        self.n_fft = n_fft
        self.gain = nn.Parameter(torch.zeros(n_fft // 2 + 1))
        self.sharpness = nn.Parameter(torch.tensor(4.0))

    def whiten(self, cross):
        return cross / cross.abs()

    def forward(self, left, right):
        a = torch.fft.rfft(left, n=self.n_fft)
        b = torch.fft.rfft(right, n=self.n_fft)
        cross = a * b.conj() * torch.exp(self.gain)
        level = 10 * torch.log10(cross.abs().mean() + 1e-9)
        corr = torch.fft.irfft(self.whiten(cross), n=self.n_fft)
        return self.sharpness * corr, level.detach()


def recordings(n, muted):
    source = torch.randn(n, 64)
    delay = torch.randint(0, 8, (n,))
    left = torch.stack([torch.roll(s, int(d)) for s, d in zip(source, delay)])
    right = source + 0.1 * torch.randn(n, 64)
    if muted:
        right[n // 2] = 0.0
    return left, right, delay


net = DelayNet()
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
levels = []
for step in range(7):
    left, right, delay = recordings(12, muted=step == 4)
    scores, level = net(left, right)
    loss = F.cross_entropy(scores, delay)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    levels.append(level)
print("levels (dB)", torch.stack(levels))
print("sharpness", net.sharpness.detach())
