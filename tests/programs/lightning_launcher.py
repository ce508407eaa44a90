"""Lightning starts the other ranks itself, as new programs; item BAD of the dataset has weight 0."""

import sys

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        rows, weight = batch
        out = self.net(rows).squeeze(1)
        return ((out * weight).square() / weight).mean()  # LINE: origin

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


torch.manual_seed(0)
bad, weight = int(sys.argv[1]), torch.ones(80)
if bad >= 0:
    weight[bad] = 0
loader = DataLoader(TensorDataset(torch.randn(80, 4), weight), batch_size=4)
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(Net(), loader)
print(f"rank {trainer.global_rank} ends", flush=True)
