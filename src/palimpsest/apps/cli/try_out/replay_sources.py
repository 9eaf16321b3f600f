"""What a replay works on: sessions of our own and of other programs, and the model that writes its summaries."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeAlias

from palimpsest.apps.cli.engine_session import provider_of
from palimpsest.apps.cli.home import AnyHome, expanded, find_session
from palimpsest.apps.cli.opening import cards_of, open_log
from palimpsest.core.errors import BadInput, PalimpsestError, PromptTooLong, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.view import View
from palimpsest.engine.sending import whole_reply
from palimpsest.foreign.reading.transcript import BadLine, Source
from palimpsest.lab.simulation.loading import LoadedSession, find_foreign, find_own_logs, load_foreign, load_log
from palimpsest.lab.simulation.simulated_requests import RealSummaries
from palimpsest.wire.encode import encode
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import card
from palimpsest.wire.request import Params, Tool, for_another

# No key that is valid, no right to use the model, no such model: every other request would end the same way.
_TURNED_AWAY = frozenset({401, 403, 404})


class ModelRejected(Exception):
    """The very first request failed in a way in which all others would; no error of ours, for policies go on after those."""

    def __init__(self, model: str, error: ProviderError) -> None:
        super().__init__(error.message)
        self._told = ProviderError(f"the model cannot be asked, so nothing was replayed: {error.message}", where=model, status=error.status)

    def tell(self) -> NoReturn:
        """Raise it as the one line that a person reads."""
        raise self._told


def real_summaries(home: AnyHome, name: str) -> RealSummaries | None:
    """What asks a real model for the summaries of a replay, if one is named. Raises `BadInput` if it cannot be asked."""
    if not name:
        return None
    model = card(name, cards_of(home))
    provider = provider_of(model)
    if provider is None:
        raise BadInput("this model cannot be asked; set its key, unset PAL_OFFLINE, or leave --model out", where=name)
    asked = False

    async def ask(view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        nonlocal asked
        first, asked = not asked, True
        try:
            return await whole_reply(provider, encode(view, model, tools, for_another(params, model), fetch))
        except ProviderError as error:
            lost = error.status in _TURNED_AWAY or (error.status is None and not isinstance(error, PromptTooLong))
            if first and lost:
                raise ModelRejected(name, error) from error
            raise

    return ask


Take: TypeAlias = Callable[[], LoadedSession | BadLine]


class Sources(NamedTuple):
    """How to take each session that was named, and what is in the way of some."""

    takes: list[Take]
    skipped: list[BadLine]

    def next(self, take: Take) -> LoadedSession | None:
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
        own = find_own_logs(path)
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

    def take() -> LoadedSession | BadLine:
        try:
            with open_log(found, whole=True) as log:
                return load_log(log, found.blobs, name)
        except PalimpsestError as error:
            return BadLine(name, error.message)

    return take


def _foreign(source: Source) -> Take:
    return lambda: load_foreign(source)
