"""Inputs of a replay: loaders for our sessions and those of other programs, and the model that writes summaries."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeAlias

from palimpsest.apps.cli.engine_session import provider_of, settings_of
from palimpsest.apps.cli.home import AnyHome, expand_path, find_session
from palimpsest.apps.cli.opening import cards_of, open_log
from palimpsest.core.errors import BadInput, PalimpsestError, PromptTooLong, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.view import View
from palimpsest.engine.sending import whole_reply
from palimpsest.foreign.reading.transcript import ReadProblem, TranscriptSource
from palimpsest.lab.simulation.loading import LoadedSession, find_foreign, find_own_logs, load_foreign, load_log
from palimpsest.lab.simulation.simulated_requests import RealSummaries
from palimpsest.wire.encode import encode
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import card
from palimpsest.wire.request import Params, Tool, adapted_params

# Invalid key, no access, unknown model: all further requests would fail the same way.
_PERMANENT_STATUSES = frozenset({401, 403, 404})


class ModelRejected(Exception):
    """The first request failed permanently; not a `PalimpsestError`, because policies continue after those."""

    def __init__(self, model: str, error: ProviderError) -> None:
        super().__init__(error.message)
        self._user_error = ProviderError(
            f"the model cannot be called, so nothing was replayed: {error.message}", where=model, status=error.status
        )

    def raise_for_user(self) -> NoReturn:
        """Raise the `ProviderError` for the user."""
        raise self._user_error


def real_summaries(home: AnyHome, name: str) -> RealSummaries | None:
    """Return a function that asks the named model for summaries; None without a name. Raises `BadInput` if it cannot be called."""
    if not name:
        return None
    model = card(name, cards_of(home))
    provider = provider_of(model, settings_of(home))
    if provider is None:
        raise BadInput("this model cannot be called; set its key, unset PAL_OFFLINE, or omit --model", where=name)
    called = False

    async def ask(view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        nonlocal called
        first, called = not called, True
        try:
            return await whole_reply(provider, encode(view, model, tools, adapted_params(params, model), fetch))
        except ProviderError as error:
            permanent = error.status in _PERMANENT_STATUSES or (error.status is None and not isinstance(error, PromptTooLong))
            if first and permanent:
                raise ModelRejected(name, error) from error
            raise

    return ask


Loader: TypeAlias = Callable[[], LoadedSession | ReadProblem]


class SessionLoaders(NamedTuple):
    """Loaders of the named sessions, and the files that were skipped with the reason."""

    loaders: list[Loader]
    skipped: list[ReadProblem]

    def next(self, load: Loader) -> LoadedSession | None:
        """Load a session; if it cannot be replayed, record the reason in `skipped` and return None."""
        loaded = load()
        if isinstance(loaded, ReadProblem):
            self.skipped.append(loaded)
        elif not loaded.recording.steps:
            self.skipped.append(ReadProblem(loaded.source, "it has no recorded reply of a model, so there is nothing to replay"))
        else:
            return loaded
        return None

    def error_without_sessions(self) -> BadInput:
        """Return the error for the case that no session could be loaded."""
        first = self.skipped[0]
        more = f" ({len(self.skipped) - 1} others cannot be replayed either)" if len(self.skipped) > 1 else ""
        return BadInput(first.why + more, where=first.where)


def find_sessions(home: AnyHome, arguments: tuple[str, ...]) -> SessionLoaders:
    """Find the sessions for arguments: ids, files and folders. Raises `BadInput` if there are none."""
    found, skipped = list[Loader](), list[ReadProblem]()
    for argument in arguments:
        path = Path(os.path.abspath(expand_path(argument)))  # noqa: PTH100 - links are not resolved
        if not path.exists():
            found.append(_own_loader(home, argument))
            continue
        own = find_own_logs(path)
        found += [_own_loader(home, str(each)) for each in own]
        sources, bad = find_foreign([path])
        found += [_foreign_loader(source) for source in sources]
        skipped += [each for each in bad if Path(each.where) not in own]
    if not found:
        raise (
            SessionLoaders(found, skipped).error_without_sessions()
            if skipped
            else BadInput("there is no session to replay", where=", ".join(arguments))
        )
    return SessionLoaders(found, skipped)


def _own_loader(home: AnyHome, argument: str) -> Loader:
    found = find_session(home, argument)
    name = found.name

    def load() -> LoadedSession | ReadProblem:
        try:
            with open_log(found, whole=True) as log:
                return load_log(log, found.blobs, name)
        except PalimpsestError as error:
            return ReadProblem(name, error.message)

    return load


def _foreign_loader(source: TranscriptSource) -> Loader:
    return lambda: load_foreign(source)
