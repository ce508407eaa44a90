import torch
import torch.nn.functional as F

torch.manual_seed(12)


def filter_logits(logits, top_k=0, top_p=1.0):
    if top_k > 0:
        kth = torch.topk(logits, top_k, dim=-1).values[..., -1, None]
        logits = logits.masked_fill(logits < kth, -float("Inf"))
    if top_p < 1.0:
        ordered, index = torch.sort(logits, descending=True, dim=-1)
        cumulative = F.softmax(ordered, dim=-1).cumsum(dim=-1)
        remove = cumulative > top_p
        remove[..., 1:] = remove[..., :-1].clone()
        remove[..., 0] = False
        logits = logits.masked_fill(remove.scatter(-1, index, remove), -float("Inf"))
    return logits


class BigramLM(torch.nn.Module):
    def __init__(self, vocab: int = 40):
        super().__init__()
        self.table = torch.nn.Embedding(vocab, vocab)

    def forward(self, ids):
        return self.table(ids) * 2.5


@torch.inference_mode()
def generate(model, ids, steps, temperature=0.8, repetition_ban=2):
    for _ in range(steps):
        logits = model(ids[:, -1]) / temperature
        logits.scatter_(1, ids[:, -repetition_ban:], float("-inf"))
        logits = filter_logits(logits, top_k=10, top_p=0.9)
        probs = torch.softmax(logits, dim=-1)
        ids = torch.cat([ids, torch.multinomial(probs, 1)], dim=1)
    return ids, probs


model = BigramLM().eval()
out, probs = generate(model, torch.tensor([[1, 2], [3, 4], [5, 6]]), steps=12)
for row in out.tolist():
    print(" ".join(map(str, row)))
entropy = torch.special.entr(probs).sum(dim=-1)
print("kept tokens", (probs > 0).sum(dim=-1).tolist(), "entropy", [round(e, 3) for e in entropy.tolist()])
