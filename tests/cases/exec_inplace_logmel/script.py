import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LogMel(nn.Module):
    def __init__(self, n_fft=32, bands=8):
        super().__init__()
        ramp = torch.linspace(0, bands, n_fft // 2 + 1)
        centre = torch.arange(bands) + 0.5
        fb = torch.relu(1 - (ramp[:, None] - centre[None, :]).abs())
        self.fb = nn.Parameter(fb + 0.01)
        self.register_buffer("window", torch.hann_window(n_fft))
        self.n_fft = n_fft

    def forward(self, wave):
        frames = wave.unfold(-1, self.n_fft, self.n_fft // 2) * self.window
        power = torch.fft.rfft(frames).abs().pow(2)
        mel = power @ self.fb.abs()
        mel.log_()
        mel.sub_(mel.mean(dim=(1, 2), keepdim=True))
        return mel.div_(5.0)


class KeywordNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.features = LogMel()
        self.conv = nn.Conv1d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16, classes)

    def forward(self, wave):
        x = self.features(wave).transpose(1, 2)
        x = F.relu(self.conv(x)).amax(dim=-1)
        return self.fc(x)


def clips(n, generator, padded):
    y = torch.randint(0, 4, (n,), generator=generator)
    t = torch.arange(256) / 256
    x = torch.sin(2 * math.pi * (y[:, None] + 1) * 12 * t) + 0.1 * torch.randn(n, 256, generator=generator)
    if padded:
        x[n // 2, 160:] = 0.0
    return x, y


def main():
    torch.manual_seed(79)
    g = torch.Generator().manual_seed(79)
    net = KeywordNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(6):
        wave, y = clips(10, g, padded=step == 4)
        loss = F.cross_entropy(net(wave), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step}  {loss.item():.4f}")


if __name__ == "__main__":
    main()
