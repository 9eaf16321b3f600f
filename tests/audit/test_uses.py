"""When a tool result is dead: by its tool, by what names it, by what supersedes it."""

import msgspec
import pytest
from every_case import every_case
from workplace import reply, say, use, work

from palimpsest.agent.session import Session
from palimpsest.audit.uses import LIFESPANS, dies_at, lifespans_for
from palimpsest.core.events import ContextStated, Statement, ToolReturned, ViewEdited
from palimpsest.core.items import Fold, Insert, Keep, Mask, Put, Text, ToolCall, ToolResult
from palimpsest.core.plans import Use
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.profile import Profile

PROSE = "some words that nobody will ever name again and that say nothing at all\n" * 12
READ = '{"file_path":"src/a.py"}'


def begin() -> Session:
    session = work(Profile("test", (), lambda card: palimpsest_budget(card.window, card.reply)))
    say(session, "please work")
    return session


def returned(session: Session, tool: str, args: str, output: str = PROSE, *, exit_code: int | None = None) -> str:
    """The id of a result."""
    _, event = use(session, f"c{session.log.tip}", tool, args, output, exit_code=exit_code)
    return f"{event.seq}.0"


def wait(session: Session, calls: int) -> None:
    for _ in range(calls):
        reply(session, Text("go on", "assistant"))


def life(session: Session, item: str) -> tuple[int, int | None, int | None, int | None]:
    found = session.derived.uses.value()[item]
    return found.arrived, found.last_named, found.superseded, found.died


@every_case(
    ("tool", "args", "age"),
    [
        ("Edit", READ, 1),
        ("Write", READ, 1),
        ("Bash", '{"command":"ls"}', 8),
        ("Grep", '{"pattern":"x"}', 8),
        ("Glob", '{"pattern":"x"}', 8),
        ("mcp__weather__today", "{}", 8),
        ("Read", READ, 20),
        ("Task", '{"prompt":"look"}', 40),
    ],
)
def test_a_result_that_is_never_named_dies_after_the_lifespan_of_its_kind(tool: str, args: str, age: int) -> None:
    session = begin()
    item = returned(session, tool, args)
    wait(session, age - 1)
    assert life(session, item) == (1, None, None, None)
    wait(session, 1)
    assert life(session, item) == (1, None, None, 1 + age)


@pytest.mark.parametrize(("tool", "args", "age"), [("Bash", '{"command":"ls"}', 20), ("Read", READ, 40), ("Edit", READ, 1)])
def test_a_result_that_was_named_lives_longer(tool: str, args: str, age: int) -> None:
    session = begin()
    item = returned(session, tool, args, PROSE + "def parse_header")
    wait(session, 0 if tool == "Edit" else 5)
    reply(session, Text("I shall use parse_header", "assistant"))
    named = None if tool == "Edit" else 7
    wait(session, age - 1)
    assert life(session, item) == (1, named, None, 2 if tool == "Edit" else None)
    wait(session, 1)
    assert life(session, item)[3] == (2 if tool == "Edit" else 7 + age)


@pytest.mark.states("PA-01")
def test_an_acknowledgement_dies_after_one_call_a_superseded_read_after_three_a_named_report_never() -> None:
    session = begin()
    report = returned(session, "Task", '{"prompt":"look"}', PROSE + "see find_cycle")
    read = returned(session, "Read", READ)
    reply(session, Text("find_cycle it is", "assistant"))
    edited = returned(session, "Edit", READ)
    assert life(session, read) == (2, 4, 4, None)
    wait(session, 1)
    assert life(session, edited) == (4, None, None, 5)
    wait(session, 1)
    assert life(session, read)[3] is None
    wait(session, 1)
    assert life(session, read) == (2, 4, 4, 7)
    wait(session, 60)
    assert life(session, report) == (1, 3, None, None)


@pytest.mark.parametrize(
    ("first", "then", "superseded"),
    [
        (READ, READ, True),
        ('{"file_path":"src/a.py","offset":1,"limit":50}', READ, True),
        (READ, '{"file_path":"src/a.py","offset":1,"limit":50}', False),
        ('{"file_path":"src/a.py","offset":1,"limit":50}', '{"file_path":"src/a.py","offset":1,"limit":50}', True),
        ('{"file_path":"src/a.py","offset":1,"limit":50}', '{"file_path":"src/a.py","offset":90,"limit":50}', False),
        (READ, '{"file_path":"src/b.py"}', False),
    ],
)
def test_a_read_is_superseded_by_a_read_of_the_same_range_or_of_the_whole_file(first: str, then: str, *, superseded: bool) -> None:
    session = begin()
    item = returned(session, "Read", first)
    again = returned(session, "Read", then)
    assert session.derived.uses.value()[item].superseded == (2 if superseded else None)
    assert life(session, again) == (2, None, None, None)


def test_an_edit_that_failed_supersedes_nothing() -> None:
    session = begin()
    item = returned(session, "Read", READ)
    reply(session, ToolCall("e", "Edit", READ))
    session.log.append(ToolReturned(ToolResult("e", (Text("no such text"),), error=True), tool="Edit"))
    assert session.derived.uses.value()[item].superseded is None
    returned(session, "Bash", '{"command":"sed -i s/a/b/ src/a.py"}')
    assert session.derived.uses.value()[item].superseded == 3


@every_case(
    ("command", "superseded"),
    [
        ("mv src/a.py src/b.py", True),
        ("cp other.py src/a.py", True),
        ("rm ./src/a.py", True),
        ("rm -rf src/", True),
        ("git mv src lib", True),
        ("perl -pi -e s/a/b/ src/a.py", True),
        ("git checkout -- src/a.py", True),
        ("bash -c 'echo > src/a.py'", True),
        ("cp src/a.py backup.py", False),
        ("rm -rf sr", False),
        ("mkdir -p src/a.py", False),
        ("grep -n rm src/a.py", False),
    ],
)
def test_a_read_is_superseded_by_a_command_that_changes_or_removes_its_file(command: str, *, superseded: bool) -> None:
    session = begin()
    item = returned(session, "Read", READ)
    returned(session, "Bash", msgspec.json.encode({"command": command}).decode())
    assert session.derived.uses.value()[item].superseded == (2 if superseded else None)


@pytest.mark.states("PA-02")
def test_naming_an_identifier_restarts_the_newest_and_the_first_result_that_showed_it() -> None:
    session = begin()
    items = [returned(session, "Bash", f'{{"command":"cat log{number}"}}', PROSE + "value of max_retries") for number in range(3)]
    wait(session, 2)
    reply(session, ToolCall("x", "Grep", '{"pattern":"max_retries"}'))
    assert [life(session, item)[1] for item in items] == [6, None, 6]


def test_a_dead_result_that_is_named_lives_again() -> None:
    session = begin()
    item = returned(session, "Bash", '{"command":"ls"}', PROSE + "build_index")
    wait(session, 9)
    assert life(session, item) == (1, None, None, 9)
    reply(session, Text("back to build_index", "assistant"))
    assert life(session, item) == (1, 11, None, None)


@pytest.mark.states("PA-03")
def test_the_last_round_unresolved_errors_and_recalled_results_are_never_dead() -> None:
    session = begin()
    failed = returned(session, "Bash", '{"command":"pytest -q"}', PROSE, exit_code=1)
    recalled = returned(session, "recall", '{"id":"3.0"}')
    wait(session, 50)
    newest = returned(session, "Edit", READ)
    assert [life(session, item)[3] for item in (failed, recalled, newest)] == [None, None, None]
    returned(session, "Bash", '{"command":"pytest -q"}', PROSE, exit_code=0)
    assert session.derived.uses.value()[failed].failed is False
    assert life(session, failed)[3] == 54
    session.log.append(ContextStated(head=(Statement("base", "a new epoch", "system"),)))
    assert session.derived.uses.value()[recalled].kind == "other"
    assert life(session, recalled)[3] == 54


def test_a_success_of_another_command_settles_no_error() -> None:
    session = begin()
    failed = returned(session, "Bash", '{"command":"pytest -q"}', PROSE, exit_code=1)
    returned(session, "Bash", '{"command":"ls"}', PROSE, exit_code=0)
    wait(session, 30)
    assert life(session, failed)[3] is None


def test_a_result_of_at_most_100_tokens_is_not_followed() -> None:
    session = begin()
    assert returned(session, "Bash", '{"command":"ls"}', "a few words") not in session.derived.uses.value()


def test_a_folded_result_is_dropped_and_a_restored_one_is_new() -> None:
    session = begin()
    item = returned(session, "Bash", '{"command":"ls"}')
    wait(session, 3)
    ids = session.log.view.ids
    edited = session.log.append(ViewEdited((Fold(ids[0], ids[-1], (Put("summary", Text("all of it")),)),), by="test"))
    assert session.derived.uses.value() == {}
    session.undo(edited.seq)
    assert life(session, item) == (4, None, None, None)


def test_a_kept_result_keeps_its_age_and_a_masked_one_shows_no_names() -> None:
    session = begin()
    item = returned(session, "Bash", '{"command":"ls"}', PROSE + "max_retries")
    ids = session.log.view.ids
    session.log.append(ViewEdited((Fold(ids[0], ids[-1], (Keep(ids[1]), Keep(ids[2]))),), by="test"))
    session.log.append(ViewEdited((Insert((Put("reminder", Text("go on")),)),), by="test"))
    reply(session, Text("max_retries", "assistant"))
    assert life(session, item) == (1, 2, None, None)
    session.log.append(ViewEdited((Mask((item,), "[gone]"),), by="test"))
    reply(session, Text("max_retries", "assistant"))
    assert life(session, item) == (1, 2, None, None)


def test_the_table_of_ages_is_that_of_the_specification() -> None:
    assert {kind: tuple(ages) for kind, ages in LIFESPANS.items()} == {
        "acknowledgement": (1, 1, 1),
        "read": (20, 40, 3),
        "report": (40, None, None),
        "recalled": (None, None, None),
        "other": (8, 20, None),
    }
    assert dies_at(Use(4, superseded=20, kind="read")) == 23
    assert dies_at(Use(4, superseded=23, kind="read")) == 24
    assert dies_at(Use(4, last_named=30, superseded=10, kind="read")) == 33
    assert dies_at(Use(4, last_named=5, kind="report")) is None
    assert dies_at(Use(4, failed=True)) is None


def test_patience_scales_the_ages_of_what_is_not_superseded() -> None:
    assert [dies_at(Use(4), lifespans_for(patience)) for patience in (0.5, 1.0, 2.0)] == [8, 12, 20]
    assert [dies_at(Use(4, last_named=10, kind="read"), lifespans_for(patience)) for patience in (0.4, 1.0)] == [26, 50]
    assert [dies_at(Use(4, kind="acknowledgement"), lifespans_for(patience)) for patience in (0.1, 1.0)] == [5, 5]
    assert dies_at(Use(4, superseded=10, kind="read"), lifespans_for(0.5)) == 13
    assert dies_at(Use(4, last_named=5, kind="report"), lifespans_for(0.1)) is None


def test_uses_are_copied_once_between_two_events_and_later_events_do_not_reach_the_copy() -> None:
    session = begin()
    item = returned(session, "Bash", '{"command":"ls"}')
    uses = session.derived.uses.value()
    assert session.derived.uses.value() is uses
    wait(session, 8)
    assert (uses, session.derived.uses.value()) == ({item: Use(1)}, {item: Use(1, died=9)})


def test_uses_that_are_restored_are_those_of_the_snapshot() -> None:
    session = begin()
    returned(session, "Bash", '{"command":"ls"}')
    projection = session.derived.uses
    before, snapshot = projection.value(), projection.snapshot()
    projection.reset()
    assert projection.value() == {}
    projection.restore(snapshot)
    assert projection.value() == before
