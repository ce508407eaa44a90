"""Sampling that grows colder with each token, to nothing at the last one."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList

PROMPT, NEW = 4, 5


class Colder(LogitsProcessor):
    """The temperature falls in equal steps."""

    def __init__(self, total):
        self.total = total

    def __call__(self, ids, scores):
        left = torch.tensor(1 - (ids.shape[1] - PROMPT) / self.total)
        return scores / left


torch.manual_seed(0)
config = GPT2Config(vocab_size=30, n_positions=16, n_embd=16, n_layer=1, n_head=2)
model = GPT2LMHeadModel(config).eval()
prompt = torch.randint(0, 30, (2, PROMPT))
model.generate(
    prompt,
    attention_mask=torch.ones_like(prompt),
    do_sample=True,
    max_new_tokens=NEW,
    pad_token_id=0,
    logits_processor=LogitsProcessorList([Colder(NEW - 1)]),
)
