import sys
import tempfile
from pathlib import Path

import torch

from data import read_table, write_example


def train(x, y, epochs=3, lr=0.05):
    w = torch.zeros(x.shape[1], requires_grad=True)
    b = torch.zeros((), requires_grad=True)
    opt = torch.optim.SGD([w, b], lr=lr)
    for _ in range(epochs):
        for xb, yb in zip(x.split(30), y.split(30)):
            loss = ((xb @ w + b - yb) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    return w.detach(), b.detach(), loss.detach()


def main(argv):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "batches.csv"
        write_example(path)
        names, x, y = read_table(path)
    x = (x - torch.tensor([60.0, 7.0, 2.0])) / torch.tensor([5.0, 0.3, 0.2])
    w, b, loss = train(x, y)
    for name, value in zip(names, w.tolist()):
        print(f"{name:>6} {value:+.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
