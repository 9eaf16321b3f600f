import shlex

import pytest
from pal_runs import LONG, SMALL, Pal, edited, long, small

from palimpsest.core.events import ViewEdited
from palimpsest.core.items import Fold, Keep
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock


def test_a_hidden_text_is_traced_to_the_edit_and_the_printed_command_brings_it_back(pal: Pal) -> None:
    edited(pal.home)

    assert pal.json("why", SMALL, "Timeout of\nten") == {
        "items": [
            {
                "id": "8.0",
                "kind": "assistant",
                "event": 8,
                "at": "2031-04-01T09:00:08.000Z",
                "shown": False,
                "edits": [{"event": 14, "policy": "tester", "why": "it was long", "command": f"pal restore {SMALL} 8.0"}],
            }
        ]
    }
    lines = pal("why", SMALL, "timeout of ten").stdout.splitlines()
    assert lines[1] == "  hidden by event 14, tester: it was long"
    command = shlex.split(lines[2].split("`")[1])
    assert command[0] == "pal"
    assert pal(*command[1:]).exit_code == 0
    assert [item["shown"] for item in pal.json("why", SMALL, "timeout of ten")["items"]] == [True]


def test_an_item_that_two_edits_hide_names_both(pal: Pal) -> None:
    edited(pal.home)
    first = pal.json("why", SMALL, "a.py was read.")["items"]
    assert [(item["id"], [edit["event"] for edit in item["edits"]]) for item in first] == [("14.0.0", [15])]
    with Log.open(pal.home.store, SMALL, FixedClock(1), write=True) as log:
        items = log.view.items
        log.append(ViewEdited((Fold(items[0].id, items[-1].id, tuple(Keep(item.id) for item in items[1:])),), by="second"))
    (found,) = pal.json("why", SMALL, "a.py was read.")["items"]
    assert [edit["event"] for edit in found["edits"]] == [15, 16]
    pal("undo", SMALL, "16")
    assert pal.json("why", SMALL, "a.py was read.")["items"] == first


def test_what_a_rewind_left_behind_comes_back_in_a_fork(pal: Pal) -> None:
    small(pal.home)
    pal("rewind", SMALL, "7")
    (found,) = pal.json("why", SMALL, "改成")["items"]

    assert found["edits"] == [
        {"event": 14, "policy": "rewind", "why": "the conversation went back to event 7", "command": f"pal fork {SMALL} --at 10"}
    ]
    fork = pal("fork", SMALL, "--at", "10").stdout.strip()
    assert [item["shown"] for item in pal.json("why", fork, "改成")["items"]] == [True]


def test_every_printed_command_works(pal: Pal) -> None:
    long(pal.home)
    hidden = [item for item in pal.json("why", LONG, "the", "--limit", "1000")["items"] if item["edits"]]
    commands = [item["edits"][-1]["command"] for item in (*hidden[:2], *hidden[-2:])]

    assert [pal(*shlex.split(command)[1:]).exit_code for command in commands] == [0] * 4


@pytest.mark.parametrize(("text", "code"), [("unheardof", 1), (" ", 2)])
def test_a_text_that_no_item_has_is_no_success(pal: Pal, text: str, code: int) -> None:
    small(pal.home)
    assert pal("why", SMALL, text).exit_code == code
    assert pal("why", SMALL, text).stdout == ""
