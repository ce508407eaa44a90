import torch
import torch.nn as nn


class GatedMixer(nn.Module):
    """Blends two experts with a learned squashed gate per output."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.a = nn.Linear(n_in, n_out)
        self.b = nn.Linear(n_in, n_out)
        self.gate = nn.Parameter(torch.linspace(-1.0, 1.0, n_out))

    def forward(self, x):
        g = torch.tanh(self.gate)
        return 0.5 * (1 + g) * self.a(x) + 0.5 * (1 - g) * self.b(x)


def parameter_groups(model):
    gates = [p for n, p in model.named_parameters() if n == "gate"]
    rest = [p for n, p in model.named_parameters() if n != "gate"]
    return [
        {"params": rest, "weight_decay": 1e-4},
        {"params": gates, "weight_decay": 40.0, "lr": 0.2},
    ]


def main(steps=60):
    torch.manual_seed(15)
    truth = torch.randn(6, 5)
    model = GatedMixer(6, 5)
    optimizer = torch.optim.SGD(parameter_groups(model), lr=0.01, momentum=0.9)
    for step in range(steps):
        x = torch.randn(24, 6)
        loss = nn.functional.mse_loss(model(x), x @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}")
    print("finished, final loss", loss.item())


if __name__ == "__main__":
    main()
