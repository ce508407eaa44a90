import os
import subprocess
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

HERE = os.path.dirname(os.path.abspath(__file__))


def load_cache(folder):
    path = os.path.join(folder, "features.pt")
    if not os.path.exists(path):
        subprocess.run([sys.executable, os.path.join(HERE, "make_cache.py"), path], check=True)
    blob = torch.load(path)
    return TensorDataset(blob["features"], blob["labels"])


def probe(dataset):
    train, val = random_split(dataset, [72, 18], generator=torch.Generator().manual_seed(5))
    model = nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 2))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        model.train()
        for x, y in DataLoader(train, batch_size=12, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    model.eval()
    with torch.no_grad():
        hits = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(val, batch_size=9))
    return hits / len(val)


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        print("probe accuracy", probe(load_cache(folder)))
