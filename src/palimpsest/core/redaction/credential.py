"""A credential in memory that no representation of it contains."""

from typing import NoReturn


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
