"""Damaged and unfinished logs: no command answers from damaged lines, or trips over a call that a crash left open."""

import tempfile
from pathlib import Path
from random import Random

import pytest
from generated import generate
from hypothesis import given, settings
from hypothesis import strategies as st
from pal_runs import BEGAN, MODEL, SMALL, Pal, edited

from palimpsest.core.events import CallStarted, Interrupted, SessionOpened, TurnEnded, UserSaid, ViewEdited
from palimpsest.core.items import Mask, Text
from palimpsest.core.log import Log
from palimpsest.core.undo import rewind, undo
from palimpsest.stores.in_memory import FixedClock

_COMMANDS = (
    ("show", SMALL),
    ("show", SMALL, "--json"),
    ("show", SMALL, "--request", "2"),
    ("context", SMALL),
    ("undo", SMALL, "--dry-run"),
    ("rewind", SMALL, "-1"),
    ("restore", SMALL, "6.0"),
    ("sessions",),
    ("search", "timeout"),
    ("doctor",),
    ("verify", SMALL, "--repair"),
)


def _home_data() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        home = Pal(Path(folder)).home
        edited(home)
        return home.store.path_of(SMALL).read_bytes()


DATA = _home_data()


@settings(max_examples=40, deadline=None)
@given(place=st.integers(0, len(DATA) - 1), noise=st.binary(max_size=6), cut=st.integers(0, 40), with_checkpoint=st.booleans())
def test_damage_is_reported_in_one_line_and_never_as_a_traceback(place: int, noise: bytes, cut: int, with_checkpoint: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pal = Pal(Path(folder))
        edited(pal.home)
        path = pal.home.store.path_of(SMALL)
        if not with_checkpoint:
            path.with_suffix(".checkpoint").unlink()
        path.write_bytes(DATA[:place] + noise + DATA[place + cut :])

        for words in _COMMANDS:
            result = pal(*words)
            assert result.exit_code in {0, 1, 2}
            reported = result.stdout if "--json" in words else result.stderr
            assert result.exit_code != 2 or reported.count("\n") == 1


def test_a_log_with_a_hole_in_it_says_where_and_what_to_do(pal: Pal) -> None:
    edited(pal.home)
    path = pal.home.store.path_of(SMALL)
    path.with_suffix(".checkpoint").unlink()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5] + lines[6:]))

    assert pal("show", SMALL).stderr == f"pal: {path}, after byte 0: event 6 stands where event 5 should be; see `pal verify`\n"
    assert pal("verify", SMALL, "--repair").exit_code == 0
    assert pal("show", SMALL).exit_code == 0


@pytest.mark.parametrize("word", ["", "..", "../x", "~nobody-here/x", "x" * 5_000, "a\0b", "/", "2031*", "."])
def test_no_name_of_a_session_leads_out_of_the_home_or_to_a_traceback(pal: Pal, word: str) -> None:
    edited(pal.home)

    for command in ("show", "fork", "undo", "context"):
        result = pal(command, word)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_an_error_of_the_system_is_one_value_for_programs(pal: Pal) -> None:
    assert pal.json("verify", "x" * 5_000, code=2)["error"]["message"] == "File name too long"


SESSION = "20310403-090000-cccc"
PLACES, PLACES_IN_THE_LAST_LINE = 360, 40
COMMANDS = {
    "show": ("show", SESSION),
    "events": ("show", SESSION, "--events"),
    "audit": ("audit", SESSION),
    "export": ("export", SESSION, "--to", "messages"),
}


def sixty_events(pal: Pal) -> Path:
    """A session with a mask that was undone, a branch that was left, and its checkpoint at the end; the path of its log."""
    with Log.create(pal.home.store, SessionOpened(SESSION, model=MODEL), FixedClock(BEGAN, 1_000)) as log:
        log.extend(generate(7, 40))
        results = [item.id for item in log.view.items if item.kind == "result"]
        masked = log.append(ViewEdited((Mask(tuple(results[:2]), "gone"),), by="tester"))
        undo(log, masked.seq)
        log.append(ViewEdited((Mask(tuple(results[1:3]), "gone"),), by="tester"))
        rewind(log, next(event.seq for event in log.events() if isinstance(event.body, TurnEnded)))
        log.extend(generate(8, 15, first=log.tip + 1))
        log.append(UserSaid((Text("and what is left to do?"),)))
    return pal.home.store.path_of(SESSION)


def flipped(data: bytes, last: int, seed: int) -> list[tuple[int, bytes]]:
    """The same bytes with another one at one place, for each of some places; the last line begins at byte `last`."""
    random = Random(seed)
    found = []
    places = random.sample(range(last), PLACES) + random.sample(range(last, len(data)), PLACES_IN_THE_LAST_LINE)
    for place in places:
        byte = random.choice([value for value in range(256) if value != data[place]])
        found.append((place, data[:place] + bytes([byte]) + data[place + 1 :]))
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_a_session_is_shown_the_same_with_its_checkpoint_without_it_and_with_a_damaged_one(pal: Pal, command: str) -> None:
    path = sixty_events(pal)
    beside = path.with_suffix(".checkpoint")
    kept, whole = beside.read_bytes(), pal(*COMMANDS[command])
    assert whole.exit_code == 0
    for place in range(0, len(kept), len(kept) // 20):
        beside.write_bytes(kept[:place] + bytes([kept[place] ^ 1]) + kept[place + 1 :])
        assert pal(*COMMANDS[command]).stdout == whole.stdout
    beside.unlink()
    assert pal(*COMMANDS[command]).stdout == whole.stdout


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("checkpoint", [True, False], ids=["with its checkpoint", "without its checkpoint"])
def test_a_flipped_byte_changes_nothing_of_what_is_printed_or_is_an_error_of_one_line(pal: Pal, command: str, *, checkpoint: bool) -> None:
    path = sixty_events(pal)
    data, words = path.read_bytes(), COMMANDS[command]
    if not checkpoint:
        path.with_suffix(".checkpoint").unlink()
    whole = pal(*words)
    assert whole.exit_code == 0
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    # Without a checkpoint nothing vouches for the last line but itself: only its number and the link before it can be checked.
    vouched_for = range(len(data)) if checkpoint else range(last)
    answered = 0
    for place, damaged in flipped(data, last, seed=len(command)):
        path.write_bytes(damaged)
        result = pal(*words)
        if result.exit_code:
            assert result.stdout == "", place
            assert result.stderr.startswith("pal: "), place
            assert result.stderr.count("\n") == 1, place
        elif place in vouched_for:
            answered += 1
            assert result.stdout == whole.stdout, place
    assert answered < 10


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
