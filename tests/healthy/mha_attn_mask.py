import torch
import torch.nn as nn

torch.manual_seed(3)
torch.set_num_threads(1)
SEQ, DIM, WINDOW = 12, 32, 3


def local_mask(n: int, window: int) -> torch.Tensor:
    i = torch.arange(n)
    far = (i[:, None] - i[None, :]).abs() > window
    return torch.zeros(n, n).masked_fill_(far, -torch.inf)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, 4, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(DIM, 64), nn.GELU(), nn.Linear(64, DIM))

    def forward(self, x, attn_mask, key_padding_mask):
        h = self.norm(x)
        h, weights = self.attn(h, h, h, attn_mask=attn_mask, key_padding_mask=key_padding_mask)
        x = x + h
        return x + self.mlp(x), weights


class Tagger(nn.Module):
    def __init__(self, vocab=30, tags=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, DIM)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(DIM, tags)

    def forward(self, ids, pad):
        mask = local_mask(ids.size(1), WINDOW)
        padding = torch.zeros(ids.shape).masked_fill(pad, float("-inf"))
        x = self.embed(ids)
        for block in self.blocks:
            x, weights = block(x, mask, padding)
        return self.head(x), weights


net = Tagger()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
lossfn = nn.CrossEntropyLoss(ignore_index=-100)
for it in range(20):
    ids = torch.randint(0, 30, (6, SEQ))
    pad = (torch.arange(SEQ) >= SEQ - 2) & (torch.arange(6) < 3)[:, None]
    target = (ids % 4).masked_fill(pad, -100)
    logits, weights = net(ids, pad)
    loss = lossfn(logits.reshape(-1, 4), target.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
net.eval()
with torch.no_grad():
    logits, weights = net(ids, pad)
print("loss", loss.item(), "attention to far tokens", weights[:, 0, WINDOW + 1:].sum().item())
