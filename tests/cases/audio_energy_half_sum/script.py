import argparse

import torch
import torch.nn as nn


def frames(signal, size=256, hop=128):
    return signal.unfold(-1, size, hop)


class VoiceActivity(nn.Module):
    def __init__(self, size=256, dtype=torch.float16):
        super().__init__()
        self.dtype = dtype
        self.filters = nn.Parameter(torch.randn(size, 12) / size ** 0.5)
        self.score = nn.Linear(13, 1)

    def frame_energy(self, f):
        f = f.to(self.dtype)
        return f.abs().sum(dim=-1, keepdim=True)

    def forward(self, signal):
        f = frames(signal)
        energy = self.frame_energy(f).float().log1p()
        bands = (f @ self.filters).abs().log1p()
        return self.score(torch.cat([energy, bands], dim=-1)).squeeze(-1)


def clip(i, gen):
    loud = [0.2, 0.5, 1.0, 3.0][i % 4] * 200.0
    s = loud * torch.randn(2048, generator=gen)
    speech = torch.zeros(2048)
    speech[512:1400] = 1
    return s * (0.05 + speech), frames(speech).amax(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=12)
    args = parser.parse_args()
    gen = torch.Generator().manual_seed(90)
    torch.manual_seed(90)
    model = VoiceActivity()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for i in range(args.clips):
        signal, target = clip(i, gen)
        loss = nn.functional.binary_cross_entropy_with_logits(model(signal), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("loss", float(loss.detach()))


main()
