import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self, d_in=20, d_out=8):
        super().__init__()
        self.fc1 = nn.Linear(d_in, 32, bias=False)
        self.fc2 = nn.Linear(32, d_out, bias=False)

    def forward(self, x):
        z = self.fc2(F.relu(self.fc1(x)))
        return F.normalize(z, dim=1)


def info_nce(a, b, temperature=0.2):
    sim = a @ b.t() / temperature
    labels = torch.arange(len(a))
    return F.cross_entropy(sim.float(), labels)


def augment(x):
    return x * (torch.rand_like(x) > 0.1)


def main():
    torch.manual_seed(76)
    spectra = torch.rand(96, 20)
    spectra[68] = 0.0
    loader = DataLoader(TensorDataset(spectra), batch_size=16, shuffle=False)
    encoder = Encoder()
    opt = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        total = 0.0
        for (x,) in loader:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = info_nce(encoder(augment(x)), encoder(augment(x)))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} info-nce {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
