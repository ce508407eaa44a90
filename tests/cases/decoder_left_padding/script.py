import math

import torch
import torch.nn as nn


class CausalAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w_q = nn.Linear(dim, dim, bias=False)
        self.w_k = nn.Linear(dim, dim, bias=False)
        self.w_v = nn.Linear(dim, dim, bias=False)

    def forward(self, x, bias):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=1 / math.sqrt(x.size(-1)))
        return torch.bmm(scores.softmax(-1), v)


class Decoder(nn.Module):
    def __init__(self, vocab=32, dim=24, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([CausalAttention(dim) for _ in range(depth)])
        self.lm_head = nn.Linear(dim, vocab)

    def build_bias(self, attention_mask):
        b, t = attention_mask.shape
        bias = torch.zeros(b, t, t)
        bias = bias + torch.full((t, t), float("-inf")).triu(diagonal=1)
        padding = torch.zeros(b, 1, t).masked_fill(attention_mask.unsqueeze(1) == 0, float("-inf"))
        return bias + padding

    def forward(self, ids, attention_mask):
        x = self.embed(ids)
        bias = self.build_bias(attention_mask)
        for layer in self.layers:
            x = x + layer(x, bias)
        return self.lm_head(x)


def left_pad(prompts, pad=0):
    t = max(map(len, prompts))
    ids = torch.tensor([[pad] * (t - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (t - len(p)) + [1] * len(p) for p in prompts])
    return ids, mask


if __name__ == "__main__":
    torch.manual_seed(77)
    model = Decoder().eval()
    ids, mask = left_pad([[5, 9, 2, 14], [7, 7, 30, 1], [3, 11]])
    with torch.no_grad():
        for _ in range(3):
            logits = model(ids, mask)
            nxt = logits[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, nxt], dim=1)
            mask = torch.cat([mask, torch.ones_like(nxt)], dim=1)
    print(ids.tolist())
    print("confidence", logits[:, -1].softmax(-1).amax(-1).tolist())
