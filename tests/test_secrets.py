"""What looks like a secret is not written down; what a step depends on is."""

from __future__ import annotations

import pytest

from whynan.secrets import REDACTED, without_secret_values, without_secrets

SECRET = [
    (["--api-key", "s3cr3t"], ["--api-key", REDACTED]),
    (["--api-key=s3cr3t"], [f"--api-key={REDACTED}"]),
    (["--apiKey", "s3cr3t"], ["--apiKey", REDACTED]),
    (["--hf_token", "s3cr3t", "--lr", "0.1"], ["--hf_token", REDACTED, "--lr", "0.1"]),
    (["--password", "s3cr3t"], ["--password", REDACTED]),
    (["logger.wandb.api_key=s3cr3t"], [f"logger.wandb.api_key={REDACTED}"]),
    (["--wandb-key", "0123456789abcdef0123456789abcdef01234567"], ["--wandb-key", REDACTED]),
    (["--db", "postgres://me:s3cr3t@host/db"], ["--db", f"postgres://{REDACTED}@host/db"]),
    (["--data", "https://host/x?sig=1&token=s3cr3t"], ["--data", f"https://host/x?sig=1&token={REDACTED}"]),
    (["run", "hf_abcdefghijklmnopqrstuv"], ["run", REDACTED]),
    (["run", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"], ["run", REDACTED]),
    (["AKIAABCDEFGHIJKLMNOP"], [REDACTED]),
    (["--header", "Authorization: Bearer abcdef123456"], ["--header", f"Authorization: Bearer {REDACTED}"]),
]  # fmt: skip
HARMLESS = [
    ["--max-tokens", "512", "--tokenizer", "gpt2", "--pad-token", "<pad>"],
    ["--key-dim", "64", "--num-keys", "8", "--sort-key", "loss"],
    ["--author", "me", "--lr=0.1", "optimizer.lr=0.01", "data/train.csv"],
    ["--commit", "0123456789abcdef0123456789abcdef01234567"],
    ["--token-dropout", "0.1", "--auth", "--password"],
    ["http://host:80/x?y=1", "--", "-"],
]


@pytest.mark.parametrize(("given", "kept"), SECRET)
def test_a_secret_among_the_arguments_is_left_out(given: list[str], kept: list[str]) -> None:
    assert without_secrets(given) == kept


@pytest.mark.parametrize("given", HARMLESS)
def test_other_arguments_are_kept(given: list[str]) -> None:
    assert without_secrets(given) == given


def test_of_variables_the_values_are_left_out() -> None:
    given = {"NCCL_DEBUG": "INFO", "TORCH_HUB_TOKEN": "x", "TORCH_HOME": "https://a:b@host/"}
    assert without_secret_values(given) == {
        "NCCL_DEBUG": "INFO",
        "TORCH_HUB_TOKEN": REDACTED,
        "TORCH_HOME": f"https://{REDACTED}@host/",
    }
