"""`pal compact`, `pal audit`, `pal pin` and `pal unpin` on sessions whose every word is known."""

import pytest
from pal_runs import LONG, SMALL, Pal, edited, long, small

from palimpsest.core.edits import Mask
from palimpsest.core.events import Pinned, Refused, SessionOpened
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.stores.ephemeral import FixedClock

FIELDS = [
    "edit",
    "event",
    "at",
    "policy",
    "why",
    "moment",
    "tokens_before",
    "tokens_after",
    "price_usd",
    "saved_usd_per_call",
    "hidden",
    "undone",
]


def _view(pal: Pal, session: str) -> View:
    with Log.open(pal.home.shelf, session, FixedClock(1)) as log:
        return log.view


def test_a_preview_says_what_would_happen_and_changes_nothing(pal: Pal) -> None:
    long(pal.home)
    data = pal.home.shelf.path_of(LONG).read_bytes()
    (edit,) = pal.json("compact", LONG, "--preview")

    assert list(edit) == FIELDS
    assert edit["tokens_after"] < edit["tokens_before"]
    assert edit["hidden"]["items"]
    assert edit["price_usd"] is not None
    assert pal.home.shelf.path_of(LONG).read_bytes() == data


def test_what_a_preview_says_is_what_then_happens(pal: Pal) -> None:
    long(pal.home)
    (previewed,) = pal.json("compact", LONG, "--preview")
    (made,) = pal.json("compact", LONG, "--no-model")

    same = ("policy", "why", "tokens_before", "tokens_after", "hidden")
    assert {name: made[name] for name in same} == {name: previewed[name] for name in same}


def test_what_goes_wrong_in_a_preview_is_told_of_the_session_itself(pal: Pal) -> None:
    Log.create(pal.home.shelf, SessionOpened("20310403-090000-cccc"), FixedClock(1)).close()
    error = pal.json("compact", "20310403-090000-cccc", "--preview", code=2)["error"]

    assert error == {
        "kind": "input",
        "message": "the session names no model, so name one with --model",
        "where": "20310403-090000-cccc",
    }


def test_a_file_without_a_name_cannot_be_pinned(pal: Pal) -> None:
    small(pal.home)

    assert pal.json("pin", SMALL, " ", code=2)["error"]["message"] == "a file has a name; this one is empty"
    assert pal.json("pin", SMALL)["pins"] == []


def test_a_fold_is_audited_and_undone_with_one_command_each(pal: Pal) -> None:
    long(pal.home)
    before = _view(pal, LONG)
    (made,) = pal.json("compact", LONG, "--no-model")
    audited = pal.json("audit", LONG)

    assert audited[-1] == made
    assert pal("undo", LONG, str(made["edit"])).exit_code == 0
    assert _view(pal, LONG).items == before.items
    assert pal.json("audit", LONG)[-1]["undone"]


def test_a_person_sees_the_price_the_reason_and_a_comparison(pal: Pal) -> None:
    long(pal.home)
    result = pal("compact", LONG, "--preview")

    assert result.exit_code == 0
    assert "the user asked for it" in result.stdout
    assert "the view, - before and + after:" in result.stdout
    assert result.stdout.endswith("nothing was changed; leave out --preview to do it\n")


@pytest.mark.parametrize("name", ["claude-code", "claude-code-2.1.325", "codex", "codex-0.166", "opencode", "opencode-1.18", "classroom"])
def test_every_profile_folds_without_a_model_on_the_rung_that_needs_none(pal: Pal, name: str) -> None:
    long(pal.home)
    edits = pal.json("compact", LONG, "--profile", name, "--no-model")

    assert edits[0]["policy"] == "fold without a model"
    assert edits[0]["tokens_after"] < edits[0]["tokens_before"]


def test_a_profile_that_nobody_knows_is_named_with_those_that_are(pal: Pal) -> None:
    small(pal.home)
    result = pal("compact", SMALL, "--profile", "other")

    assert result.exit_code == 2
    assert "there is no profile 'other'; known are palimpsest, " in result.stderr


def test_without_a_key_the_user_is_told_that_no_model_is_asked(pal: Pal) -> None:
    long(pal.home)
    result = pal("compact", LONG, ANTHROPIC_API_KEY="", ANTHROPIC_BASE_URL="", PAL_OFFLINE="")

    assert result.exit_code == 0
    assert "no model is asked: ANTHROPIC_API_KEY is not set" in result.stderr


def test_an_audit_lists_the_edits_of_this_branch_with_what_they_hide(pal: Pal) -> None:
    edited(pal.home)
    first, second = pal.json("audit", SMALL)

    assert (first["event"], first["policy"], first["why"], first["tokens_before"]) == (14, "tester", "it was long", 900)
    assert first["hidden"]["items"] == ["4.0", "4.1", "6.0", "8.0"]
    assert second["hidden"]["items"] == ["14.0.0"]
    assert first["at"] == "2031-04-01T09:01:00.000Z"


def test_one_edit_is_shown_in_full(pal: Pal) -> None:
    edited(pal.home)
    result = pal("audit", SMALL, "14")

    assert "- 4.0 assistant" in result.stdout
    assert "+ 14.0.0 summary" in result.stdout


def test_an_edit_that_is_none_is_an_error_and_no_edit_is_said_so(pal: Pal) -> None:
    small(pal.home)

    assert pal("audit", SMALL).stdout == "no edit was made: the model sees everything that was said\n"
    assert pal("audit", SMALL, "3").stderr == f"pal: {SMALL}: event 3 is no edit of this branch; `pal audit {SMALL}` lists them\n"


def test_refused_edits_are_listed_with_the_reason(pal: Pal) -> None:
    small(pal.home)
    assert pal("audit", SMALL, "--refused").stdout == "no edit was refused\n"
    with Log.open(pal.home.shelf, SMALL, FixedClock(1), write=True) as log:
        log.append(Refused("edit", "gate", "the view would not be smaller", edits=(Mask(("2.0",), "gone"),), of="fold"))

    assert pal.json("audit", SMALL, "--refused")[0]["why"] == "the view would not be smaller"
    assert "the view would not be smaller" in pal("audit", SMALL, "--refused").stdout


def test_items_and_files_are_pinned_listed_and_unpinned(pal: Pal) -> None:
    small(pal.home)

    assert pal("pin", SMALL).stdout == "nothing is pinned\n"
    assert pal("pin", SMALL, "6.0", "a.py").stdout == "pinned: 6.0, a.py\n"
    assert pal.json("pin", SMALL) == {"session": SMALL, "pins": ["6.0", "a.py"]}
    assert pal.json("unpin", SMALL, "6.0") == {"session": SMALL, "pins": ["a.py"]}
    with Log.open(pal.home.shelf, SMALL, FixedClock(1)) as log:
        assert log.event(14).body == Pinned(("6.0",), ("a.py",))


def test_what_is_pinned_is_not_hidden_by_a_fold(pal: Pal) -> None:
    long(pal.home)
    hidden = pal.json("compact", LONG, "--preview")[0]["hidden"]["items"]
    pinned = next(item.id for item in _view(pal, LONG).items if item.id in hidden and item.kind == "assistant")
    pal("pin", LONG, pinned)
    (made,) = pal.json("compact", LONG, "--no-model")

    assert pinned not in made["hidden"]["items"]
    assert pinned in _view(pal, LONG).ids


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("pin", SMALL, "99.0"), f"pal: {SMALL}: there is no item 99.0 on this branch; `pal context {SMALL}` lists them\n"),
        (("unpin", SMALL, "6.0"), f"pal: {SMALL}: 6.0 is not pinned; `pal pin {SMALL}` lists what is\n"),
    ],
)
def test_wrong_pins_are_refused(pal: Pal, words: tuple[str, ...], line: str) -> None:
    small(pal.home)
    result = pal(*words)

    assert (result.exit_code, result.stderr) == (2, line)
