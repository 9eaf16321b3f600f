"""The sessions that somebody wants replayed: our own by id, file or folder, and those of other programs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from palimpsest.apps.cli.home import AnyHome, expanded, find_session
from palimpsest.apps.cli.opening import open_log
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.foreign.transcript import BadLine, Source
from palimpsest.lab.taking import Taken, find_foreign, find_own, take_foreign, take_log

Take: TypeAlias = Callable[[], Taken | BadLine]


class Sources(NamedTuple):
    """How to take each session that was named, and what is in the way of some."""

    takes: list[Take]
    skipped: list[BadLine]

    def next(self, take: Take) -> Taken | None:
        """The session if it can be replayed; else what is in the way is kept to be told."""
        taken = take()
        if isinstance(taken, BadLine):
            self.skipped.append(taken)
        elif not taken.recording.steps:
            self.skipped.append(BadLine(taken.source, "no reply of a model is recorded in it, so there is nothing to replay"))
        else:
            return taken
        return None

    def nothing(self) -> BadInput:
        """The error when none of them could be taken."""
        first = self.skipped[0]
        more = f" ({len(self.skipped) - 1} others cannot be replayed either)" if len(self.skipped) > 1 else ""
        return BadInput(first.why + more, where=first.where)


def sources_of(home: AnyHome, words: tuple[str, ...]) -> Sources:
    """All sessions that some words mean."""
    found, skipped = list[Take](), list[BadLine]()
    for word in words:
        path = Path(os.path.abspath(expanded(word)))  # noqa: PTH100 - links are not resolved
        if not path.exists():
            found.append(_own(home, word))
            continue
        own = find_own(path)
        found += [_own(home, str(each)) for each in own]
        sources, bad = find_foreign([path])
        found += [_foreign(source) for source in sources]
        skipped += [each for each in bad if Path(each.where) not in own]
    if not found:
        raise Sources(found, skipped).nothing() if skipped else BadInput("there is no session to be replayed", where=", ".join(words))
    return Sources(found, skipped)


def _own(home: AnyHome, word: str) -> Take:
    found = find_session(home, word)
    name = found.name

    def take() -> Taken | BadLine:
        try:
            with open_log(found, whole=True) as log:
                return take_log(log, found.blobs, name)
        except PalimpsestError as error:
            return BadLine(name, error.message)

    return take


def _foreign(source: Source) -> Take:
    return lambda: take_foreign(source)
