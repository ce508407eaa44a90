"""Triplet embedding of sensor signatures, anchors and positives drawn per device."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class SignatureNet(nn.Module):
    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, 32), nn.Tanh(), nn.Linear(32, n_out))

    def forward(self, x):
        z = self.body(x)
        return z / (z.norm(dim=1, keepdim=True) + 1e-6)


def euclidean(u, v):
    delta = u - v
    return torch.sqrt((delta * delta).sum(dim=1))


def triplets(labels, device_ids, generator):
    anchor, positive, negative = [], [], []
    for d in device_ids:
        own = torch.nonzero(labels == d).flatten()
        other = torch.nonzero(labels != d).flatten()
        i = int(torch.randint(len(own), (1,), generator=generator))
        j = (i + 1) % len(own)
        k = int(torch.randint(len(other), (1,), generator=generator))
        anchor.append(own[i])
        positive.append(own[j])
        negative.append(other[k])
    return torch.stack(anchor), torch.stack(positive), torch.stack(negative)


def train():
    torch.manual_seed(11)
    g = torch.Generator().manual_seed(5)
    labels = torch.cat([torch.arange(24).repeat_interleave(4), torch.tensor([24])])
    centres = torch.randn(25, 12)
    signals = centres[labels] + 0.3 * torch.randn(len(labels), 12)
    net = SignatureNet(12, 8)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

    for epoch in range(3):
        for chunk in torch.arange(25).split(5):
            a, p, n = triplets(labels, chunk.tolist(), g)
            za, zp, zn = net(signals[a]), net(signals[p]), net(signals[n])
            loss = F.relu(euclidean(za, zp) - euclidean(za, zn) + 2.5).mean()
            loss = loss + 1e-3 * torch.log1p(za.pow(2).sum())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    train()
