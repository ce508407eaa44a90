import torch
import torch.nn as nn
import torch.nn.functional as F


class Recogniser(nn.Module):
    def __init__(self, mel=10, hidden=24, symbols=7):
        super().__init__()
        self.front = nn.Conv1d(mel, hidden, 3, stride=2, padding=1)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, symbols)

    def forward(self, x):
        h = F.relu(self.front(x.transpose(1, 2))).transpose(1, 2)
        h, _ = self.lstm(h)
        return self.out(h).log_softmax(-1)


def utterances(n_batches, batch, frames):
    g = torch.Generator().manual_seed(31)
    for b in range(n_batches):
        x = torch.randn(batch, frames, 10, generator=g)
        y = torch.randint(1, 7, (batch, 6), generator=g)
        lengths = torch.randint(3, 6, (batch,), generator=g)
        if b == 2:
            y[1] = torch.tensor([3, 3, 3, 5, 5, 5])
            lengths[1] = 6
        yield x, y, lengths


def main():
    torch.manual_seed(31)
    model = Recogniser()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(2):
        skipped = 0
        for x, y, lengths in utterances(5, 6, 16):
            log_probs = model(x).transpose(0, 1)
            frames = torch.full((x.size(0),), log_probs.size(0), dtype=torch.long)
            per_item = F.ctc_loss(log_probs, y, frames, lengths, blank=0, reduction="none")
            usable = torch.isfinite(per_item)
            skipped += int((~usable).sum())
            loss = (per_item[usable] / lengths[usable]).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} ctc {loss.detach():.4f} skipped {skipped}")


main()
