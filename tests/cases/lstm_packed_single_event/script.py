"""Rate of events from irregular histories, as packed sequences of unequal length."""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, Dataset


class Histories(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        lengths = torch.randint(2, 9, (count,), generator=g)
        lengths[101] = 1
        self.rows = [torch.randn(int(n), 3, generator=g) for n in lengths]
        self.rates = torch.rand(count, generator=g)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], self.rates[i]


def collate(items):
    items = sorted(items, key=lambda item: -len(item[0]))
    return pack_sequence([row for row, _ in items]), torch.stack([rate for _, rate in items])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 12, batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, packed):
        out, lengths = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        inside = torch.arange(out.shape[1]) < lengths[:, None]
        n = lengths[:, None].to(out.dtype)
        masked = out * inside[..., None]
        mean = masked.sum(1) / n
        centred = (out - mean[:, None]) * inside[..., None]
        variance = centred.square().sum(1) / (n - 1)
        return self.head(torch.cat([mean, variance], dim=1)).squeeze(1)


def main():
    torch.manual_seed(11)
    net = Encoder()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    loader = DataLoader(Histories(160, seed=5), batch_size=8, collate_fn=collate)
    for step, (packed, rates) in enumerate(loader):
        loss = (net(packed) - rates).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(step, round(loss.item(), 4))


main()
