from torch import nn
import torch

torch.manual_seed(29)


class VisitEncoder(nn.Module):
    """Encodes a patient's list of visits; short histories are padded."""

    def __init__(self, n_codes=50, dim=32, heads=4):
        super().__init__()
        self.codes = nn.EmbeddingBag(n_codes, dim)
        self.norm = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=0.1, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim))

    def forward(self, visits, pad):
        b, t, c = visits.shape
        x = self.norm(self.codes(visits.view(b * t, c)).view(b, t, -1))
        mixed, weights = self.attn(x, x, x, key_padding_mask=pad)
        x = x + mixed
        return x + self.ff(x), weights


class RiskModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = VisitEncoder()
        self.risk = nn.Linear(32, 1)

    def forward(self, visits, n_visits):
        pad = torch.arange(visits.size(1))[None, :] >= n_visits[:, None]
        h, _ = self.encoder(visits, pad)
        h = h.masked_fill(pad.unsqueeze(-1), 0.0)
        pooled = h.sum(1) / n_visits.clamp(min=1).unsqueeze(1)
        return self.risk(pooled).squeeze(1)


n_visits = torch.randint(1, 7, (48,))
n_visits[30] = 0
visits = torch.randint(0, 50, (48, 6, 3))
outcome = (n_visits > 3).float()
model = RiskModel()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(2):
    for lo in range(0, 48, 8):
        sl = slice(lo, lo + 8)
        logit = model(visits[sl], n_visits[sl])
        loss = nn.functional.binary_cross_entropy_with_logits(logit, outcome[sl])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.4f}")
