import torch
import torch.nn as nn

NEG_INF = float("-inf")


class ChainCRF(nn.Module):
    """Linear-chain CRF over B/I/O tags with forbidden transitions."""

    def __init__(self, n_tags):
        super().__init__()
        self.trans = nn.Parameter(torch.zeros(n_tags, n_tags))
        allowed = torch.ones(n_tags, n_tags, dtype=torch.bool)
        allowed[2, 1] = False        # O -> I
        self.register_buffer("allowed", allowed)
        start = torch.tensor([0.0, NEG_INF, NEG_INF])
        self.register_buffer("start", start)

    @staticmethod
    def log_sum_exp(scores, dim):
        top = scores.max(dim=dim, keepdim=True).values
        shifted = scores - top
        return top.squeeze(dim) + shifted.exp().sum(dim=dim).log()

    def partition(self, emissions, tag_mask):
        trans = self.trans.masked_fill(~self.allowed, NEG_INF)
        alpha = self.start + emissions[0]
        for t in range(1, emissions.size(0)):
            step = alpha.unsqueeze(1) + trans
            alpha = self.log_sum_exp(step, 0) + emissions[t]
            alpha = alpha.masked_fill(~tag_mask[t], NEG_INF)
        return self.log_sum_exp(alpha, 0)

    def path_score(self, emissions, tags):
        score = emissions[torch.arange(len(tags)), tags].sum()
        return score + self.trans[tags[:-1], tags[1:]].sum()


class Tagger(nn.Module):
    def __init__(self, vocab=40, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.proj = nn.Linear(dim, 3)
        self.crf = ChainCRF(3)

    def loss(self, words, tags, tag_mask):
        e = self.proj(self.emb(words))
        return self.crf.partition(e, tag_mask) - self.crf.path_score(e, tags)


def sentence(i):
    words = torch.randint(0, 40, (6,))
    tags = torch.tensor([0, 1, 1, 0, 1, 0])
    mask = torch.ones(6, 3, dtype=torch.bool)
    if i == 5:
        mask[2] = torch.tensor([False, True, False])
    if i == 7:
        mask[3] = torch.tensor([False, False, False])
    return words, tags, mask


torch.manual_seed(23)
model = Tagger()
opt = torch.optim.Adagrad(model.parameters(), lr=0.1)
for i in range(10):
    words, tags, mask = sentence(i)
    opt.zero_grad()
    loss = model.loss(words, tags, mask)
    loss.backward()
    opt.step()
    print(f"sentence {i} nll {loss.item():.3f}")
