"""A checkpoint with a NaN in it, loaded for more training."""

import os
import tempfile

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.mse_loss(self.body(x).squeeze(1), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def spoilt(path):
    """As an earlier run left it."""
    L.seed_everything(0)
    weights = Net().state_dict()
    weights["body.0.weight"][2, 1] = float("nan")
    saved = {"state_dict": weights, "pytorch-lightning_version": L.__version__}
    torch.save(saved, path)


data = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16)), batch_size=8)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "last.ckpt")
    spoilt(path)
    net = Net.load_from_checkpoint(path)
trainer = L.Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(net, data)
print(next(net.parameters()).sum().item())
