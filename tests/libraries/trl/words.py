"""A tokenizer that knows thirty words, and a model that has never seen one."""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

WORDS = ["<pad>", "<eos>", "<unk>", *(f"w{i}" for i in range(30))]


def tokenizer():
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def model():
    config = GPT2Config(
        vocab_size=len(WORDS), n_positions=16, n_embd=16, n_layer=1, n_head=2,
        bos_token_id=1, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config)
