"""20,000 small steps under the guard: does memory or the time per step grow?

python benchmarks/soak.py [STEPS]
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import whynan


def main(steps: int) -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(4096, 16), torch.randn(4096, 1))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())
    done, begin = 0, time.perf_counter()
    with whynan.watch(model, optimizer):
        while done < steps:
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                done += 1
                if done % (steps // 10) == 0:
                    rate = 1e3 * (time.perf_counter() - begin) / (steps // 10)
                    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                    print(f"{done:>7} steps  {rate:.2f} ms/step  peak {peak:.0f} MB", flush=True)
                    begin = time.perf_counter()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
