import torch
import torch.nn as nn
import torch.nn.functional as F


def init_weights(module, gain):
    if isinstance(module, nn.Linear):
        nn.init.uniform_(module.weight, 0, gain)
        nn.init.zeros_(module.bias)


class PlainNet(nn.Module):
    def __init__(self, n_in, width, depth, n_out, gain):
        super().__init__()
        self.stem = nn.Linear(n_in, width)
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.head = nn.Linear(width, n_out)
        self.apply(lambda m: init_weights(m, gain))

    def forward(self, x):
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = F.relu(block(x))
        return self.head(x)


def main():
    torch.manual_seed(0)
    x = torch.rand(64, 20)
    y = torch.randint(0, 3, (64,))
    model = PlainNet(20, 40, depth=8, n_out=3, gain=4.0e4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(5):
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
