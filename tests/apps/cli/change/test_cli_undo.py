from pathlib import Path

import pytest
from pal_runs import BEGAN, LONG, SMALL, Pal, edited, long, small

from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.sessions import JsonlSessions

GOLDEN = Path(__file__).parents[3] / "golden" / "foreign"


def _view(pal: Pal, session: str = SMALL, at: int | None = None) -> View:
    with Log.open(pal.home.store, session, FixedClock(BEGAN)) as log:
        return log.view if at is None else log.state_at(at).view


def test_the_newest_edit_is_undone_when_none_is_named(pal: Pal) -> None:
    edited(pal.home)
    result = pal("undo", SMALL)

    assert result.stdout == "undid edit 15 by tester: shorter still\nbrought back: 1 item; the view: 39 → 40 tokens, room 197,000\n"
    assert _view(pal).items == _view(pal, at=14).items


def test_undoing_an_edit_that_others_rest_on_needs_a_yes_and_says_which(pal: Pal) -> None:
    edited(pal.home)
    before = _view(pal)
    refused = pal("undo", SMALL, "14")

    assert refused.exit_code == 2
    assert refused.stderr == f"pal: {SMALL}: edit 15 depends on edit 14 and would be undone too; use --yes to confirm\n"
    assert _view(pal) == before

    done = pal("undo", SMALL, "14", "--yes")

    assert done.stdout.splitlines()[1:] == [
        "also edit 15, which depended on it",
        "brought back: 4 items, in place of 1; the view: 39 → 733 tokens, room 197,000",
    ]
    assert _view(pal).items == _view(pal, at=13).items


def test_a_codex_session_is_larger_without_its_compaction_though_its_file_lacks_most_of_what_the_provider_counted(pal: Pal) -> None:
    pal("import", str(GOLDEN / "codex" / "0.166.0-exec"))
    undone = [pal.json("undo", row["id"], "--dry-run") for row in pal.json("sessions") if pal.json("audit", row["id"])]

    assert undone
    assert all(plan["tokens_after"] > plan["tokens_before"] > 10_000 for plan in undone)


def test_a_dry_run_says_everything_and_changes_nothing(pal: Pal) -> None:
    edited(pal.home)
    data = pal.home.store.path_of(SMALL).read_bytes()

    assert pal.json("undo", SMALL, "14", "--dry-run") == {
        "session": SMALL,
        "undone": [15, 14],
        "resting": [15],
        "brings": ["4.0", "4.1", "6.0", "8.0"],
        "tokens_before": 39,
        "tokens_after": 733,
        "room": 197_000,
        "dry_run": True,
    }
    assert pal.home.store.path_of(SMALL).read_bytes() == data


def test_an_undo_that_would_not_fit_is_refused_with_the_numbers(pal: Pal) -> None:
    long(pal.home)
    edits = [event["seq"] for event in pal.json("show", LONG)["events"] if event["body"]["type"] == "view_edited"]
    size = pal.home.store.path_of(LONG).stat().st_size

    result = pal("undo", LONG, str(edits[0]), "--yes")

    assert len(edits) > 1
    assert result.exit_code == 2
    assert result.stderr.startswith(f"pal: {LONG}: the resulting view would not fit: it would have ")
    assert result.stderr.endswith("are too many\n")
    assert pal.home.store.path_of(LONG).stat().st_size == size


def test_one_edit_of_an_event_can_be_undone_by_its_number(pal: Pal) -> None:
    edited(pal.home)

    assert pal.json("undo", SMALL, "15", "--edits", "0")["undone"] == [15]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("undo", SMALL, "3"), f"pal: event 3 is no edit of the view; `pal audit {SMALL}` lists the edits\n"),
        (("undo", SMALL, "15", "--edits", "7"), "pal: event 15 has 1 edits, there is no edit 7\n"),
        (
            ("undo", SMALL, "15", "--edits", "a"),
            "pal: undo: --edits takes numbers separated by commas, such as 0,2, not 'a'; see `pal undo --help`\n",
        ),
        (("undo", SMALL, "x"), "pal: undo: Invalid value for '[EDIT]': 'x' is not a valid integer; see `pal undo --help`\n"),
    ],
)
def test_wrong_input_changes_nothing(pal: Pal, words: tuple[str, ...], line: str) -> None:
    edited(pal.home)
    data = pal.home.store.path_of(SMALL).read_bytes()
    result = pal(*words)

    assert (result.exit_code, result.stderr) == (2, line)
    assert pal.home.store.path_of(SMALL).read_bytes() == data


def test_a_session_without_edits_has_nothing_to_undo(pal: Pal) -> None:
    small(pal.home)

    assert pal.json("undo", SMALL, code=2) == {
        "error": {"kind": "input", "message": "there is no edit to undo: the view shows the whole conversation", "where": SMALL}
    }


def test_a_second_writer_gets_an_error_that_names_the_holder(pal: Pal) -> None:
    edited(pal.home)
    with Log.open(JsonlSessions(pal.home.store.folder), SMALL, FixedClock(BEGAN), write=True):
        result = pal("undo", SMALL)
        dry = pal("undo", SMALL, "--dry-run")

    assert result.exit_code == 2
    assert "the session is being written by process " in result.stderr
    assert dry.exit_code == 0


def test_a_restored_result_comes_back_with_its_call_where_they_stood(pal: Pal) -> None:
    edited(pal.home)
    result = pal("restore", SMALL, "6.0")

    assert result.stdout == "item 6.0 is visible again (event 16); the view has 307 tokens, room 197,000\n"
    assert _view(pal).ids == ("14.0.0", "2.0", "4.1", "6.0", "10.0", "12.0")


@pytest.mark.parametrize(
    ("item", "message"),
    [("10.0", "item 10.0 is visible already"), ("99.0", "there is no item 99.0"), ("word", "there is no item word")],
)
def test_what_cannot_be_restored_is_said(pal: Pal, item: str, message: str) -> None:
    edited(pal.home)

    assert pal.json("restore", SMALL, item, code=2)["error"]["message"] == message
