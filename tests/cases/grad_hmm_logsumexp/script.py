"""Left-to-right hidden Markov model fitted by gradient descent on the marginal likelihood."""
import argparse

import torch
import torch.nn as nn

NEG_INF = float("-inf")


class LeftRightHMM(nn.Module):
    def __init__(self, states, symbols):
        super().__init__()
        self.states = states
        self.transition = nn.Parameter(torch.zeros(states, states))
        self.emission = nn.Parameter(0.5 * torch.randn(states, symbols))
        band = torch.ones(states, states).triu().tril(1).bool()
        self.register_buffer("allowed", band)
        prior = torch.full((states,), NEG_INF)
        prior[0] = 0.0
        self.register_buffer("prior", prior)

    def forward(self, seq):
        log_a = self.transition.masked_fill(~self.allowed, NEG_INF).log_softmax(dim=1)
        log_b = self.emission.log_softmax(dim=1)
        alpha = self.prior + log_b[:, seq[0]]
        for symbol in seq[1:]:
            arrive = alpha.unsqueeze(1) + log_a
            alpha = torch.logsumexp(arrive, dim=0) + log_b[:, symbol]
        return alpha.logsumexp(dim=0)


def sample_sequences(count, length, symbols):
    base = torch.linspace(0, symbols - 1, length).round().long()
    noise = torch.randint(-1, 2, (count, length))
    return (base + noise).clamp(0, symbols - 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--states", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(8)
    data = sample_sequences(12, 9, 6)
    hmm = LeftRightHMM(args.states, 6)
    optimizer = torch.optim.Adam(hmm.parameters(), lr=0.05)
    for epoch in range(args.epochs):
        total = 0.0
        for batch in data.split(4):
            nll = -torch.stack([hmm(seq) for seq in batch]).mean() / batch.shape[1]
            optimizer.zero_grad()
            nll.backward()
            optimizer.step()
            total += nll.item()
        print("epoch", epoch, "nll per symbol", round(total / 3, 4))


if __name__ == "__main__":
    main()
