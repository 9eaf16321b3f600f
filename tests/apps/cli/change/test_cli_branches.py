import pytest
from pal_runs import BEGAN, SMALL, Pal, edited, small

from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock


def test_a_fork_prints_its_id_and_begins_at_the_given_event(pal: Pal) -> None:
    small(pal.home)
    made = pal("fork", SMALL, "--at", "9").stdout.strip()

    assert len(made) == len("20310401-090000-aaaa")
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN)) as log, Log.open(pal.home.store, made, FixedClock(BEGAN)) as forked:
        assert forked.view.items == log.state_at(9).view.items
    assert pal("verify", made).exit_code == 0
    assert pal("show", made, "--request", "2").stderr.startswith("verified")


def test_a_fork_of_the_newest_event_names_its_base(pal: Pal) -> None:
    small(pal.home)
    made = pal.json("fork", SMALL)

    assert made["base"] == {"session": SMALL, "seq": 13}
    assert f"(fork of {SMALL} at event 13)" in pal("sessions", COLUMNS="120").stdout


def test_a_fork_of_an_event_that_is_not_there_makes_no_file(pal: Pal) -> None:
    small(pal.home)

    assert pal("fork", SMALL, "--at", "14").exit_code == 2
    assert list(pal.home.store.sessions()) == [SMALL]


def test_a_rewind_says_what_is_left_behind_and_that_nothing_is_deleted(pal: Pal) -> None:
    small(pal.home)
    data = pal.home.store.path_of(SMALL).read_bytes()
    result = pal("rewind", SMALL, "9")

    assert result.stdout.splitlines() == [
        "now at event 9; left behind: 4 events, 1 of them yours",
        "  10  超时改成 30 秒",
        f"nothing is deleted: `pal rewind {SMALL} 13` goes back there",
    ]
    assert pal.home.store.path_of(SMALL).read_bytes().startswith(data)
    assert pal.json("context", SMALL)["items"][-1]["id"] == "8.0"


def test_turns_are_counted_from_the_end(pal: Pal) -> None:
    small(pal.home)

    assert pal.json("rewind", SMALL, "-2") == {
        "session": SMALL,
        "event": 14,
        "to": 0,
        "left": {
            "events": 13,
            "tip": 13,
            "user_messages": [{"seq": 2, "text": "What is in a.py?"}, {"seq": 10, "text": "超时改成 30 秒"}],
        },
    }


def test_a_rewind_can_return_to_a_branch_that_was_left(pal: Pal) -> None:
    edited(pal.home)
    before = pal.json("context", SMALL)["items"]
    pal("rewind", SMALL, "-1")
    pal("rewind", SMALL, "15")

    assert pal.json("context", SMALL)["items"] == before


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("-3", f"pal: {SMALL}: cannot go back 3 turns: the session has 2\n"),
        ("14", f"pal: {SMALL}: there is no event 14; the newest is 13\n"),
        ("13", f"pal: {SMALL}: the session is already at event 13, so nothing would change\n"),
        ("here", "pal: rewind: 'here' is neither the number of an event nor -N for the last N turns; see `pal rewind --help`\n"),
    ],
)
def test_a_wrong_target_changes_nothing(pal: Pal, target: str, line: str) -> None:
    small(pal.home)
    data = pal.home.store.path_of(SMALL).read_bytes()
    result = pal("rewind", SMALL, target)

    assert (result.exit_code, result.stderr) == (2, line)
    assert pal.home.store.path_of(SMALL).read_bytes() == data
