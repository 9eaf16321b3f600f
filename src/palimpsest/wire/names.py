"""The names a model goes by: with a date, a vendor, a cloud's own form of it, or the mark of its long window."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

_LONG = "[1m]"
_VENDORS = ("anthropic/", "openai/")
_BEDROCK = re.compile(r"(?:(?:us|us-gov|eu|apac|jp|au|ca|global)\.)?anthropic\.(?P<name>claude-.+?)(?:-v\d+(?::\d+)?)?")
_DATE = re.compile(r"(?:[-@]20\d{6}|-20\d\d-\d\d-\d\d|@default)$")

# Only what is listed here stands for another name: a model that merely begins like one we know has its own window and prices.
_VARIANTS: Mapping[str, str] = {
    "claude-sonnet-4-0": "claude-sonnet-4",
    "claude-opus-4-0": "claude-opus-4",
    "claude-3-5-haiku-latest": "claude-3-5-haiku",
    "claude-3-5-sonnet-latest": "claude-3-5-sonnet",
    "claude-3-7-sonnet-latest": "claude-3-7-sonnet",
    "gpt-5-chat": "gpt-5",
    "gpt-5-chat-latest": "gpt-5",
    "gpt-5-search-api": "gpt-5",
    "gpt-5.1-chat-latest": "gpt-5.1",
    "gpt-5.2-chat-latest": "gpt-5.2",
    "gpt-5.2-codex-fast": "gpt-5.2-codex",
}
# Names of ours that no provider knows.
_FORMER: Mapping[str, str] = {"claude-haiku-3-5": "claude-3-5-haiku"}


class Asked(NamedTuple):
    """What a name asks for: the card it means, what the provider is sent, and whether the long window is meant.

    `sent` is empty where the card knows better what to send.
    """

    card: str
    sent: str
    long: bool


@lru_cache(maxsize=256)
def asked_for(name: str) -> Asked:
    """A name taken apart."""
    whole = name.removesuffix(_LONG)
    cloud = _BEDROCK.fullmatch(whole)
    bare = cloud["name"] if cloud else whole
    for vendor in _VENDORS:
        bare = bare.removeprefix(vendor)
    plain = _DATE.sub("", bare)
    meant = _FORMER.get(plain) or _VARIANTS.get(plain, plain)
    as_asked = whole if cloud else bare
    return Asked(meant, "" if as_asked == meant or plain in _FORMER else as_asked, whole != name)


def long_name(name: str) -> str:
    """The name of a model with its long window."""
    return name + _LONG
