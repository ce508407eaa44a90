import torch

torch.manual_seed(10)

start = torch.tensor([1.0, 0.0, 0.0, 0.0])
trans = torch.tensor([
    [0.7, 0.3, 0.0, 0.0],
    [0.0, 0.6, 0.4, 0.0],
    [0.0, 0.0, 0.8, 0.2],
    [0.0, 0.0, 0.0, 1.0],
])
emit = torch.tensor([
    [0.8, 0.1, 0.1],
    [0.1, 0.8, 0.1],
    [0.1, 0.1, 0.8],
    [0.5, 0.5, 0.0],
])


def sample(length):
    state, states, symbols = 0, [], []
    for _ in range(length):
        states.append(state)
        symbols.append(int(torch.multinomial(emit[state], 1)))
        state = int(torch.multinomial(trans[state], 1))
    return states, symbols


def forward_algorithm(symbols):
    log_start, log_trans, log_emit = start.log(), trans.log(), emit.log()
    alpha = log_start + log_emit[:, symbols[0]]
    for s in symbols[1:]:
        alpha = torch.logsumexp(alpha.unsqueeze(1) + log_trans, dim=0) + log_emit[:, s]
    return torch.logsumexp(alpha, dim=0)


def viterbi(symbols):
    log_trans = torch.log(trans)
    score = torch.log(start) + torch.log(emit[:, symbols[0]])
    back = []
    for s in symbols[1:]:
        score, prev = (score[:, None] + log_trans).max(dim=0)
        score = score + torch.log(emit[:, s])
        back.append(prev)
    path = [int(score.argmax())]
    for prev in reversed(back):
        path.append(int(prev[path[-1]]))
    return path[::-1], score.max()


total = 0.0
for i in range(6):
    states, symbols = sample(14)
    loglik = forward_algorithm(symbols)
    path, best = viterbi(symbols)
    agree = sum(a == b for a, b in zip(path, states))
    total += loglik.item()
    print(f"sequence {i}: loglik {loglik.item():.3f}  viterbi {best.item():.3f}  states right {agree}/14")
print("total", round(total, 3))
