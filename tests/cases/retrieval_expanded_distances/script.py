import numpy as np
import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self, vocab=500, dim=48):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True)

    def forward(self, ids):
        out, _ = self.rnn(self.table(ids))
        return 20 + 5 * out.mean(dim=1)


def distances(queries, bank):
    qq = (queries ** 2).sum(1, keepdim=True)
    bb = (bank ** 2).sum(1)
    return (qq + bb - 2 * queries @ bank.T).sqrt()


def near_duplicates(dist, k=3):
    dist = dist.clone()
    dist.fill_diagonal_(float("inf"))
    near, who = dist.topk(k, largest=False)
    return near, who


@torch.inference_mode()
def main():
    torch.manual_seed(17)
    encoder = Encoder().eval()
    documents = torch.randint(0, 500, (80, 10))
    documents[40:60] = documents[:20]
    vectors = encoder(documents)
    dist = distances(vectors, vectors)
    near, who = near_duplicates(dist)
    table = np.stack([near.numpy()[:, 0], who.numpy()[:, 0]], axis=1)
    print("closest pairs")
    for row, (d, j) in enumerate(table[:5]):
        print(f"  {row:2d} -> {int(j):2d}  {d:.3f}")
    print("median of nearest", np.median(table[:, 0]))
    spread = dist[~torch.eye(len(dist), dtype=torch.bool)]
    print("mean distance", spread.mean().numpy())


if __name__ == "__main__":
    main()
