"""Compaction by running notes: no model, the newest messages stay, and the four reasons to do nothing."""

import json
from dataclasses import replace as with_

import pytest
from claude_work import SUMMARY, claude, edits, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from workplace import offline, online, reply, say, use

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.events import EditRefused, NotesTaken, ToolReturned, Usage
from palimpsest.core.items import Text, ToolCall, ToolResult, unpaired
from palimpsest.peers.summaries import SwapNotes, is_empty_notes
from palimpsest.providers.scripted import Scripted

NOTES = "# Session Title\n_five to ten words_\nParser work\n\n# Current State\n_what is being done_\nThe lexer is next.\n"
EMPTY = "# Session Title\n_five to ten words_\n\n# Current State\n_what is being done_\n"


def unmasked() -> Session:
    """A session in which no mask makes room before the notes can."""
    return claude(settings={"DISABLE_MICROCOMPACT": "1"})


def talk(session: Session, count: int, tokens: int, first: int = 0) -> None:
    """Exchanges of words and a call each; every exchange has about that many tokens in its result."""
    for number in range(first, first + count):
        say(session, f"question {number}")
        use(session, f"c{number}", "Read", json.dumps({"file_path": f"{number}.py"}), f"{number:04}" + "x" * (4 * tokens - 4))
        reply(session, Text(f"answer {number}", "assistant"))


def noted(session: Session, text: str = NOTES, covers: int | None = None) -> None:
    session.log.append(NotesTaken(text, session.log.tip if covers is None else covers))


def full(session: Session, used: int = 156_000) -> None:
    reply(session, Text("nearly full", "assistant"), usage=Usage(input=used))


def kept_tokens(session: Session) -> int:
    return sum(session.counter.item(item) for item in session.log.view.items[1:])


@pytest.mark.states("CC-48")
def test_swapping_notes_makes_no_model_call_and_keeps_10000_to_40000_with_at_least_5_texts() -> None:
    session = unmasked()
    talk(session, 40, 2_000)
    noted(session)
    talk(session, 1, 1_000, 40)
    full(session)
    provider = Scripted()
    assert online(session, run_policies(session, "before_call"), provider).folded
    assert provider.requests == []
    (edit,) = edits(session)
    assert edit.by == "swap_notes"
    shown = texts(session)
    assert "Summary:\n# Session Title" in shown[0]
    assert "they follow word for word" in shown[0]
    assert shown[-1] == "nearly full"
    assert 10_000 <= kept_tokens(session) <= 40_000
    assert sum(text.startswith(("question", "answer", "nearly")) for text in shown[1:]) >= 5
    assert unpaired(session.log.view.items) == frozenset()


@pytest.mark.states("CC-48")
def test_few_texts_move_the_start_back_until_there_are_five_or_40000() -> None:
    session = unmasked()
    talk(session, 6, 200)
    for number in range(20):
        use(session, f"d{number}", "Bash", "{}", "y" * 4_000)
    noted(session)
    full(session)
    assert offline(session, run_policies(session, "before_call")).folded
    said = [text for text in texts(session) if text.startswith(("question", "answer", "nearly"))]
    assert said == ["question 4", "answer 4", "question 5", "answer 5", "nearly full"]
    assert 20_000 <= kept_tokens(session) <= 40_000


@pytest.mark.states("CC-48")
def test_what_the_notes_do_not_cover_stays_whole_even_above_40000() -> None:
    session = unmasked()
    talk(session, 20, 2_000)
    noted(session)
    talk(session, 10, 5_000, 20)
    full(session)
    assert offline(session, run_policies(session, "before_call")).folded
    assert texts(session)[1] == "question 20"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["say", "one", "two", "answer"]), min_size=6, max_size=30),
    st.integers(0, 80),
    st.integers(100, 3_000),
    st.integers(0, 12_000),
)
@pytest.mark.states("CC-49")
def test_the_keep_window_never_starts_between_a_call_and_its_result(steps: list[str], covers: int, tokens: int, least: int) -> None:
    session = unmasked()
    session.profile = with_(session.profile, policies=(SwapNotes(least=least),))
    say(session, "go " * 9_000)
    for number, step in enumerate(steps):
        match step:
            case "say":
                say(session, f"question {number}")
            case "answer":
                reply(session, Text("answer", "assistant"))
            case "one":
                use(session, f"c{number}", "Read", "{}", "x" * 4 * tokens)
            case _:
                reply(session, ToolCall(f"a{number}", "Read", "{}"), ToolCall(f"b{number}", "Read", "{}"))
                for name in (f"b{number}", f"a{number}"):
                    session.log.append(ToolReturned(ToolResult(name, (Text("y" * 4 * tokens),)), tool="Read"))
    noted(session, covers=min(covers, session.log.tip))
    full(session)
    offline(session, run_policies(session, "before_call"))
    assert unpaired(session.log.view.items) == frozenset()
    assert not any(isinstance(event.body, EditRefused) and "parted" in event.body.why for event in session.log.events())


@pytest.mark.states("CC-49")
def test_with_parallel_calls_the_window_begins_with_their_message() -> None:
    session = unmasked()
    talk(session, 12, 2_000)
    say(session, "look at both")
    reply(session, Text("both", "assistant"), ToolCall("a", "Read", "{}"), ToolCall("b", "Read", "{}"))
    session.log.append(ToolReturned(ToolResult("a", (Text("x" * 40_000),)), tool="Read"))
    noted(session)
    session.log.append(ToolReturned(ToolResult("b", (Text("y" * 160_000),)), tool="Read"))
    full(session)
    assert offline(session, run_policies(session, "before_call")).folded
    assert texts(session)[1:4] == ["both", "Read {}", "Read {}"]


def give_up(session: Session) -> None:
    """The notes are not used, and full compaction runs instead."""
    assert online(session, run_policies(session, "before_call"), Scripted(SUMMARY)).folded
    assert [edit.by for edit in edits(session)] == ["summarize"]


@pytest.mark.states("CC-50")
def test_a_without_notes_full_compaction_runs() -> None:
    session = unmasked()
    talk(session, 20, 2_000)
    full(session)
    give_up(session)


@pytest.mark.states("CC-50")
def test_b_with_notes_that_equal_the_empty_template_full_compaction_runs() -> None:
    session = unmasked()
    talk(session, 20, 2_000)
    noted(session, EMPTY)
    full(session)
    give_up(session)
    assert is_empty_notes("own template\n", "own template")
    assert not is_empty_notes(NOTES)


@pytest.mark.parametrize("covers", [-1, 9_999, 0])
@pytest.mark.states("CC-50")
def test_c_when_the_last_covered_message_is_unknown_or_not_found_full_compaction_runs(covers: int) -> None:
    session = unmasked()
    talk(session, 20, 2_000)
    noted(session, covers=covers)
    full(session)
    give_up(session)


@pytest.mark.states("CC-50")
def test_d_when_the_result_would_still_be_too_large_full_compaction_runs() -> None:
    session = unmasked()
    talk(session, 2, 2_000)
    noted(session)
    talk(session, 32, 5_000, 2)
    full(session, 190_000)
    give_up(session)


@pytest.mark.states("CC-50")
def test_arguments_of_an_asked_compaction_go_to_full_compaction_since_notes_cannot_follow_them() -> None:
    session = unmasked()
    talk(session, 20, 2_000)
    noted(session)
    full(session, 60_000)
    assert online(session, run_policies(session, "asked", asked="the lexer"), Scripted(SUMMARY)).folded
    assert [edit.by for edit in edits(session)] == ["summarize"]


def test_an_asked_compaction_swaps_notes_once_and_asks_no_model() -> None:
    session = unmasked()
    talk(session, 20, 2_000)
    noted(session)
    full(session, 60_000)
    provider = Scripted()
    assert online(session, run_policies(session, "asked"), provider).folded
    assert (provider.requests, [edit.by for edit in edits(session)]) == ([], ["swap_notes"])
    assert "Go on with the work" not in texts(session)[0]


def test_the_window_never_moves_past_an_earlier_boundary() -> None:
    session = unmasked()
    talk(session, 30, 2_000)
    noted(session)
    full(session)
    offline(session, run_policies(session, "before_call"))
    talk(session, 20, 2_000, 30)
    noted(session)
    full(session)
    offline(session, run_policies(session, "before_call"))
    assert [edit.by for edit in edits(session)] == ["swap_notes", "swap_notes"]
    summaries = [item for item in session.log.view.items if item.kind == "summary"]
    assert len(summaries) == 1
    assert session.log.view.items[0] == summaries[0]


def test_notes_that_would_stand_only_for_an_earlier_summary_are_not_swapped_in() -> None:
    session = unmasked()
    talk(session, 30, 2_000)
    noted(session)
    full(session)
    offline(session, run_policies(session, "before_call"))
    say(session, "and?")
    noted(session)
    full(session)
    give_up_after = online(session, run_policies(session, "before_call"), Scripted(SUMMARY))
    assert give_up_after.folded
    assert [edit.by for edit in edits(session)] == ["swap_notes", "summarize"]
