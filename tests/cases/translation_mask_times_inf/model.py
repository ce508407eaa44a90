import math

import torch
from torch import nn


def attention_bias(keep: torch.Tensor) -> torch.Tensor:
    """(batch, src) of 0/1 -> additive bias for (batch, tgt, src) scores."""
    return ((1.0 - keep) * float("-inf")).unsqueeze(1)


class CrossAttention(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.scale = 1 / math.sqrt(dim)

    def forward(self, tgt, memory, keep):
        q = self.q(tgt)
        k, v = self.kv(memory).chunk(2, dim=-1)
        scores = torch.einsum("btd,bsd->bts", q, k) * self.scale
        scores = scores + attention_bias(keep)
        return torch.softmax(scores, dim=-1) @ v


class Translator(nn.Module):
    def __init__(self, vocab: int, dim: int = 24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.cross = CrossAttention(dim)
        self.readout = nn.Linear(2 * dim, vocab)

    def causal(self, n):
        return torch.full((n, n), -math.inf).triu(1)

    def forward(self, src, tgt):
        keep = (src != 0).float()
        memory, h = self.encoder(self.embed(src))
        dec, _ = self.decoder(self.embed(tgt), h)
        selfmix = torch.softmax(dec @ dec.transpose(1, 2) + self.causal(tgt.size(1)), -1) @ dec
        ctx = self.cross(dec, memory, keep)
        return self.readout(torch.cat([selfmix, ctx], dim=-1))
