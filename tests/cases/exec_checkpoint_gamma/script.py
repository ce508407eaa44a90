"""Low-light image enhancement with activation checkpointing."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class ToneBlock(nn.Module):
    def __init__(self, ch: int, gamma: float):
        super().__init__()
        self.mix = nn.Conv2d(ch, ch, 1, bias=False)
        self.local = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.gamma = gamma

    def forward(self, x):
        light = self.mix(x).clamp(min=0.0)
        curve = light ** self.gamma
        return curve + 0.1 * self.local(x)


class Enhancer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Conv2d(1, 6, 3, padding=1, bias=False)
        self.tone = nn.ModuleList([ToneBlock(6, 1.2), ToneBlock(6, 0.45)])
        self.render = nn.Conv2d(6, 1, 1)

    def forward(self, x):
        h = self.lift(x)
        for block in self.tone:
            h = checkpoint(block, h, use_reentrant=False)
        return torch.sigmoid(self.render(h))


def night_shots(n, letterbox):
    scene = torch.rand(n, 1, 12, 12)
    dark = 0.2 * scene + 0.01
    if letterbox:
        dark[..., :4, :] = 0.0
        scene[..., :4, :] = 0.0
    return dark, scene


def main():
    torch.manual_seed(70)
    net = Enhancer()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(6):
        dark, scene = night_shots(4, letterbox=step == 2)
        out = net(dark)
        mse = F.mse_loss(out, scene)
        psnr = -10 * torch.log10(mse.detach())
        optimizer.zero_grad()
        mse.backward()
        optimizer.step()
        print(f"step {step} psnr {psnr:.2f}")


if __name__ == "__main__":
    main()
