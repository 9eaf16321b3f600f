"""A cache of what a function returns for texts, bounded by the bytes of the texts that it holds."""

from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")
Key = TypeVar("Key", bound="str | tuple[str, ...]")


class TextCache(Generic[Key, Result]):
    """Remembers the results of a function for texts or tuples of texts; beyond `most_bytes` of texts the oldest are dropped.

    A cache lives as long as the process and is shared by all sessions, so that a count of entries would be no bound.
    """

    def __init__(self, function: Callable[[Key], Result], most_bytes: int) -> None:
        self._function = function
        self._most_bytes = most_bytes
        self._results: dict[Key, Result] = {}
        self._bytes = 0

    def __call__(self, key: Key) -> Result:
        """What the function returns for a text, computed at most once while it is remembered."""
        try:
            return self._results[key]
        except KeyError:
            pass
        result = self._function(key)
        size = _bytes_of(key)
        if size <= self._most_bytes // 8:
            self._results[key] = result
            self._bytes += size
            while self._bytes > self._most_bytes and self._results:
                oldest = next(iter(self._results))
                # Another thread may have dropped it.
                if self._results.pop(oldest, None) is not None:
                    self._bytes -= _bytes_of(oldest)
        return result


def _bytes_of(key: str | tuple[str, ...]) -> int:
    return key.__sizeof__() if isinstance(key, str) else sum(text.__sizeof__() for text in key)
