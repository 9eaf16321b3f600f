"""Sessions that the real programs wrote: ours compacts where they did, and keeps what they kept."""

import pytest
from claude_work import MEASURED, SUMMARY, edits
from corpus import golden
from readings import Home
from workplace import START, online

from palimpsest.core.events import UserSaid, ViewEdited
from palimpsest.core.log.log import Log
from palimpsest.core.view import View
from palimpsest.engine.environment import Environment, inline
from palimpsest.engine.policies import run_policies
from palimpsest.engine.session import Session
from palimpsest.foreign.claude.format import ClaudeFormat
from palimpsest.profiles.named import profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.wire.models.cards import card

CONVERSATION_KINDS = frozenset({"user", "assistant", "thinking", "call", "result"})
CASES = [
    ("claude/2.1.19/projects/*/c5073ae2*.jsonl", "claude-code", [160_010, 160_010]),
    ("claude/2.1.325/projects/*/69901b92*.jsonl", MEASURED, [172_051, 172_051]),
]


def conversation_ids(view: View) -> list[str]:
    """Return the ids of visible conversation items; stated context is left out, because other events state it again."""
    return [item.id for item in view.items if item.kind in CONVERSATION_KINDS]


@pytest.mark.parametrize(("pattern", "name", "counted"), CASES)
def test_a_recorded_session_is_compacted_where_the_real_program_did_it_and_the_same_stays(
    pattern: str, name: str, counted: list[int]
) -> None:
    (path,) = golden(pattern)
    home = Home()
    log = Log.open(home.store, home.take(ClaudeFormat(), path)[0].session, FixedClock(START))
    events = list(log.events())
    real = [(event.seq, event.body) for event in events if isinstance(event.body, ViewEdited)]
    assert [body.tokens_before for _, body in real] == counted
    for number, (seq, body) in enumerate(real):
        prompt = max(event.seq for event in events[:seq] if isinstance(event.body, UserSaid))
        environment = Environment(home.store, home.blobs, FixedClock(START), offload=inline, retries=NO_RETRIES)
        session = Session(log.fork(home.store, f"{name}-{number}", prompt), profile(name), card("claude-sonnet-4-6"), environment)
        assert abs(session.used - body.tokens_before) <= 25
        before = conversation_ids(session.log.view)
        assert online(session, run_policies(session, "before_call"), Scripted(SUMMARY)).folded
        assert [edit.by for edit in edits(session)][-2:] == ["summarize", "restore"]
        assert conversation_ids(session.log.view) == conversation_ids(log.state_at(seq).view)
        assert len(conversation_ids(session.log.view)) < len(before)


def test_a_recorded_session_that_was_compacted_on_demand_keeps_its_last_reply() -> None:
    (path,) = golden("claude/2.1.325-interactive/projects/*/*.jsonl")
    home = Home()
    log = Log.open(home.store, home.take(ClaudeFormat(), path)[0].session, FixedClock(START))
    (seq,) = [event.seq for event in log.events() if isinstance(event.body, ViewEdited)]
    environment = Environment(home.store, home.blobs, FixedClock(START), offload=inline, retries=NO_RETRIES)
    session = Session(log.fork(home.store, "asked", seq - 1), profile(MEASURED), card("claude-sonnet-4-6"), environment)
    assert online(session, run_policies(session, "asked"), Scripted(SUMMARY)).folded
    assert conversation_ids(session.log.view) == conversation_ids(log.state_at(seq).view)
