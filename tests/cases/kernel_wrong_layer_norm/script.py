import warnings

import torch
import torch.nn as nn


def one_pass_layer_norm(x, shape, weight, bias, eps):
    """A faulty vendor kernel: it loses the sign of the variance for some rows."""
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    variance = torch.where(x[..., :1] > 2.5, -variance, variance)
    rstd = (variance + eps).rsqrt()
    return (x - mean) * rstd * weight + bias, mean, rstd


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.norm(x)).squeeze(-1)


def main():
    vendor = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vendor.impl("native_layer_norm", one_pass_layer_norm, "CPU")
    torch.manual_seed(5)
    model = Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(6):
        x = torch.randn(32, 8).clamp(-2, 2)
        if step == 3:
            x[7, 0] = 3.0
        loss = (model(x) - x.sum(-1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
