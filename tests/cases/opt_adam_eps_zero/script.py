import torch
import torch.nn as nn
import torch.nn.functional as F


class TagModel(nn.Module):
    def __init__(self, vocab, dim, tags):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.tag = nn.Linear(dim, tags)

    def forward(self, tokens):
        h, _ = self.gru(self.embed(tokens))
        return self.tag(h)


def corpus(n, length, vocab, generator):
    tokens = torch.randint(1, vocab - 3, (n, length), generator=generator)
    tags = (tokens * 7 + 3) % 5
    for row in range(n):
        cut = int(torch.randint(length // 2, length + 1, (1,), generator=generator))
        tokens[row, cut:] = 0
        tags[row, cut:] = -100
    return tokens, tags


def fit(epochs=3):
    torch.manual_seed(14)
    g = torch.Generator().manual_seed(1)
    tokens, tags = corpus(48, 10, 30, g)
    model = TagModel(30, 16, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=0.0)
    for epoch in range(epochs):
        for tok, tag in zip(tokens.split(12), tags.split(12)):
            logits = model(tok)
            loss = F.cross_entropy(logits.flatten(0, 1), tag.flatten(), ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print("epoch", epoch, "loss", loss.detach().item())
    return model


if __name__ == "__main__":
    tagger = fit()
    print("embedding norm", tagger.embed.weight.norm().item())
