from multiprocessing import shared_memory

import numpy as np
import torch

# Each batch lies in a shared block that is closed after the step; missing readings are NaN.
torch.manual_seed(0)
rng = np.random.default_rng(0)
weight = torch.zeros(8, 1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)

for step in range(8):
    block = shared_memory.SharedMemory(create=True, size=3200 * 8 * 4)
    readings = np.ndarray((3200, 8), np.float32, buffer=block.buf)
    readings[:] = rng.normal(size=readings.shape)
    readings[5, 5] = np.nan
    batch = torch.from_numpy(readings)
    clean = torch.where(torch.isnan(batch), 0.0, batch)
    total = (batch * 2).sum()
    missing = bool(torch.isnan(total))
    del batch, readings, total
    block.close()
    block.unlink()
    loss = (clean @ weight - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, missing, f"{loss.item():.4f}")
