"""Keys of the stores: ids of sessions and addresses of blobs, with the same rules in every store."""

import os
import re
import time

from palimpsest.core.errors import BadInput

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST = 128
_ADDRESS = re.compile(r"[0-9a-f]{64}")


def new_session_id(now: int) -> str:
    """An id that sorts by time: date, time and four random letters; `now` is milliseconds since 1970."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now / 1000))
    return f"{stamp}-{''.join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(4))}"


def demand_id(session: str) -> None:
    """Refuse with `BadInput` what cannot be the id of a session: it is a plain name, so that it never leaves its folder or table."""
    if not session or session.startswith(".") or not _PLAIN.issuperset(session) or len(session) > _LONGEST:
        raise BadInput(f"{session!r} cannot be the id of a session: letters, digits, dots, dashes and underscores only")


def is_address(word: str) -> bool:
    """Whether a word has the form of a blob's address: 64 lower-case hex digits."""
    return _ADDRESS.fullmatch(word) is not None


def demand_address(address: str) -> None:
    """Refuse with `BadInput` what cannot be the address of a blob."""
    if not is_address(address):
        raise BadInput(f"{address[:80]!r} is no blob address: it has to be 64 lower-case hex digits")
