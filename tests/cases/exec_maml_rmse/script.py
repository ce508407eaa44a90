"""First steps of MAML on families of step responses."""
import torch
import torch.nn as nn


def init_params(width=20):
    w1 = torch.randn(1, width) * 0.8
    b1 = torch.zeros(width)
    w2 = torch.zeros(width, 1)
    b2 = torch.zeros(1)
    return [nn.Parameter(p) for p in (w1, b1, w2, b2)]


def predict(params, x):
    w1, b1, w2, b2 = params
    return torch.tanh(x @ w1 + b1) @ w2 + b2


def rmse(params, x, y):
    err = predict(params, x) - y
    return err.pow(2).mean().sqrt()


def adapt(params, x, y, rate):
    loss = rmse(params, x, y)
    grads = torch.autograd.grad(loss, params, create_graph=True)
    return [p - rate * g for p, g in zip(params, grads)]


def sample_task(generator, kind):
    x = torch.rand(20, 1, generator=generator) * 4 - 2
    amplitude = 0.5 + torch.rand(1, generator=generator)
    y = amplitude * torch.sin(2 * x)
    if kind == "onset":
        y = torch.where(x > 1.0, y, torch.zeros_like(y))
        order = x[:, 0].argsort()
        x, y = x[order], y[order]
    return (x[:10], y[:10]), (x[10:], y[10:])


def main():
    torch.manual_seed(78)
    g = torch.Generator().manual_seed(78)
    params = init_params()
    meta = torch.optim.Adam(params, lr=1e-2)
    kinds = ["wave", "wave", "onset", "wave"]
    for it in range(4):
        meta.zero_grad()
        total = torch.zeros(())
        for kind in kinds:
            (xs, ys), (xq, yq) = sample_task(g, kind)
            fast = adapt(params, xs, ys, rate=0.1)
            total = total + (predict(fast, xq) - yq).abs().mean()
        total.backward()
        meta.step()
        print(f"meta iteration {it}: query error {total.detach() / len(kinds):.4f}")


if __name__ == "__main__":
    main()
