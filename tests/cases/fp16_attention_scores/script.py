import math

import torch
import torch.nn as nn


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, causal):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        att = q @ k.transpose(-2, -1)
        att = att / math.sqrt(self.head_dim)
        att = att.masked_fill(causal, float("-inf"))
        att = att.softmax(dim=-1)
        return self.proj((att @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, causal):
        x = x + self.attn(self.ln1(x), causal)
        return x + self.mlp(self.ln2(x))


class TinyGPT(nn.Module):
    def __init__(self, vocab=60, dim=64, heads=1, layers=3):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        causal = torch.ones(ids.size(1), ids.size(1)).triu(1).bool()
        x = self.tok(ids)
        for block in self.blocks:
            x = block(x, causal)
        return self.head(x)


torch.manual_seed(19)
model = TinyGPT()
with torch.no_grad():
    model.blocks[1].attn.qkv.weight.mul_(150)       # sharp heads, as in the converted checkpoint
model = model.half().eval()
ids = torch.randint(0, 60, (2, 16))
with torch.no_grad():
    logits = model(ids)
    top = logits[:, -1].float().topk(3)
print(top.values.tolist())
print(top.indices.tolist())
