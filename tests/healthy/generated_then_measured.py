"""Text is generated in inference mode, many short calls; then its scores are measured outside."""
import torch
from torch import nn

torch.manual_seed(8)


class Writer(nn.Module):
    def __init__(self, words=30):
        super().__init__()
        self.table = nn.Embedding(words, 16)
        self.scores = nn.Linear(16, words)

    def forward(self, word):
        return self.scores(self.table(word))


@torch.inference_mode()
def write(model, word, length):
    total = torch.zeros(len(word))
    for _ in range(length):
        scores = model(word).log_softmax(-1)
        word = torch.multinomial(scores.exp(), 1).squeeze(1)
        total += scores.gather(1, word[:, None]).squeeze(1)
    return word, total


model = Writer().eval()
for round_ in range(4):
    word, total = write(model, torch.arange(6), 9)
    usable = torch.isfinite(total) & ~torch.isclose(total, torch.zeros(6))
    print(round_, word.tolist(), int(usable.sum()), torch.allclose(total, total.clone()))
    print(torch.nan_to_num(total).std().item() > 0, torch.cdist(total[:, None], total[:, None]).shape)
