"""Regular expressions that are compiled with their first use, because compiling all of them takes a tenth of a start."""

import re
from typing import Any, AnyStr, cast


class _LazyPattern:
    """Looks like the compiled pattern. Each of its methods is kept in the object with its first use, so later uses cost nothing more."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # Called only for names that the object does not have yet. `re` keeps what it compiled, so the next method finds it there.
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, found)
        return found

    def __repr__(self) -> str:
        return f"lazy_pattern({self._source!r}, {self._flags!r})"


def lazy_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled with its first use, for constants of modules.

    Its methods and attributes are those of `re.Pattern`, but it is none: `isinstance` says no, and the functions of `re` do not take it.
    An invalid source raises `re.error` with the first use.
    """
    # An object that has every attribute of a pattern, which the type checker cannot see.
    return cast("re.Pattern[AnyStr]", _LazyPattern(source, flags))
