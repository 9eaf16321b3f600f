"""Masking by tokens: which results, when, and what replaces them."""

import json
from dataclasses import replace as with_
from pathlib import Path

import pytest
from claude_lines import lines_of
from claude_session import Line, chained, prompt, result, text, written
from claude_session import call as block
from claude_session import reply as line
from claude_work import SONNET, claude, edits, texts
from readings import Home
from workplace import START, offline, reply, say, use

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.audit.working_state import known_paths, must_read_again
from palimpsest.core.errors import StoreError
from palimpsest.core.events import Recalled, Usage, ViewEdited
from palimpsest.core.items import Mask, Text
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.peers.clearing import ClearResults
from palimpsest.policies.named import profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.stores.sessions import MemoryResultFiles

CLEARED = "[Old tool result content cleared]"
GOLDEN = (3_500, *[4_500] * 9, *[5_000] * 4)


def output(number: int, tokens: int) -> str:
    return f"{number:03}" + "x" * (tokens * 4 - 3)


def work(session: Session, used: int, sizes: tuple[int, ...] = GOLDEN, tool: str = "Bash") -> Session:
    """One call of a tool for each size in tokens; then the provider reports what is used."""
    say(session, "run them all")
    for number, size in enumerate(sizes):
        use(session, f"toolu_{number}", tool, json.dumps({"command": f"make {number}"}), output(number, size))
    reply(session, Text("All ran.", "assistant"), usage=Usage(input=used))
    return session


def before_call(session: Session) -> list[Mask]:
    ran = offline(session, run_policies(session, "before_call"))
    assert all(event in ran.edited for event in ran.events)
    made = [event.body for event in ran.edited if isinstance(event.body, ViewEdited)]
    return [edit for body in made for edit in body.edits if isinstance(edit, Mask)]


def masked(session: Session) -> list[int]:
    """The numbers of the results that are masked."""
    results = [item for item in session.log.view.items if item.kind == "result"]
    return [number for number, item in enumerate(results) if item.mask is not None]


@pytest.mark.states("CC-17")
def test_the_token_mask_on_the_golden_case_masks_the_oldest_6_of_14_results_at_137000_and_none_at_132000() -> None:
    session = work(claude(), 137_000)
    before_call(session)
    assert masked(session) == [0, 1, 2, 3, 4, 5]
    (edit,) = edits(session)
    assert edit.why == "auto: 6 old results of 26,000 tokens are masked, 38,000 stay"
    assert (edit.by, edit.moment, edit.tokens_before) == ("clear_results", "before_call", 137_000)
    assert 111_000 < edit.tokens_after < 111_300
    assert before_call(session) == []
    session = work(claude(), 132_000)
    assert before_call(session) == []


@pytest.mark.states("CC-18")
def test_the_token_mask_rests_when_it_would_save_less_than_20000() -> None:
    assert before_call(work(claude(), 140_000, (5_000,) * 11)) == []
    assert before_call(work(claude(), 140_000, (19_999, 10_000, 10_000, 10_000, 10_000))) == []
    session = work(claude(), 140_000, (20_000, 10_000, 10_000, 10_000, 10_000))
    before_call(session)
    assert masked(session) == [0]


@pytest.mark.states("CC-18")
def test_the_token_mask_never_touches_the_newest_3_maskable_calls() -> None:
    session = work(claude(), 140_000, (15_000, 15_000, 30_000, 30_000, 30_000))
    before_call(session)
    assert masked(session) == [0, 1]
    assert before_call(work(claude(), 140_000, (30_000, 30_000, 30_000))) == []


@pytest.mark.states("CC-19")
def test_tools_outside_the_list_of_eight_are_never_masked_nor_is_any_call() -> None:
    for tool in ("Task", "TodoWrite", "Skill", "mcp__server__read", "NotebookEdit"):
        assert before_call(work(claude(), 140_000, (10_000,) * 9, tool)) == []
    for tool in ("Read", "Bash", "Grep", "Glob", "WebSearch", "WebFetch", "Edit", "Write"):
        session = work(claude(), 140_000, (10_000,) * 9, tool)
        before_call(session)
        assert masked(session) == [0, 1, 2, 3, 4]
        assert all(item.mask is None for item in session.log.view.items if item.kind != "result")


def asked(session: Session, target: int) -> None:
    policies = (ClearResults(target=target, manual=True),)
    session.profile = with_(session.profile, policies=policies)
    offline(session, run_policies(session, "asked"))


@pytest.mark.states("CC-20")
def test_a_manual_target_skips_the_warn_and_saving_gates_and_is_recorded_as_manual() -> None:
    session = work(claude(), 50_000, (5_000,) * 6)
    asked(session, 20_000)
    assert masked(session) == [0, 1]
    (boundary,) = [each for each in lines_of(session.log, MemoryBlobs()) if each.get("subtype") == "microcompact_boundary"]
    assert boundary["microcompactMetadata"]["trigger"] == "manual"
    (edit,) = edits(session)
    assert (edit.why.partition(":")[0], edit.moment) == ("manual", "asked")


@pytest.mark.states("CC-21")
def test_a_masked_result_shows_the_saved_file_placeholder() -> None:
    session = work(claude(), 137_000)
    before_call(session)
    files = session.environment.keep
    assert isinstance(files, MemoryResultFiles)
    assert texts(session)[2] == "<persisted-output>Tool result saved to: memory:results/toolu_0.txt\n\nUse Read to view</persisted-output>"
    assert files.files == {f"memory:results/toolu_{number}.txt": output(number, GOLDEN[number]).encode() for number in range(6)}


@pytest.mark.states("CC-21")
def test_the_cleared_string_shows_when_saving_fails() -> None:
    def full(name: str, data: bytes) -> str:
        raise StoreError("the disk is full")

    session = claude()
    session.environment = with_(session.environment, keep=full)
    work(session, 137_000)
    before_call(session)
    assert [item.mask.text for item in session.log.view.items if item.mask] == [CLEARED] * 6


@pytest.mark.states("CC-21")
def test_nothing_is_masked_or_saved_twice() -> None:
    session = work(claude(), 137_000)
    before_call(session)
    use(session, "toolu_new", "Bash", "{}", output(99, 30_000))
    reply(session, Text("More.", "assistant"), usage=Usage(input=150_000))
    before_call(session)
    first, second = edits(session)
    assert {mask.ids for mask in first.edits if isinstance(mask, Mask)}.isdisjoint(
        mask.ids for mask in second.edits if isinstance(mask, Mask)
    )
    assert masked(session) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    pointed = "<persisted-output>\nOutput too large (200KB). Full output saved to: /x\n</persisted-output>"
    session = claude()
    say(session, "go")
    use(session, "early", "Bash", "{}", pointed)
    work(session, 137_000)
    before_call(session)
    assert masked(session) == [1, 2, 3, 4, 5, 6]


@pytest.mark.states("CC-22")
def test_a_token_mask_also_drops_recalled_notes_once_and_lists_them_in_the_boundary() -> None:
    session = claude()
    recalled = session.log.append(Recalled("parser", ("a.md",), parts=(Text("a note about parsers"),)))
    work(session, 137_000)
    note = f"{recalled.seq}.0"
    assert before_call(session)[-1] == Mask((note,))
    assert session.log.view[note].hidden
    (boundary,) = [each for each in lines_of(session.log, MemoryBlobs()) if each.get("subtype") == "microcompact_boundary"]
    metadata = boundary["microcompactMetadata"]
    assert (metadata["trigger"], metadata["compactedToolIds"]) == ("auto", [f"toolu_{number}" for number in range(6)])
    assert len(metadata["clearedAttachmentUUIDs"]) == 1
    use(session, "toolu_new", "Bash", "{}", output(99, 30_000))
    reply(session, Text("More.", "assistant"), usage=Usage(input=150_000))
    assert all(mask.text for mask in before_call(session))


def reads(session: Session, *calls: tuple[str, str, int]) -> Session:
    say(session, "look")
    for number, (tool, path, size) in enumerate(calls):
        use(session, f"r{number}", tool, json.dumps({"file_path": path}), output(number, size))
    reply(session, Text("Seen.", "assistant"), usage=Usage(input=140_000))
    return session


@pytest.mark.states("CC-23")
def test_a_path_whose_only_visible_read_was_masked_must_be_read_again_before_an_edit_one_with_another_visible_read_need_not() -> None:
    session = reads(
        claude(),
        ("Read", "/a.py", 20_000),
        ("Read", "/b.py", 20_000),
        ("Edit", "/b.py", 10),
        ("Read", "/c.py", 10),
        ("Read", "/a.py", 19_000),
        ("Read", "/d.py", 19_000),
    )
    assert must_read_again(session.log.view) == frozenset()
    before_call(session)
    assert masked(session) == [0, 1]
    assert must_read_again(session.log.view) == {"/b.py"}
    assert known_paths(session.log.view) == {"/a.py", "/c.py", "/d.py"}
    use(session, "again", "Read", '{"file_path":"/b.py"}', "b")
    assert must_read_again(session.log.view) == frozenset()


def transcript(folder: Path, *, boundary: bool) -> Path:
    """The golden case as Claude Code would have written it, with its own record of the mask or without."""
    lines: list[Line] = [prompt("u0", None, "run them all")]
    for number, size in enumerate(GOLDEN):
        lines.append(line(f"a{number}", lines[-1]["uuid"], f"m{number}", block(f"toolu_{number}", command=f"make {number}")))
        lines.append(result(f"r{number}", f"a{number}", f"toolu_{number}", output(number, size)))
    last = line("end", lines[-1]["uuid"], "mend", text("All ran."))
    last["message"]["usage"] = {"input_tokens": 137_000, "output_tokens": 1}
    lines.append(last)
    if boundary:
        masks = [f"toolu_{number}" for number in range(6)]
        details = {"trigger": "auto", "preTokens": 64_000, "tokensSaved": 26_000, "compactedToolIds": masks, "clearedAttachmentUUIDs": []}
        fields = {"subtype": "microcompact_boundary", "content": "Context microcompacted", "microcompactMetadata": details}
        lines.append(chained("k", "end", "system", **fields))
    return written(folder, *lines)


@pytest.mark.parametrize("boundary", [True, False])
@pytest.mark.states("CC-24")
def test_masks_survive_resume_from_boundary_records_where_present_by_the_same_rule_where_not(tmp_path: Path, boundary: bool) -> None:
    home = Home()
    (imported,) = home.take(ClaudeFormat(), transcript(tmp_path, boundary=boundary))
    environment = Environment(home.store, MemoryBlobs(), FixedClock(START), keep=MemoryResultFiles(), offload=inline, retries=NO_RETRIES)
    session = Session.resume(imported.session, profile("claude-code", {}), SONNET, environment)
    assert masked(session) == ([0, 1, 2, 3, 4, 5] if boundary else [])
    session.profile = with_(session.profile, policies=(ClearResults(),))
    before_call(session)
    assert masked(session) == [0, 1, 2, 3, 4, 5]
    session.close()
    again = Session.resume(imported.session, profile("claude-code", {}), SONNET, environment)
    assert masked(again) == [0, 1, 2, 3, 4, 5]


def test_what_the_user_pinned_or_brought_back_is_not_masked() -> None:
    session = work(claude(), 137_000)
    first = next(item.id for item in session.log.view.items if item.kind == "result")
    session.pin(ids=(first,))
    before_call(session)
    assert masked(session) == [1, 2, 3, 4, 5, 6]
    (event,) = [event for event in session.log.events() if isinstance(event.body, ViewEdited)]
    session.undo(event.seq)
    reply(session, Text("again", "assistant"), usage=Usage(input=137_000))
    before_call(session)
    assert set(masked(session)).isdisjoint({0, 1, 2, 3, 4, 5, 6})


def test_a_mask_is_recorded_with_what_it_hides() -> None:
    session = work(claude(), 137_000)
    before_call(session)
    (edit,) = edits(session)
    assert edit.loss is not None
    assert len(edit.loss.ids) == 6
