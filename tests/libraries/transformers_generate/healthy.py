"""Sampling and beams that may only write even tokens: all others have scores of -inf."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=30, n_positions=16, n_embd=16, n_layer=1, n_head=2)
model = GPT2LMHeadModel(config).eval()
prompt = torch.randint(1, 30, (2, 4))
prompt[0, :2] = 0
for settings in ({"do_sample": True, "top_k": 3}, {"num_beams": 3}):
    out = model.generate(
        prompt,
        attention_mask=(prompt != 0).long(),
        max_new_tokens=4,
        pad_token_id=0,
        prefix_allowed_tokens_fn=lambda _, ids: list(range(2, 30, 2)),
        output_scores=True,
        return_dict_in_generate=True,
        **settings,
    )
    print(out.sequences[:, 4:].tolist(), out.scores[0].min().item())
