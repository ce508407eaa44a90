import torch
from torch import nn

torch.manual_seed(1)
torch.set_num_threads(1)
PAD = 0


def make_batch(n=12, longest=9, vocab=20):
    lengths = torch.randint(2, longest + 1, (n,))
    ids = torch.randint(1, vocab, (n, longest))
    ids[torch.arange(longest)[None, :] >= lengths[:, None]] = PAD
    labels = (ids == 7).any(dim=1).long()
    return ids, labels


class AttentivePooling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.query = nn.Parameter(torch.randn(dim) / dim ** 0.5)
        self.key = nn.Linear(dim, dim)

    def forward(self, tokens, mask):
        scores = self.key(tokens) @ self.query
        weights = (scores + mask).softmax(dim=-1)
        return (weights.unsqueeze(-1) * tokens).sum(dim=1)


class SentenceClassifier(nn.Module):
    def __init__(self, vocab=20, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pool = AttentivePooling(dim)
        self.out = nn.Linear(dim, 2)

    def forward(self, ids):
        mask = torch.zeros(ids.shape)
        mask[ids == PAD] = float("-inf")
        return self.out(self.pool(self.embed(ids), mask))


def main():
    net = SentenceClassifier()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(20):
        ids, labels = make_batch()
        optimizer.zero_grad()
        loss = criterion(net(ids), labels)
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        ids, labels = make_batch(64)
        accuracy = (net(ids).argmax(dim=1) == labels).float().mean()
    print("last loss", round(float(loss.detach()), 4), "accuracy", accuracy.item())


if __name__ == "__main__":
    main()
