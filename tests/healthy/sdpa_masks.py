import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
torch.set_num_threads(1)


class LeftPaddedDecoder(nn.Module):
    """Batches are padded on the left, so the first query positions of short rows see nothing at all."""

    def __init__(self, dim: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.inp = nn.Linear(4, dim)
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, 4)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        t = x.size(1)
        h = self.inp(x)
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        allowed = causal[None, None] & real[:, None, None, :]
        mixed = F.scaled_dot_product_attention(
            self.split(self.q(h)), self.split(self.k(h)), self.split(self.v(h)), attn_mask=allowed
        )
        return self.out(h + mixed.transpose(1, 2).flatten(-2))


def batch(n=6, t=8):
    lengths = torch.tensor([8, 3, 5, 8, 2, 6])[:n]
    real = torch.arange(t)[None] >= (t - lengths)[:, None]
    series = torch.sin(torch.arange(t + 1)[None, :, None] * 0.7 + torch.rand(n, 1, 4) * 6)
    return series[:, :-1], series[:, 1:], real


model = LeftPaddedDecoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(30):
    x, y, real = batch()
    pred = model(x, real)
    loss = F.mse_loss(pred[real], y[real])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    total = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

bias = torch.full((8, 8), float("-inf")).triu(1)
with torch.inference_mode():
    z = model.split(model.inp(batch()[0]))
    check = F.scaled_dot_product_attention(z, z, z, attn_mask=bias)
    same = F.scaled_dot_product_attention(z, z, z, is_causal=True)
print("loss", loss.item(), "norm", total.item(), "agree", torch.allclose(check, same, atol=1e-5))
