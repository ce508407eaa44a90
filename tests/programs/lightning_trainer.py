"""Ranks items with Lightning; one blank item has no direction."""

import hashlib
import sys
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

warnings.simplefilter("ignore")
BAD, STREAM = "bad" in sys.argv, "stream" in sys.argv


class Items(Dataset):
    def __init__(self, n=96):
        self.x = torch.rand(n, 6) + 0.1
        if BAD and n > 20:
            self.x[50] = 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.x[i].sum()


class Stream(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter([self.items[i] for i in range(len(self.items))])


class Ranker(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))

    def forward(self, x):
        unit = x / x.norm(dim=1, keepdim=True)
        return self.net(unit).squeeze(-1)

    def training_step(self, batch, index):
        x, y = batch
        loss = (self(x) - y).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("validation", (self(batch[0]) - batch[1]).abs().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


torch.manual_seed(3)
train = Items()
if STREAM:
    loader = DataLoader(Stream(train), batch_size=4)
else:
    loader = DataLoader(train, batch_size=4, shuffle=True)
trainer = L.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, num_sanity_val_steps=1, gradient_clip_val=1.0,
)
model = Ranker()
trainer.fit(model, loader, DataLoader(Items(8), batch_size=4))
digest = hashlib.sha256()
for t in (*model.state_dict().values(), torch.get_rng_state()):
    digest.update(t.numpy().tobytes())
finite = all(p.isfinite().all() for p in model.parameters())
print(trainer.global_step, digest.hexdigest(), "finite" if finite else "not finite")
