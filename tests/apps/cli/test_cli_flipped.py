"""A log with one changed byte is shown as it was or not at all: no command answers from damaged lines."""

from pathlib import Path
from random import Random

import pytest
from generated import generate
from pal_runs import BEGAN, MODEL, Pal

from palimpsest.core.edits import Mask
from palimpsest.core.events import SessionOpened, TurnEnded, UserSaid, ViewEdited
from palimpsest.core.items import Text
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import rewind, undo
from palimpsest.stores.ephemeral import FixedClock

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
