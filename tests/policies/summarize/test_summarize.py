"""Full compaction: the request, the use of its reply, and the view afterwards."""

import json
import re
from dataclasses import replace as with_

import pytest
from claude_work import MEASURED, SUMMARY, body_of, claude, edits, fill, texts
from every_case import every_case
from msgspec import Raw
from workplace import offline, online, reply, say, use

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.events import ContextStated, ModelReplied, Statement, ToolReturned, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Document, Fold, Image, Text, ToolCall, ToolResult
from palimpsest.core.ports import Sendable
from palimpsest.core.view_projection import project
from palimpsest.peers.summaries import ContinuationMessage, Summarize
from palimpsest.policies.limits import prompt
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card
from palimpsest.wire.request import Tool

READ = Tool("Read", "Reads a file.", Raw(b'{"type":"object","properties":{"file_path":{"type":"string"}}}'))
OPENING = "This conversation goes on from an earlier one"
GO_ON = "Go on with the work"
POINTER = "stands in the full transcript.\nRead it at: /logs/s.jsonl"
VERBATIM = "The messages after this one are verbatim"


def compact(session: Session, *replies: str, asked: str | None = None) -> Scripted:
    provider = Scripted(*(replies or (SUMMARY,)))
    steps = run_policies(session, "before_call") if asked is None else run_policies(session, "asked", asked=asked)
    assert online(session, steps, provider).folded
    return provider


def with_head(name: str) -> Session:
    session = claude(name, tools=(READ,))
    head = (Statement("base", "You are an agent.", "system"), Statement("rules", "Be brief.", "system"))
    session.log.append(ContextStated((Statement("instructions", "Use tabs."),), head))
    fill(session, 170_000, 5)
    say(session, "and now the lexer")
    return session


@pytest.mark.parametrize("name", ["claude-code", MEASURED])
@pytest.mark.states("CC-29")
def test_the_compaction_request_equals_the_conversations_head_tools_and_prefix_plus_one_text_block(name: str) -> None:
    session = with_head(name)
    live = body_of(encode(session.log.view, session.card, session.tools, session.params))
    asked = body_of(compact(session).requests[0])
    assert {key: asked[key] for key in asked if key != "messages"} == {key: live[key] for key in live if key != "messages"}
    assert asked["max_tokens"] == 32_000
    kept = 0 if name == "claude-code" else 2
    part = live["messages"][: len(live["messages"]) - kept]
    block = {"type": "text", "text": prompt("claude_code/nine_sections")}
    assert asked["messages"] == [*part[:-1], {"role": "user", "content": [*part[-1]["content"], block]}]


def marked(request: Sendable) -> list[str]:
    """The texts of the blocks that carry a cache mark."""
    body = json.loads(request.body)
    blocks = [*body["system"], *(block for message in body["messages"] for block in message["content"])]
    return [block.get("text", block["type"])[:17] for block in blocks if "cache_control" in block]


@pytest.mark.states("CC-29")
def test_the_prompt_is_marked_and_v_it_is_not_but_the_end_of_what_the_model_said_last_in_the_folded_part() -> None:
    assert marked(compact(with_head("claude-code")).requests[0]) == ["Be brief.", "Read them all.", "Answer in plain t"]
    assert marked(compact(with_head(MEASURED)).requests[0]) == ["Be brief.", "tool_use"]


def with_pictures(name: str) -> Session:
    session = claude(name)
    blob = session.environment.blobs.put(b"\x89PNG")
    paper = session.environment.blobs.put(b"%PDF")
    say(session, "word " * 2_000)
    session.log.append(UserSaid((Image("image/png", blob=blob), Document("application/pdf", blob=paper))))
    reply(session, ToolCall("c1", "Read", "{}"))
    session.log.append(ToolReturned(ToolResult("c1", (Text("look: "), Image("image/png", blob=blob))), tool="Read"))
    fill(session, 170_000)
    return session


@pytest.mark.states("CC-30")
def test_images_and_documents_in_it_are_words_while_the_log_is_untouched() -> None:
    session = with_pictures("claude-code")
    before = list(session.log.events())
    blocks = [block for message in body_of(compact(session).requests[0])["messages"] for block in message["content"]]
    said = [block["text"] for block in blocks if block["type"] == "text"]
    assert [text for text in said if text.startswith("[")] == ["[image]", "[document]"]
    (result,) = [block["content"] for block in blocks if block["type"] == "tool_result" and block["tool_use_id"] == "c1"]
    assert [part["text"] for part in result] == ["look: ", "[image]"]
    assert list(session.log.events())[: len(before)] == before


@pytest.mark.states("CC-30")
def test_they_stay() -> None:
    session = with_pictures(MEASURED)
    body = json.dumps(body_of(compact(session).requests[0]))
    assert body.count('"type": "image"') == 2
    assert body.count('"type": "document"') == 1


SECTIONS = (
    "1. Primary Request and Intent",
    "2. Key Technical Concepts",
    "3. Files and Code Sections",
    "4. Errors and fixes",
    "5. Problem Solving",
    "6. All user messages",
    "7. Pending Tasks",
    "8. Current Work",
    "9. Optional Next Step",
)


@pytest.mark.states("CC-31")
def test_our_prompt_names_all_nine_sections_in_order_forbids_tools_first_and_last_and_asks_for_both_tags() -> None:
    text = prompt("claude_code/nine_sections")
    paragraphs = text.split("\n\n")
    for block, forbids in ((paragraphs[0], "Use no tool of any kind"), (paragraphs[-1], "no tool calls")):
        assert "plain text" in block
        assert forbids in block
        assert "turned down" in block
        assert 0 < block.index("<analysis>") < block.index("<summary>")
    assert "all that you need stands above" in paragraphs[0]
    assert "only turn" in paragraphs[0]
    skeleton = text[text.index("<analysis>\n[") : text.index("</summary>")]
    for part in (text, skeleton):
        places = [part.index(section) for section in SECTIONS]
        assert places == sorted(places)
    assert text.index("## Compact Instructions") < text.index("# Summary instructions")
    assert "Additional Instructions" not in text


ASKED = {
    "task": ("whole conversation", "in detail", "the user asked for", "what you did", "technical detail", "code pattern", "architecture"),
    "scratchpad": (
        "in the order in which it happened",
        *("what the user asked for and meant", "how you went about it", "decisions, concepts and code patterns"),
        *("file names, whole snippets of code, signatures of functions, edits of files", "the errors that came up, and what fixed"),
        *("what the user said about your work", "another way", "is true and that nothing is missing"),
    ),
}
HOLDS = {
    "1. Primary Request and Intent": ("every explicit request", "what it is for", "in detail"),
    "2. Key Technical Concepts": ("concepts, technologies and frameworks",),
    "3. Files and Code Sections": ("read, changed or created", "newest", "whole snippets", "why each file matters", "what was changed"),
    "4. Errors and fixes": ("each error", "how it was fixed", "what the user said about it"),
    "5. Problem Solving": ("what was solved", "still being looked into"),
    "6. All user messages": ("every message of the user that is not the result of a tool", "does not drift"),
    "7. Pending Tasks": ("explicitly asked for and is not done",),
    "8. Current Work": ("exactly", "just before", "file names and snippets", "newest messages weigh most"),
    "9. Optional Next Step": (
        "only if",
        "newest explicit request",
        "finished long ago",
        "without asking",
        "word for word",
        "where the work stopped",
    ),
}


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.states("CC-31")
def test_our_prompt_says_what_to_sum_up_how_to_think_and_what_each_section_holds() -> None:
    paragraphs = prompt("claude_code/nine_sections").split("\n\n")
    task, scratchpad = flat(paragraphs[1]), flat(paragraphs[2])
    assert [words for words in ASKED["task"] if words not in task] == []
    assert [words for words in ASKED["scratchpad"] if words not in scratchpad] == []
    assert "<analysis>" in scratchpad
    sections = re.split(r"\n(?=\d\. )", f"\n{paragraphs[4]}")[1:]
    assert [section.partition(":")[0] for section in sections] == list(HOLDS)
    for section, words in zip(sections, HOLDS.values(), strict=True):
        assert [each for each in words if each not in flat(section)] == [], section


@pytest.mark.states("CC-32")
def test_compact_arguments_reach_that_one_prompt_only() -> None:
    session = fill(claude(), 60_000)
    asked = body_of(compact(session, asked="  say most about the lexer ").requests[0])["messages"][-1]["content"][-1]["text"]
    assert "\n\nAdditional Instructions:\nsay most about the lexer\n\nOnce more: plain text only" in asked
    fill(session, 160_000)
    assert "lexer" not in json.dumps(body_of(compact(session).requests[0]))


@pytest.mark.states("CC-33")
def test_the_scratchpad_never_reaches_the_view_and_the_summary_text_follows_its_label() -> None:
    session = fill(claude(), 160_000)
    compact(session, "Well.\n<analysis>secret\nthoughts</analysis>\n<summary>\nThe parser is half done.\n</summary>\nBye.")
    (shown,) = texts(session)
    assert "Summary:\nThe parser is half done.\n\n" in shown
    assert "secret" not in shown
    assert "Bye" not in shown


@every_case(
    ("said", "summary"),
    [
        ("no tags at all ", "Summary:\nno tags at all"),
        ("<analysis>a</analysis> the rest", "Summary:\nthe rest"),
        ("<summary>cut short", "Summary:\ncut short"),
        ("<ANALYSIS>a</ANALYSIS><Summary>b</Summary>", "Summary:\nb"),
        ("<analysis>never closed", ""),
        ("<analysis>never closed <summary>but said</summary>", "Summary:\nbut said"),
        ("<summary> </summary>", ""),
        ("", ""),
    ],
)
@pytest.mark.states("CC-33")
def test_missing_tags_make_the_whole_reply_the_summary(said: str, summary: str) -> None:
    assert ContinuationMessage().summary_of(ModelReplied((Text(said, "assistant"),))) == summary


def test_the_older_form_keeps_the_analysis_under_its_own_label() -> None:
    form = ContinuationMessage(keep_analysis=True)
    reply = ModelReplied((Text(SUMMARY, "assistant"),))
    assert form.summary_of(reply) == ("Analysis:\nfirst this, then that\n\nSummary:\n1. Primary Request and Intent: a parser")


def order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    return min(places) >= 0 and places == sorted(places)


@pytest.mark.states("CC-34")
def test_parts_of_the_result_message_come_in_order_the_continue_paragraph_only_after_an_automatic_compaction() -> None:
    session = fill(claude(), 160_000)
    compact(session)
    (shown,) = texts(session)
    assert shown.startswith(OPENING)
    assert order(shown, OPENING, "Summary:\n1. Primary", POINTER, GO_ON)
    assert "tools-used" not in shown
    session = fill(claude(), 60_000)
    compact(session, asked="")
    (shown,) = texts(session)
    assert order(shown, OPENING, "Summary:\n1. Primary", POINTER)
    assert GO_ON not in shown
    kept = ContinuationMessage().message("Summary:\nx", "/logs/s.jsonl", automatic=True, kept=True)
    assert order(kept, "Summary:", POINTER, "they follow word for word", GO_ON)


@pytest.mark.parametrize("name", ["claude-code", MEASURED])
@pytest.mark.states("CC-35")
def test_every_compaction_of_a_session_points_to_the_same_transcript(name: str) -> None:
    session = fill(claude(name), 170_000)
    compact(session)
    first = texts(session)[0]
    fill(session, 170_000)
    compact(session, asked="")
    assert POINTER in first
    assert POINTER in texts(session)[0]


@pytest.mark.parametrize("name", ["claude-code", MEASURED])
@pytest.mark.states("CC-36")
def test_a_second_compaction_folds_the_first_summary_and_nothing_of_before_is_shown_twice(name: str) -> None:
    session = fill(claude(name), 170_000)
    compact(session, "<summary>SUMMARY ONE</summary>")
    fill(session, 170_000, 6)
    provider = compact(session, "<summary>SUMMARY TWO</summary>")
    assert "SUMMARY ONE" in provider.requests[0].body.decode()
    shown = "\n".join(texts(session))
    assert "SUMMARY ONE" not in shown
    assert shown.count("SUMMARY TWO") == 1
    assert shown.count("build a parser") == 0
    assert len(session.log.view.items) == (1 if name == "claude-code" else 2)


@pytest.mark.states("CC-37")
def test_an_empty_summary_is_a_failure_and_leaves_the_view_as_it_was() -> None:
    session = fill(claude(), 160_000)
    before = session.log.view.items
    ran = online(session, run_policies(session, "before_call"), Scripted(" \n "))
    assert ran.failure is not None
    assert ran.failure.message == "no assistant message in summarization response"
    assert (session.log.view.items, session.log.health.failures) == (before, {"summarize": 1})


@pytest.mark.states("CC-38")
def test_the_last_round_and_the_pending_prompt_stay_verbatim_the_prompt_last_roles_alternating() -> None:
    session = claude(MEASURED)
    fill(session, 100_000, 4)
    use(session, "last", "Bash", '{"command":"make"}', "made")
    reply(session, Text("It was made.", "assistant"), usage=Usage(input=170_000))
    say(session, "and now test it")
    compact(session)
    assert texts(session)[1:] == ["It was made.", "and now test it"]
    (fold,) = edits(session)[0].edits
    assert isinstance(fold, Fold)
    assert len(fold.into) == 1
    roles = [message["role"] for message in body_of(encode(session.log.view, session.card))["messages"]]
    assert roles == ["user", "assistant", "user"]


@pytest.mark.states("CC-38")
def test_a_call_in_the_last_round_stays_with_its_result() -> None:
    session = claude(MEASURED)
    fill(session, 100_000, 4)
    say(session, "make it")
    reply(session, ToolCall("last", "Bash", "{}"), usage=Usage(input=170_000))
    session.log.append(ToolReturned(ToolResult("last", (Text("made"),)), tool="Bash"))
    compact(session)
    assert texts(session)[1:] == ["Bash {}", "made"]


@pytest.mark.states("CC-39")
def test_the_result_message_lists_used_tools_sorted_and_ends_with_the_note_on_verbatim_messages_also_after_compact() -> None:
    for asked in (None, ""):
        session = claude(MEASURED)
        use(session, "c1", "Write", "{}", "w" * 5_000)
        use(session, "c2", "Bash", "{}", "b" * 5_000)
        fill(session, 170_000)
        compact(session, asked=asked)
        shown = texts(session)[0]
        assert "<tools-used-before-summary>Bash, Read, Write</tools-used-before-summary>" in shown
        assert order(shown, OPENING, "<tools-used", "Summary:\n1. Primary", POINTER, GO_ON, VERBATIM)
        assert shown.endswith("did not see them.")


def test_without_a_model_the_fold_from_the_log_takes_the_place_of_the_summary() -> None:
    for name in ("claude-code", MEASURED):
        session = fill(claude(name), 170_000, 30)
        assert offline(session, run_policies(session, "asked")).folded
        assert edits(session)[0].by == "fold without a model"


def test_what_the_user_pinned_stays_through_a_compaction() -> None:
    session = fill(claude(), 160_000)
    call, result = [item.id for item in session.log.view.items if item.kind in ("call", "result")][:2]
    session.pin(ids=(result,))
    compact(session)
    assert [item.id for item in session.log.view.items][1:] == [call, result]


def test_after_an_undo_the_same_compaction_waits_until_nothing_could_be_sent_any_more() -> None:
    session = fill(claude(), 160_000)
    compact(session)
    (event,) = [event for event in session.log.events() if isinstance(event.body, ViewEdited)]
    session.undo(event.seq)
    reply(session, Text("on", "assistant"), usage=Usage(input=190_000))
    session.profile = with_(session.profile, policies=(Summarize(),))
    provider = Scripted(SUMMARY)
    assert not online(session, run_policies(session, "before_call"), provider).folded
    reply(session, Text("on", "assistant"), usage=Usage(input=197_000))
    assert online(session, run_policies(session, "before_call"), provider).folded


@pytest.mark.states("CC-27")
def test_the_compaction_request_repeats_the_cache_edits_already_made() -> None:
    session = claude(settings={"cached_microcompact": "on"})
    for number in range(9):
        use(session, f"d{number}", "Bash", "{}", "x" * 40_000)
    fill(session, 140_000)
    offline(session, run_policies(session, "before_call"))
    fill(session, 160_000)
    body = body_of(compact(session).requests[0])
    edits, uses = body["context_management"]["edits"], str(body["messages"]).count("'tool_use_id'")
    # The oldest six are cleared.
    kept = {"type": "tool_uses", "value": uses - 6}
    assert edits == [{"type": "clear_tool_uses_20250919", "trigger": kept, "keep": kept}]


def test_a_summary_alone_is_not_summed_up_again() -> None:
    session = fill(claude(), 160_000)
    compact(session)
    provider = Scripted(SUMMARY)
    ran = online(session, run_policies(session, "asked"), provider)
    assert (ran.events, ran.notices, provider.requests) == ((), ("There is nothing to compact.",), [])


@pytest.mark.parametrize("name", ["claude-code", MEASURED])
def test_undoing_ten_compactions_in_a_row_gives_the_view_without_them(name: str) -> None:
    session = claude(name)
    for number in range(10):
        fill(session, 170_000, 4)
        compact(session, f"<summary>SUMMARY {number}</summary>")
    assert [edit.by for edit in edits(session)] == ["summarize"] * 10
    events = [event for event in session.log.events() if not isinstance(event.body, ViewEdited)]
    plain = project(events)
    session.switch(card("claude-sonnet-4-5[1m]"))
    for event in reversed([event for event in session.log.events() if isinstance(event.body, ViewEdited)]):
        session.undo(event.seq)
    assert session.log.view.items == plain.items
