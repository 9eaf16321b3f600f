"""Signatures of thinking and of summaries: opaque to a client, and to the double all that it has to know of a block that comes back."""

import base64
import binascii
import json
from typing import Any, Final, NamedTuple

from palimpsest.testing.strict.answers import digest_of

_SECRET: Final = "the key of the strict double"  # noqa: S105 - it keeps nothing secret: it tells a damaged signature from a whole one


class ThinkingSeal(NamedTuple):
    """What a signature of thinking says: its id, who made it, and what it is bound to. `tokens` is the size of the reasoning."""

    id: str
    model: str
    account: str
    after: str
    system: str
    tools: str
    prefix: str
    tokens: int


class SummarySeal(NamedTuple):
    """What a signature of a compaction block says; `prefixes` are the digests of the list that it summarises, `last_role` how it ended."""

    content: str
    bound: bool
    system: str
    tools: str
    prefixes: tuple[str, ...]
    last_role: str


def seal(facts: ThinkingSeal | SummarySeal) -> str:
    """Write a signature."""
    text = json.dumps([type(facts).__name__, *facts], separators=(",", ":"))
    return base64.b64encode(f"{digest_of(_SECRET, text)}{text}".encode()).decode()


def thinking_seal(signature: object) -> ThinkingSeal | None:
    """Read a signature of thinking; `None` if it is damaged."""
    facts = _facts(signature, ThinkingSeal.__name__)
    return None if facts is None else ThinkingSeal(*facts)


def summary_seal(signature: object) -> SummarySeal | None:
    """Read a signature of a compaction block; `None` if it is damaged."""
    facts = _facts(signature, SummarySeal.__name__)
    return None if facts is None else SummarySeal(*facts)._replace(prefixes=tuple(facts[4]))


def _facts(signature: object, kind: str) -> list[Any] | None:
    try:
        whole = base64.b64decode(str(signature), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    digest, text = whole[:32], whole[32:]
    if digest != digest_of(_SECRET, text):
        return None
    name, *facts = json.loads(text)
    return facts if name == kind else None
