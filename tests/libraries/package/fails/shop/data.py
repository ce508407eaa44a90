import csv
import io

import torch
from torch.utils.data import Dataset


class Offers(Dataset):
    """Prices of a table; one was given away."""

    def __init__(self):
        rows = [(i % 5, 3 + i % 7 if i != 21 else 0) for i in range(40)]
        text = io.StringIO("\n".join(f"{kind},{price}" for kind, price in rows))
        self.rows = list(csv.reader(text))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        kind, price = self.rows[index]
        return torch.tensor(int(kind)), torch.tensor(float(price))
