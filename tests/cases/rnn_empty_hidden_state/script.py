import torch
from torch import nn

torch.manual_seed(47)
torch.use_deterministic_algorithms(True)


class StackedCells(nn.Module):
    def __init__(self, n_in, hidden, layers):
        super().__init__()
        self.cells = nn.ModuleList(nn.GRUCell(n_in if i == 0 else hidden, hidden) for i in range(layers))
        self.hidden = hidden

    def initial_state(self, batch):
        return [torch.zeros(batch, self.hidden)] + [torch.empty(batch, self.hidden) for _ in self.cells[1:]]

    def forward(self, x):
        state = self.initial_state(x.size(0))
        outputs = torch.empty(x.size(0), x.size(1), self.hidden)
        for t in range(x.size(1)):
            inp = x[:, t]
            for i, cell in enumerate(self.cells):
                state[i] = cell(inp, state[i])
                inp = state[i]
            outputs[:, t] = inp
        return outputs


class Speller(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = StackedCells(6, 12, 2)
        self.out = nn.Linear(12, 4)

    def forward(self, x):
        return self.out(self.core(x))


net = Speller()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for it in range(3):
    x = torch.randn(5, 7, 6)
    y = x[..., :4].argmax(-1)
    loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, loss.item())
