"""Two batches make a step; one series of the data never moves."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Series(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        noise = torch.randn(10, generator=torch.Generator().manual_seed(i))
        return torch.full((10,), 2.5) if i == 13 else noise


torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
loader = DataLoader(Series(), batch_size=4, shuffle=True)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
for series in loader:
    with accelerator.accumulate(net):
        scaled = (series - series.mean(1, keepdim=True)) / series.std(1, keepdim=True)
        loss = (net(scaled[:, :-1]).squeeze(1) - scaled[:, -1]).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item())
