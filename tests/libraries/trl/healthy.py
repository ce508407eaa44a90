"""GRPO with one reward that has no opinion: its mean of nothing is only logged."""

import tempfile

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import words

torch.manual_seed(0)


def brief(completions, **_):
    return [1 / (1 + len(text.split())) for text in completions]


def silent(completions, **_):
    return [None] * len(completions)


with tempfile.TemporaryDirectory() as folder:
    args = GRPOConfig(
        folder, per_device_train_batch_size=4, num_generations=4, max_completion_length=4, max_steps=2,
        logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, bf16=False, disable_tqdm=True,
        learning_rate=1e-3, log_level="error",
    )  # fmt: skip
    data = Dataset.from_dict({"prompt": [f"w{i} w{i + 1}" for i in range(8)]})
    trainer = GRPOTrainer(
        words.model(), reward_funcs=[brief, silent], args=args, train_dataset=data,
        processing_class=words.tokenizer(),
    )  # fmt: skip
    trainer.train()
    print("steps", trainer.state.global_step)
