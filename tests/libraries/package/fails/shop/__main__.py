import torch
from torch.utils.data import DataLoader

from .data import Offers
from .features import scaled

torch.manual_seed(0)
net = torch.nn.Embedding(5, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
for kind, price in DataLoader(Offers(), batch_size=8, shuffle=True):
    loss = (net(kind).squeeze(1) - scaled(price)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
