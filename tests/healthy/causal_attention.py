"""Character model with hand-written causal self-attention."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
TEXT = "the quick brown fox jumps over the lazy dog " * 8
CHARS = sorted(set(TEXT))
DATA = torch.tensor([CHARS.index(c) for c in TEXT])
BLOCK = 16


class CausalSelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("tril", torch.tril(torch.ones(BLOCK, BLOCK)))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        att = att.masked_fill(self.tril[:t, :t] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        return self.proj((att @ v).transpose(1, 2).reshape(b, t, c))


class TinyGPT(nn.Module):
    def __init__(self, vocab, dim=32):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(BLOCK, dim)
        self.ln = nn.LayerNorm(dim)
        self.attn = CausalSelfAttention(dim, 4)
        self.head = nn.Linear(dim, vocab)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1)))
        x = x + self.attn(self.ln(x))
        return self.head(x)


model = TinyGPT(len(CHARS))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(25):
    starts = torch.randint(0, len(DATA) - BLOCK - 1, (8,))
    xb = torch.stack([DATA[s:s + BLOCK] for s in starts])
    yb = torch.stack([DATA[s + 1:s + BLOCK + 1] for s in starts])
    loss = F.cross_entropy(model(xb).flatten(0, 1), yb.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 5 == 0:
        print(f"step {step:3d} loss {loss.item():.4f}")
