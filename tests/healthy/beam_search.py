import torch
import torch.nn as nn

torch.manual_seed(9)
VOCAB, BOS, EOS, BEAM, LIMIT = 15, 0, 1, 4, 8


class StepModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 16)
        self.cell = nn.GRUCell(16, 16)
        self.out = nn.Linear(16, VOCAB)

    def forward(self, token, state):
        state = self.cell(self.embed(token), state)
        return torch.log_softmax(3 * self.out(state), dim=-1), state


@torch.no_grad()
def beam_search(model, batch):
    scores = torch.full((batch, BEAM), float("-inf"))
    scores[:, 0] = 0.0
    tokens = torch.full((batch, BEAM, 1), BOS)
    finished = torch.zeros(batch, BEAM, dtype=torch.bool)
    state = torch.randn(batch, 1, 16).repeat(1, BEAM, 1)
    stay = torch.full((VOCAB,), float("-inf"))
    stay[EOS] = 0.0
    for _ in range(LIMIT):
        logp, new_state = model(tokens[:, :, -1].reshape(-1), state.reshape(-1, 16))
        logp = logp.view(batch, BEAM, VOCAB)
        logp[..., BOS] = -float("inf")
        logp = torch.where(finished.unsqueeze(-1), stay, logp)
        scores, flat = (scores.unsqueeze(-1) + logp).view(batch, -1).topk(BEAM, dim=-1)
        parent, token = flat // VOCAB, flat % VOCAB
        pick = parent.unsqueeze(-1)
        state = new_state.view(batch, BEAM, 16).gather(1, pick.expand(-1, -1, 16))
        tokens = torch.cat([tokens.gather(1, pick.expand(-1, -1, tokens.size(2))), token.unsqueeze(-1)], dim=2)
        finished = finished.gather(1, parent) | (token == EOS)
        if finished.all():
            break
    length = (tokens != EOS).sum(dim=2).float()
    return tokens, scores / length.pow(0.6)


tokens, scores = beam_search(StepModel().eval(), batch=3)
best = scores.argmax(dim=1)
for b in range(3):
    print([round(s, 3) for s in scores[b].tolist()], tokens[b, best[b]].tolist())
