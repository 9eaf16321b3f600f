"""The believed cache state against the reads that real programs were billed, from the recorded calls before each."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from corpus import WITHOUT, corpus, golden
from readings import Home

from palimpsest.audit.cache import CacheProjection
from palimpsest.audit.sizes import Metering
from palimpsest.core.events import ModelReplied
from palimpsest.core.log import Log
from palimpsest.core.view_projection import ViewProjection
from palimpsest.exchange.formats import format_named
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import recorded_card

# A session of each kind of cache and lifetime; `pal replay` looks at all of them.
CLAUDE = [path for name in ("12f1f541", "410df8db", "77e148b8", "9205db7e") for path in corpus(f"claude-code/*{name}*.jsonl")]
CODEX = corpus("codex/*019f0675*.jsonl")


def believed_and_reported(form: str, path: Path) -> Iterator[tuple[int, int]]:
    """For each call of the sessions in a file: the tokens that we believed to be cached when it left, and those that were read."""
    home = Home()
    home.take(format_named(form), path)
    for session in home.store.sessions():
        log = Log.open(home.store, session, FixedClock(1))
        views = ViewProjection(reader=log.reader)
        metering = Metering(views, lambda name: recorded_card(name or "claude-sonnet-4-5"), "palimpsest")
        projection = CacheProjection(views, metering)
        for event in log.events():
            body = event.body
            if isinstance(body, ModelReplied) and body.usage.prompt:
                cache = projection.value()
                yield min(cache.longest(event.at if cache.called is None else cache.called), body.usage.prompt), body.usage.cache_read
            for each in (views, metering, projection):
                each.take(event)


def check(form: str, paths: list[Path], most: float) -> None:
    for path in paths:
        calls = list(believed_and_reported(form, path))
        errors = [abs(belief - read) / max(read, 1) for belief, read in calls if read or belief]
        assert median(errors) <= 0.02, path.name
        read = sum(each for _, each in calls)
        assert abs(sum(belief for belief, _ in calls) - read) <= most * read, path.name


def test_the_calls_of_our_own_recorded_sessions_read_what_was_believed() -> None:
    paths = golden("claude/**/*.jsonl")
    calls = [call for path in paths for call in believed_and_reported("claude", path)]
    assert len(calls) > 3
    assert sum(abs(belief - read) <= 0.02 * read for belief, read in calls) >= len(calls) * 0.6


@pytest.mark.skipif(not CLAUDE, reason=WITHOUT)
def test_claude_sessions_read_what_was_believed() -> None:
    check("claude", CLAUDE, 0.05)


@pytest.mark.skipif(not CODEX, reason=WITHOUT)
def test_codex_sessions_read_what_was_believed() -> None:
    check("codex", CODEX, 0.05)
