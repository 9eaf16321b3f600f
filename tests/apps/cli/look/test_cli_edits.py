"""Audited edits: the states before and after them, whatever was undone since, and what they hide."""

from histories import Step, new_log, steps, tell
from hypothesis import given, settings
from pal_runs import BEGAN, MODEL, SMALL, Pal, edited

from pal.cli.audit import audited_edits
from palimpsest.core.events import ModelReplied, SessionOpened, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Loss, Put, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import palimpsest_size
from palimpsest.core.undo import undo
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import card


@settings(max_examples=150)
@given(steps)
def test_an_edit_is_audited_between_the_states_at_its_parent_and_at_itself(reported: list[Step]) -> None:
    log = tell(new_log(), reported)
    for edit in audited_edits(log, TokenCounter(palimpsest_size).total, card("claude-sonnet-4-5")):
        parent = log.event(edit.event).parent
        assert (edit.before, edit.after) == (log.state_at(parent).view, log.state_at(edit.event).view)


def test_an_edit_between_another_one_and_its_undoing_is_audited_with_both(pal: Pal) -> None:
    edited(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(1_932_800_500_000), write=True) as log:
        undo(log, 15)
        undo(log, 14)
    result = pal("audit", SMALL, "15", "--full")
    assert result.exit_code == 0
    # The fold of event 14 was undone only later, so that the mask was made on the view that it had left.
    assert "- 14.0.0 summary 11 tokens a.py was read." in result.output
    assert "+ 14.0.0 summary 9 tokens (hidden)" in result.output


_OUTPUT = "TypeError: parse_total of cart.py is None\nsee https://example.org/cart, commit 9f86d081"


def _folded(pal: Pal, loss: Loss | None = None) -> None:
    with Log.create(pal.home.store, SessionOpened(SMALL, model=MODEL), FixedClock(BEGAN, 1_000)) as log:
        log.append(UserSaid((Text("Never touch the lock file."),)))
        log.append(ModelReplied((ToolCall("c1", "Bash", '{"command":"make check"}'),)))
        log.append(ToolReturned(ToolResult("c1", (Text(_OUTPUT),)), "Bash", exit=2))
        log.append(ModelReplied((Text("It fails.", "assistant"),)))
        log.append(ViewEdited((Fold("1.0", "4.0", (Put("summary", Text("work was done")),)),), by="tester", loss=loss))


def test_every_hidden_entity_is_listed_with_its_event(pal: Pal) -> None:
    _folded(pal)
    (edit,) = pal.json("audit", SMALL)

    assert edit["hidden"] == {
        "paths": ["cart.py"],
        "commands": ["make check"],
        "numbers": 0,
        "user_messages": 1,
        "items": ["1.0", "2.0", "3.0", "4.0"],
        "lost": [
            {"kind": "path", "text": "cart.py", "item": "3.0", "event": 3},
            {"kind": "command", "text": "make check", "item": "2.0", "event": 2, "exit": 2},
            {"kind": "symbol", "text": "TypeError", "item": "3.0", "event": 3},
            {"kind": "symbol", "text": "parse_total", "item": "3.0", "event": 3},
            {"kind": "error", "text": "TypeError: parse_total of cart.py is None", "item": "3.0", "event": 3},
            {"kind": "address", "text": "https://example.org/cart", "item": "3.0", "event": 3},
            {"kind": "id", "text": "9f86d081", "item": "3.0", "event": 3},
        ],
        "more": {},
    }


def test_a_person_sees_each_kind_with_the_item_in_which_it_stood(pal: Pal) -> None:
    _folded(pal)
    lines = pal("audit", SMALL, "5").stdout.splitlines()

    assert lines[2:4] == [
        "5: no longer shown: 1 path, 1 command, 2 symbols, 1 error, 1 address, 1 id, 1 ",
        "user message",
    ]
    assert lines[4:17] == [
        "paths no longer shown (1):",
        "  3.0  cart.py",
        "commands no longer shown (1):",
        "  2.0  exit 2: make check",
        "symbols no longer shown (2):",
        "  3.0  TypeError",
        "  3.0  parse_total",
        "errors no longer shown (1):",
        "  3.0  TypeError: parse_total of cart.py is None",
        "addresses no longer shown (1):",
        "  3.0  https://example.org/cart",
        "ids no longer shown (1):",
        "  3.0  9f86d081",
    ]


def test_entities_of_an_older_log_are_listed_without_items(pal: Pal) -> None:
    _folded(pal, Loss(("cart.py",), ("make check",), 3, 1, ("1.0", "2.0")))
    (edit,) = pal.json("audit", SMALL)

    assert edit["hidden"]["lost"] == [
        {"kind": "path", "text": "cart.py", "item": None, "event": None},
        {"kind": "command", "text": "make check", "item": None, "event": None, "exit": None},
    ]
    assert "  cart.py\n" in pal("audit", SMALL, "5").stdout


def test_what_is_not_listed_is_counted(pal: Pal) -> None:
    _folded(pal, Loss(("cart.py",), numbers=1, ids=("1.0",), path_items=("3.0",), more={"paths": 1_200, "urls": 7}))
    shown = pal("audit", SMALL, "5").stdout

    assert "no longer shown: 1,201 paths, 7 addresses, 1 number" in shown
    assert "paths no longer shown (1,201):\n  3.0  cart.py\n  … and 1,200 more\n" in shown
    assert pal.json("audit", SMALL)[0]["hidden"]["more"] == {"paths": 1_200, "urls": 7}
