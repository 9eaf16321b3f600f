"""Finds and redacts secrets in texts, and holds credentials so that no text contains them."""

from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from palimpsest.core.secrets import Secret


def find_secrets(text: str) -> "tuple[Secret, ...]":
    """Return all secrets in order; overlapping ones are merged, with the class that comes first in `CLASSES`."""
    # The rules are imported with their first use: most starts need none of them.
    found: tuple[Secret, ...] = import_module("palimpsest.core.secrets").find_secrets(text)
    return found


def redact(text: str) -> str:
    """Return the text with each secret replaced by `[REDACTED:<class>]`; redacting again changes nothing."""
    redacted: str = import_module("palimpsest.core.secrets").redact(text)
    return redacted


class Credential:
    """A text that its representations do not contain; only `reveal` returns it. Equal if the texts are equal."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, to send it and for nothing else."""
        return self._text

    def __repr__(self) -> str:
        return "Credential(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Credential) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> NoReturn:
        # A pickle would contain the text.
        raise TypeError("a credential is not serialised")
