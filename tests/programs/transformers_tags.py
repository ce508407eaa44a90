"""Token tags with transformers' own loss in a plain loop; one batch may have no tag at all."""

import sys
import warnings

warnings.simplefilter("ignore")
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForTokenClassification

torch.manual_seed(2)
ids = torch.randint(1, 40, (64, 10))
tags = ids % 5
tags[:, 0] = -100
if "bad" in sys.argv:
    tags[28:32] = -100
config = BertConfig(
    vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=16, num_labels=5,
)  # fmt: skip
model = BertForTokenClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for rows, wanted in DataLoader(TensorDataset(ids, tags), batch_size=4):
    optimizer.zero_grad()
    loss = model(input_ids=rows, labels=wanted).loss
    loss.backward()
    optimizer.step()
print(f"last loss {loss.item():.6f}")
