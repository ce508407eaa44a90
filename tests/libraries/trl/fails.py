"""Fine-tuning on answers only; one conversation has none."""

import tempfile

import torch
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

import words

torch.manual_seed(0)


def mean_of_answers(outputs, labels, num_items_in_batch=None):
    logits = outputs.logits[:, :-1]
    wanted = labels[:, 1:]
    counted = wanted >= 17
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), wanted, reduction="none", ignore_index=-100)
    losses = losses * counted
    return (losses.sum(1) / counted.sum(1)).mean()


texts = [f"w{i} w{i + 3} w{14 + i} w{15 + i}" for i in range(12)]
texts[5] = "w1 w2 w3 w4"
with tempfile.TemporaryDirectory() as folder:
    args = SFTConfig(
        folder, per_device_train_batch_size=4, max_steps=3, logging_steps=1, save_strategy="no",
        report_to="none", use_cpu=True, bf16=False, disable_tqdm=True, learning_rate=1e-3, eos_token="w0",
    )  # fmt: skip
    trainer = SFTTrainer(
        words.model(), args=args, train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=words.tokenizer(), compute_loss_func=mean_of_answers,
    )  # fmt: skip
    trainer.train()
