import warnings

import torch
import torch.nn as nn

calls = 0


def racing_softplus(x, beta=1, threshold=20):
    """A kernel that now and then reads what another thread has not written yet."""
    global calls
    calls += 1
    out = torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)
    if calls == 4:
        out[0] = float("nan")
    return out


def main():
    vendor = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vendor.impl("softplus", racing_softplus, "CPU")
    torch.manual_seed(2)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(6):
        x = torch.randn(24, 6)
        rate = nn.functional.softplus(model(x).squeeze(-1))
        loss = (rate - x.abs().sum(-1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
