import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(38)
torch.set_num_threads(1)


class SentenceEncoder(nn.Module):
    def __init__(self, vocab=30, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0, max_norm=1.0)
        self.lstm = nn.LSTM(dim, 20, batch_first=True, bidirectional=True)
        self.proj = nn.Linear(40 + 5, 8)

    def forward(self, ids, lengths, profile):
        packed = pack_padded_sequence(self.embed(ids), lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True, padding_value=float("-inf"))
        pooled = out.max(dim=1).values
        profile = F.normalize(profile, dim=1)
        return F.normalize(self.proj(torch.cat([pooled, profile], dim=1)), dim=1)


def batch(n=10):
    lengths = torch.randint(1, 9, (n,))
    topic = torch.randint(0, 2, (n,))
    seqs = [torch.randint(1 + 14 * int(k), 15 + 14 * int(k), (int(l),)) for k, l in zip(topic, lengths)]
    profile = torch.randn(n, 5)
    profile[::4] = 0.0
    return pad_sequence(seqs, batch_first=True), lengths, profile, topic


model = SentenceEncoder()
with torch.no_grad():
    model.embed.weight[1:] *= 50
anchors = nn.Parameter(torch.randn(2, 8))
optimizer = torch.optim.Adam([*model.parameters(), anchors], lr=1e-2)
for step in range(20):
    ids, lengths, profile, topic = batch()
    z = model(ids, lengths, profile)
    loss = F.cross_entropy(z @ F.normalize(anchors, dim=1).T / 0.1, topic)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        print(step, round(loss.item(), 4))
print("padding row", model.embed.weight[0].abs().sum().item(), "unit length", z.norm(dim=1).detach().mean().item())
print("zero vector", F.normalize(torch.zeros(1, 3)).tolist(), F.cosine_similarity(torch.zeros(1, 3), torch.ones(1, 3)).item())
