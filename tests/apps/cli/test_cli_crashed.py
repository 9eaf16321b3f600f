"""Commands on a session that a crash left in the middle of a model call."""

import pytest
from pal_runs import BEGAN, SMALL, Pal, edited

from palimpsest.core.events import CallStarted, Interrupted
from palimpsest.core.log.log import Log
from palimpsest.stores.ephemeral import FixedClock

CALLED = 16
CLOSED = Interrupted(CALLED, why="the session ended before the reply came", model="claude-sonnet-4-5")


def crashed(pal: Pal) -> None:
    """The edited session with one request more, and no reply to it."""
    edited(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN + 120_000, 1_000), write=True) as log:
        assert log.append(CallStarted("claude-sonnet-4-5", "anthropic", digest="0" * 64)).seq == CALLED


@pytest.mark.parametrize(
    "words",
    [
        ("undo", SMALL),
        ("restore", SMALL, "6.0"),
        ("pin", SMALL, "2.0"),
        ("rewind", SMALL, "8"),
        ("compact", SMALL, "--no-model"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_writes_closes_the_call_first(pal: Pal, words: tuple[str, ...]) -> None:
    crashed(pal)
    result = pal(*words)
    assert result.exit_code == 0, result.output
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN)) as log:
        assert log.event(CALLED + 1).body == CLOSED
        assert log.open_call is None


@pytest.mark.parametrize("words", [("undo", SMALL, "--dry-run"), ("compact", SMALL, "--no-model", "--preview"), ("pin", SMALL)])
def test_a_command_that_changes_nothing_leaves_the_call_open(pal: Pal, words: tuple[str, ...]) -> None:
    crashed(pal)
    data = pal.home.store.path_of(SMALL).read_bytes()
    assert pal(*words).exit_code == 0
    assert pal.home.store.path_of(SMALL).read_bytes() == data


def test_a_fork_goes_on_without_the_call(pal: Pal) -> None:
    crashed(pal)
    forked = pal("fork", SMALL).stdout.strip()
    assert pal("undo", forked).exit_code == 0
    assert pal("show", SMALL, "--request", "4").exit_code == 1


def test_a_second_command_finds_nothing_more_to_close(pal: Pal) -> None:
    crashed(pal)
    pal("pin", SMALL, "2.0")
    pal("unpin", SMALL, "2.0")
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN)) as log:
        assert [event.body for event in log.events() if isinstance(event.body, Interrupted)] == [CLOSED]
