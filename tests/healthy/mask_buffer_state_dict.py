import os
import tempfile

import torch
import torch.nn as nn

torch.manual_seed(39)


class MaskedMixer(nn.Module):
    def __init__(self, tokens=5, dim=8):
        super().__init__()
        self.register_buffer("bias", torch.full((tokens, tokens), float("-inf")).triu(1))
        self.register_buffer("best_score", torch.tensor(-float("inf")))
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)

    def forward(self, x):
        att = self.q(x) @ self.k(x).transpose(1, 2) / 8 ** 0.5 + self.bias
        return torch.softmax(att, dim=-1) @ x


def fit(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        x = torch.randn(12, 5, 8)
        loss = (model(x) - x.cumsum(1) / torch.arange(1, 6)[:, None]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return optimizer, loss.item()


model = MaskedMixer()
print(model.bias)
print("first row", model.bias[0].tolist(), "best so far", model.best_score.item())
optimizer, loss = fit(model, 10)

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "checkpoint.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": float("inf")}, path)
    checkpoint = torch.load(path, weights_only=True)
    print("checkpoint best", checkpoint["best"], "entries", sorted(checkpoint["model"]))

restored = MaskedMixer()
restored.load_state_dict(checkpoint["model"])
assert torch.equal(restored.bias, model.bias)
optimizer, loss = fit(restored, 5)
restored.best_score.copy_(torch.maximum(restored.best_score, torch.tensor(-loss)))
print("loss", loss, "best score", restored.best_score.item())
print("masked entries as numpy:", restored.bias.numpy()[0])
