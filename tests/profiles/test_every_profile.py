"""What every profile has: settings that never cause a traceback, what the engine needs, and an undo that lasts."""

import re

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from working_days import tell
from workplace import offline, reply, say, use, work

from palimpsest.agent.editing import PolicyRun, run_policies
from palimpsest.agent.session import Session
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Text
from palimpsest.core.undo import restore
from palimpsest.core.view import Reported
from palimpsest.policies.named import PROFILES, profile
from palimpsest.policies.profile import lenient_number, parse_number, strict_number
from palimpsest.wire.models import card

LONG = "9" * 5_000
CLAUDE = card("claude-sonnet-4-5")
STRICT = [
    *(("palimpsest", name) for name in ("PAL_TAIL", "PAL_MESSAGES", "PAL_RESULTS", "PAL_PREVIEW_ABOVE", "PAL_COMPACT_AT")),
    *((name, key) for name in ("codex", "codex-0.166") for key in ("model_context_window", "model_auto_compact_token_limit")),
    *((name, "tool_output_token_limit") for name in ("codex", "codex-0.166")),
    *(("opencode-1.18", f"compaction.{key}") for key in ("reserved", "tail_turns", "preserve_recent_tokens")),
    *(("context-editing", f"clear_tool_uses.{key}") for key in ("trigger", "keep", "clear_at_least")),
    *(("opencode-1.18", f"tool_output.{key}") for key in ("max_lines", "max_bytes")),
]
LENIENT = (
    *("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"),
    *("CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE", "CLAUDE_CODE_AUTO_COMPACT_WINDOW"),
)


@every_case("wrong", [LONG, "many", "-5", "1.5", "٣٤", "²", "0x10"])
@every_case(("name", "key"), STRICT)
def test_a_setting_that_is_no_number_raises_one_short_line(name: str, key: str, wrong: str) -> None:
    with pytest.raises(BadInput, match=re.escape(key)) as raised:
        profile(name, {key: wrong}).budget(CLAUDE)
    assert len(raised.value.message) < 200
    assert "\n" not in raised.value.message


@every_case("wrong", [LONG, "many", "-5", "1.5", "٣٤", "²", "0"])
@every_case("key", LENIENT)
@every_case("name", ["claude-code", "claude-code-2.1.325"])
@pytest.mark.states("CC-06")
def test_what_is_out_of_its_range_is_as_if_it_were_not_there(name: str, key: str, wrong: str) -> None:
    assert profile(name, {key: wrong}).budget(CLAUDE) == profile(name).budget(CLAUDE)


def test_a_number_may_have_underscores_and_blanks_around_it() -> None:
    assert strict_number({"a": " 12_000 "}, "a") == 12_000
    assert strict_number({}, "a") is None
    assert strict_number({"a": "  "}, "a") is None
    assert strict_number({"a": "0"}, "a", least=0) == 0
    assert lenient_number({"a": "100"}, "a", 100) == 100
    assert lenient_number({"a": "101"}, "a", 100) is None


@given(st.text(max_size=30))
def test_whatever_is_written_reads_as_a_number_or_as_nothing(text: str) -> None:
    found = parse_number(text)
    assert found is None or 1 <= found < 10**11


@given(st.integers(1, 10**11 - 1))
def test_every_number_of_a_sensible_length_is_read(one: int) -> None:
    assert parse_number(str(one)) == one
    assert parse_number(f"{one:_}") == one


# A head, messages, tool results and a mask.
TOLD = [(7, 1, 1), (0, 1, 1), (2, 1, 1), (0, 2, 2), (0, 3, 3), (1, 1, 1), (3, 1, 1)]


@every_case("name", PROFILES)
def test_a_profile_counts_the_same_with_the_counter_of_the_session_and_with_the_sizes_of_its_view(name: str) -> None:
    session = work(profile(name))
    tell(session, TOLD)
    view, count = session.log.view, session.profile.count
    sizes = session.counter.sizes_of(view)
    for each in (view, replace(view, reported=None), replace(view, reported=Reported(70_000, view.seq - 4, 900))):
        assert count(each, session.counter, 1_500) == count(each, sizes, 1_500) > 0


# What clearing leaves is counted with a margin of a third once a fold is undone, so the fold comes early enough to be undone.
FOLDING = [
    *sorted(set(PROFILES) - {"lossless", "none", "context-editing", "gateway", "gateway-thrifty"}),
    "context-editing@clear_tool_uses.trigger=50000,CLAUDE_CODE_AUTO_COMPACT_WINDOW=150000,CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE=180000",
]


def _run(session: Session) -> PolicyRun:
    return offline(session, run_policies(session, "before_call")).then(offline(session, run_policies(session, "after_call")))


def _first_fold(session: Session) -> PolicyRun:
    """Results arrive until a fold comes; long words of the model make it come even where every result is masked."""
    for number in range(400):
        reply(session, Text(f"what I found in file {number}: " + "something else " * 200))
        use(session, f"c{number}", "Read", f'{{"file_path":"f{number}.py"}}', f"value_{number} = {number}\n" * 300)
        ran = _run(session)
        if ran.folded:
            return ran
    raise AssertionError("no fold came")


@every_case("name", FOLDING)
def test_an_undone_fold_does_not_come_back_by_itself(name: str) -> None:
    session = work(profile(name))
    say(session, "look at all files")
    for event in reversed(_first_fold(session).edited):
        session.undo(event.seq)
    before = session.log.view
    for _ in range(3):
        assert _run(session).edited == ()
    assert session.log.view.items == before.items


@every_case("name", FOLDING)
def test_a_restored_item_is_not_masked_or_folded_again_one_call_later(name: str) -> None:
    session = work(profile(name))
    say(session, "look at all files")
    _first_fold(session)
    wanted = next(f"{event.seq}.0" for event in session.log.events() if isinstance(event.body, ToolReturned))
    restore(session.log, wanted)
    assert session.log.view[wanted].mask is None
    for number in range(3):
        use(session, f"later{number}", "Read", f'{{"file_path":"later{number}.py"}}', f"later_{number} = 1\n" * 300)
        _run(session)
        assert session.log.view[wanted].mask is None


@every_case("name", FOLDING)
def test_an_undone_fold_comes_again_when_nothing_could_be_sent(name: str) -> None:
    session = work(profile(name))
    say(session, "look at all files")
    for event in reversed(_first_fold(session).edited):
        session.undo(event.seq)
    room = session.budget.block_at or session.budget.window
    say(session, "and now this: " + "word " * (room - session.used + 1_000))
    assert session.used >= room
    _run(session)
    assert session.used < room
