import torch
import torch.nn as nn

TEXT = ("the quick brown fox jumps over the lazy dog while the small grey cat sleeps "
        "under the old table and dreams of warm milk ") * 4


class CharModel(nn.Module):
    def __init__(self, n_chars, dim=32):
        super().__init__()
        self.emb = nn.Embedding(n_chars, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, n_chars)

    def forward(self, ids, state=None):
        h, state = self.gru(self.emb(ids), state)
        return self.out(h), state


def train(model, ids, steps=12):
    opt = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(steps):
        starts = torch.randint(0, len(ids) - 21, (8,))
        chunk = torch.stack([ids[s:s + 21] for s in starts])
        logits, _ = model(chunk[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def next_char(logits, temperature, banned):
    weights = torch.exp(logits / temperature)
    weights[banned] = 0.0
    probs = weights / weights.sum()
    return torch.multinomial(probs, 1)


@torch.no_grad()
def generate(model, prompt, length, temperature, stoi, itos):
    logits, state = model(torch.tensor([[stoi[c] for c in prompt]]))
    text = prompt
    for _ in range(length):
        idx = next_char(logits[0, -1], temperature, stoi["q"])
        text += itos[idx.item()]
        logits, state = model(idx.view(1, 1), state)
    return text


if __name__ == "__main__":
    torch.manual_seed(2)
    chars = sorted(set(TEXT))
    stoi = {c: i for i, c in enumerate(chars)}
    net = CharModel(len(chars))
    print("train loss", round(train(net, torch.tensor([stoi[c] for c in TEXT])), 3))
    for temperature in (1.0, 0.5, 0.02):
        print(temperature, repr(generate(net, "the ", 24, temperature, stoi, chars)))
