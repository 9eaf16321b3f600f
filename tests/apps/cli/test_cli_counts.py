"""One session, one number: every command that prints the tokens of a view prints the same."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pal_runs import LONG, SMALL, Pal, edited, long, small

from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import rewind
from palimpsest.stores.ephemeral import FixedClock

GOLDEN = Path(__file__).parents[2] / "golden" / "foreign"


def shown_tokens(pal: Pal, session: str) -> int:
    found = re.search(r" items?, ([\d,]+) tokens?", pal("show", session).stdout)
    assert found is not None
    return int(found[1].replace(",", ""))


def check_agreement(pal: Pal, session: str) -> int:
    """Every command prints one number for the view before a fold, and one for the view after it; returns how many edits were made."""
    before = pal.json("context", session)["used"]
    assert shown_tokens(pal, session) == before
    preview = pal("compact", session, "--preview", "--no-model", "--json")
    if preview.exit_code or preview.stdout == "[]\n":
        return 0
    made = pal.json("compact", session, "--no-model")
    assert made[0]["tokens_before"] == before
    after = made[-1]["tokens_after"]
    assert pal.json("context", session)["used"] == shown_tokens(pal, session) == after
    assert [edit["tokens_after"] for edit in pal.json("audit", session)][-1] == after
    undoing = pal("undo", session, str(made[-1]["edit"]), "--yes", "--json")
    if undoing.exit_code == 0:
        undone = msgspec.json.decode(undoing.stdout)
        assert undone["tokens_before"] == after
        assert pal.json("context", session)["used"] == shown_tokens(pal, session) == undone["tokens_after"]
    return len(made)


@pytest.mark.parametrize("program", sorted(path.name for path in GOLDEN.iterdir() if path.is_dir()))
def test_the_commands_agree_to_the_token_on_sessions_of_every_program(pal: Pal, program: str) -> None:
    pal("import", str(GOLDEN / program))
    sessions = [row["id"] for row in pal.json("sessions")]
    for session in sessions[:3]:
        check_agreement(pal, session)
    assert sessions


def test_the_commands_agree_on_a_session_that_is_folded(pal: Pal) -> None:
    long(pal.home)
    edited(pal.home)

    assert (check_agreement(pal, LONG), check_agreement(pal, SMALL)) == (1, 0)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_the_commands_agree_after_a_rewind_to_any_event(pal: Pal, data: st.DataObject) -> None:
    # Not drawn: an example that is tried again needs a session of its own.
    session = f"s{len(pal.home.store.sessions())}"
    small(pal.home, session)
    with Log.open(pal.home.store, session, FixedClock(1), write=True) as log:
        rewind(log, data.draw(st.integers(2, log.tip)))

    check_agreement(pal, session)
