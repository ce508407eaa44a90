import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD = 0


class Reviews(Dataset):
    """Token ids and a rating; stop words (ids below 12) are removed."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for i in range(n):
            ids = torch.randint(1, 60, (int(torch.randint(3, 9, (1,), generator=g)),), generator=g)
            if i == 37:
                ids = torch.tensor([3, 7, 7, 2])
            self.rows.append((ids[ids >= 12], int(ids.sum()) % 2))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    ids = pad_sequence([r[0] for r in rows], batch_first=True, padding_value=PAD)
    return ids, torch.tensor([r[1] for r in rows])


class AttentionPool(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, h, pad):
        s = self.score(torch.tanh(h)).squeeze(-1)
        s = s.masked_fill(pad, float("-inf"))
        a = F.softmax(s, dim=-1)
        return (a.unsqueeze(-1) * h).sum(1)


class ReviewModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(60, 20, padding_idx=PAD)
        self.conv = nn.Conv1d(20, 20, 3, padding=1)
        self.pool = AttentionPool(20)
        self.cls = nn.Linear(20, 2)

    def forward(self, ids):
        h = self.conv(self.emb(ids).transpose(1, 2)).transpose(1, 2)
        return self.cls(self.pool(h, ids == PAD))


def main():
    torch.manual_seed(4)
    model = ReviewModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(Reviews(60, 4), batch_size=6, shuffle=True, collate_fn=collate)
    for ids, rating in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), rating)
        loss.backward()
        optimizer.step()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
