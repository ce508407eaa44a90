import torch
import torch.nn as nn

torch.manual_seed(11)
O, B, I = 0, 1, 2
NEG = float("-inf")


class CRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(3, 3))
        forbidden = torch.zeros(3, 3, dtype=torch.bool)
        forbidden[O, I] = True
        self.register_buffer("forbidden", forbidden)
        self.register_buffer("start", torch.tensor([0.0, 0.0, NEG]))

    def nll(self, emissions, tags):
        trans = self.transitions.masked_fill(self.forbidden, NEG)
        alpha = self.start + emissions[:, 0]
        gold = self.start[tags[:, 0]] + emissions[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, tags.size(1)):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + trans, dim=1) + emissions[:, t]
            gold = gold + trans[tags[:, t - 1], tags[:, t]]
            gold = gold + emissions[:, t].gather(1, tags[:, t:t + 1]).squeeze(1)
        return (alpha.logsumexp(dim=1) - gold).mean()

    @torch.no_grad()
    def decode(self, emissions):
        trans = self.transitions.masked_fill(self.forbidden, NEG)
        score, back = self.start + emissions[:, 0], []
        for t in range(1, emissions.size(1)):
            score, prev = (score.unsqueeze(2) + trans).max(dim=1)
            score = score + emissions[:, t]
            back.append(prev)
        path = [score.argmax(dim=1)]
        for prev in reversed(back):
            path.append(prev.gather(1, path[-1].unsqueeze(1)).squeeze(1))
        return torch.stack(path[::-1], dim=1)


def batch(n=16, t=9):
    tags = torch.zeros(n, t, dtype=torch.long)
    for row in tags:
        start = int(torch.randint(0, t - 3, ()))
        row[start], row[start + 1:start + 3] = B, I
    return torch.nn.functional.one_hot(tags, 3) + 0.8 * torch.randn(n, t, 3), tags


crf, encoder = CRF(), nn.Linear(3, 3)
optimizer = torch.optim.Adam([*crf.parameters(), *encoder.parameters()], lr=0.05)
for step in range(25):
    x, tags = batch()
    loss = crf.nll(encoder(x), tags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
path = crf.decode(encoder(x))
print("nll", loss.item(), "tag accuracy", (path == tags).float().mean().item())
print("I after O:", int(((path[:, 1:] == I) & (path[:, :-1] == O)).sum()))
