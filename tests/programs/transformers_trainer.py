"""A tiny classifier of token sequences with transformers' Trainer, made from a configuration."""

import hashlib
import sys
import warnings

warnings.simplefilter("ignore")
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertModel, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
BAD = "bad" in sys.argv


class Texts(Dataset):
    def __init__(self, n=96):
        self.ids = torch.randint(1, 40, (n, 12))
        if BAD:
            self.ids[50] = 0  # an empty text: padding only

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        ids = self.ids[i]
        return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": (ids.sum() % 2).long()}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=16,
        )
        self.bert = BertModel(config, add_pooling_layer=False)
        self.head = nn.Linear(16, 2)

    def forward(self, input_ids, attention_mask, labels):
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * mask).sum(1) / mask.sum(1)
        logits = self.head(pooled)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


torch.manual_seed(4)
data = Texts()
model = Classifier()
arguments = TrainingArguments(
    output_dir="unused", num_train_epochs=1, per_device_train_batch_size=4, learning_rate=1e-3, use_cpu=True,
    report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=4,
    gradient_accumulation_steps=2 if "accumulate" in sys.argv else 1,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data)
result = trainer.train()
digest = hashlib.sha256()
for t in (*model.state_dict().values(), torch.get_rng_state()):
    digest.update(t.numpy().tobytes())
finite = all(p.isfinite().all() for p in model.parameters())
print(result.global_step, digest.hexdigest(), "finite" if finite else "not finite")
