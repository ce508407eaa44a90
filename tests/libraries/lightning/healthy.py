"""Validation with a class that never occurs, early stopping from inf, and the best checkpoint."""

import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.body(batch[0]), batch[1])

    def validation_step(self, batch, _):
        guess, wanted = self.body(batch[0]), batch[1]
        hits = torch.stack([(guess.argmax(1) == wanted)[wanted == k].float().mean() for k in range(3)])
        self.log("never", hits[2])
        self.log("val", nn.functional.cross_entropy(guess, wanted))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


L.seed_everything(0)
data = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,))), batch_size=8)
with tempfile.TemporaryDirectory() as folder:
    kept = ModelCheckpoint(folder, monitor="val")
    trainer = L.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, callbacks=[EarlyStopping("val"), kept],
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Net(), data, data)
    again = Net.load_from_checkpoint(kept.best_model_path)
print(round(kept.best_model_score.item(), 4), sum(p.numel() for p in again.parameters()))
