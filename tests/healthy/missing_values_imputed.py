import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(14)
torch.manual_seed(14)
torch.set_num_threads(1)

table = rng.normal(loc=[50, 1.7, 3000, 0], scale=[12, 0.1, 900, 1], size=(200, 4)).astype(np.float32)
target = (0.05 * table[:, 0] + 0.001 * table[:, 2] + rng.normal(size=200)).astype(np.float32)
table[rng.random(table.shape) < 0.15] = np.nan
table[3] = np.nan

features = torch.from_numpy(table)
y = torch.from_numpy(target).unsqueeze(1)

missing = torch.isnan(features)
print("any missing:", missing.any())
print("missing per column:", missing.sum(dim=0).tolist())
print("row 0 complete:", bool(torch.isfinite(features[0]).all()))

centre = torch.nanmean(features, dim=0)
spread = torch.nanmean((features - centre) ** 2, dim=0).sqrt()
median = features.nanmedian(dim=0).values
print("column means", [round(v, 3) for v in centre.tolist()])
print("column medians", [round(v, 3) for v in median.tolist()])

imputed = torch.where(missing, centre, features)
scaled = torch.nan_to_num((features - centre) / spread, nan=0.0)
assert torch.allclose(scaled, (imputed - centre) / spread)
inputs = torch.cat([scaled, missing.float()], dim=1)

model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(10):
    for idx in torch.randperm(200).split(50):
        loss = nn.functional.smooth_l1_loss(model(inputs[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("gradients clean:", all(torch.isfinite(p.grad).all() for p in model.parameters()))
print("final loss", loss.item())
