import argparse
import copy

import torch
import torch.nn as nn


class EarlyStopping:
    def __init__(self, patience, min_delta=1e-3):
        self.patience = patience
        self.min_delta = min_delta
        self.best, self.bad_epochs = float("inf"), 0
        self.state = None

    def update(self, value, model):
        if value < self.best - self.min_delta:
            print(f"  improved from {self.best:.5f} to {value:.5f}")
            self.best, self.bad_epochs = value, 0
            self.state = copy.deepcopy(model.state_dict())
        else:
            self.bad_epochs += 1
        return self.bad_epochs >= self.patience


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--patience", type=int, default=4)
    parser.add_argument("--max-loss", type=float, default=float("inf"))
    return parser.parse_args()


def main():
    args = parse_args()
    print(vars(args))
    torch.manual_seed(5)
    x = torch.randn(120, 6)
    y = (x @ torch.randn(6, 1)) + 0.1 * torch.randn(120, 1)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    stopper = EarlyStopping(args.patience)
    for epoch in range(args.epochs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[:90]), y[:90])
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            val = nn.functional.mse_loss(model(x[90:]), y[90:]).item()
        plateau.step(val)
        if val > args.max_loss or stopper.update(val, model):
            break
    model.load_state_dict(stopper.state)
    print("stopped at epoch", epoch, "best", round(stopper.best, 5))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
