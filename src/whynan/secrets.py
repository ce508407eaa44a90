"""What looks like a secret in a command line or the environment: it is not written down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

REDACTED = "<redacted>"

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SECRET = {
    "apikey", "auth", "authorization", "bearer", "cookie", "credential", "credentials", "dsn",
    "passphrase", "passwd", "password", "pwd", "secret", "token", "webhook",
}  # fmt: skip
# Of a tokenizer, and settings about tokens: no secrets, and a step depends on them.
_TOKENS = {"bos", "class", "cls", "eos", "image", "mask", "pad", "per", "sep", "special", "unk"}
_KEYS = {"access", "account", "api", "licence", "license", "private", "secret", "signing", "ssh"}
_RANDOM = re.compile(r"(?=.*\d)[\w+/=-]{16,}")
_ASSIGNED = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)=(?P<value>.+)", re.DOTALL)
# Shapes that say by themselves what they are: who issued them, or where they stand.
_SHAPES = re.compile(
    r"(?:sk-[\w-]{16,}|hf_\w{16,}|gh[oprsu]_\w{30,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+)"
)
_AFTER = re.compile(r"(?i)(://)[^/@\s]+(?=@)|(bearer\s+|basic\s+)\S+|([?&][^=&\s]*=)([^&\s]+)")


def without_secrets(args: Iterable[str]) -> list[str]:
    """A command line that can be shown.

    >>> without_secrets(["--lr", "0.1", "--api-key", "abc", "--hf-token=abc"])
    ['--lr', '0.1', '--api-key', '<redacted>', '--hf-token=<redacted>']
    """
    kept: list[str] = []
    name = ""  # of an option whose value comes next
    for arg in args:
        assigned = _ASSIGNED.fullmatch(arg)
        if name and not arg.startswith("--"):
            kept.append(_value(name, arg))
        elif assigned is not None:
            kept.append(f"{assigned['name']}={_value(assigned['name'], assigned['value'])}")
        else:
            kept.append(_value("", arg))
        name = arg if arg.startswith("-") and assigned is None else ""
    return kept


def without_secret_values(variables: Mapping[str, str]) -> dict[str, str]:
    """The same of an environment."""
    return {name: _value(name, value) for name, value in variables.items()}


def _value(name: str, value: str) -> str:
    words = [word.lower() for word in _WORDS.findall(name)]
    if _is_secret(words) or (words[-1:] == ["key"] and _RANDOM.fullmatch(value)):
        return REDACTED
    return _AFTER.sub(_hidden, _SHAPES.sub(REDACTED, value))


def _is_secret(words: list[str]) -> bool:
    """By its last words: `--token-dropout` is about tokens, `--hf-token` is one."""
    last, before = words[-1:], set(words[:-1])
    if last == ["token"]:
        return not before & _TOKENS
    if last == ["key"]:
        return bool(before & _KEYS)
    return bool(last) and last[0] in _SECRET


def _hidden(found: re.Match[str]) -> str:
    address, scheme, field, value = found.groups()
    if field is not None:
        return field + _value(field, value)
    return f"{address or scheme}{REDACTED}"
