"""Estimate the number of molecules from a short spectrum sequence."""
import torch
import torch.nn as nn

AVOGADRO = 6.02214076e23


class SpectrumModel(nn.Module):
    def __init__(self, channels=8, width=16):
        super().__init__()
        self.embed = nn.Linear(channels, width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.moles = nn.Linear(width, 1)

    def forward(self, x, padding):
        h = self.encoder(self.embed(x), src_key_padding_mask=padding)
        weight = (~padding).float().unsqueeze(-1)
        pooled = (h * weight).sum(1) / weight.sum(1).clamp(min=1.0)
        return self.moles(pooled).squeeze(-1) * AVOGADRO


def spectra(n):
    x = torch.randn(n, 6, 8)
    length = torch.randint(2, 7, (n,))
    padding = torch.arange(6)[None, :] >= length[:, None]
    count = x.masked_fill(padding.unsqueeze(-1), 0.0).abs().mean((1, 2)) * AVOGADRO
    return x, padding, count


def main():
    torch.manual_seed(41)
    model = SpectrumModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(8):
        x, padding, count = spectra(32)
        loss = nn.functional.l1_loss(model(x, padding), count)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        print(f"step {step} mean error {loss.item() / AVOGADRO:.4f} mol")


if __name__ == "__main__":
    main()
