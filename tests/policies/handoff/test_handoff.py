"""The hand-over by a model: what it is asked, and what the view holds afterwards."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from codex_work import BOTH, CONTEXT, FULL, NO_SETTINGS, PREFIX, codex_session, shows, state, turn
from workplace import offline, online, reply, say, use

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.audit.fold_texts import evidence_text
from palimpsest.core.errors import PromptTooLong, ProviderError
from palimpsest.core.events import CallStarted, ContextStated, ModelReplied, Statement, ToolReturned, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Image, Keep, Opaque, Put, Text, ToolCall, ToolResult, text_of
from palimpsest.core.plans import Evidence, Moment, UserMessage
from palimpsest.policies.handoff import WARNING, Group, last_message, place_context
from palimpsest.policies.limits import prompt
from palimpsest.providers.scripted import Scripted

OUTSIDE: tuple[Moment, ...] = ("turn_starts", "asked")


def sent(provider: Scripted, number: int = 0) -> Any:
    return json.loads(provider.requests[number].body)


def said(request: Any) -> list[str]:
    return [part["text"] for item in request["input"] for part in item.get("content", ())]


def worked(name: str = "codex", turns: int = 3, settings: Mapping[str, str] = NO_SETTINGS) -> Session:
    """Some turns, the last of which filled the window."""
    session = codex_session(name, settings=settings)
    state(session)
    for number in range(turns):
        turn(session, f"ask {number}", number, usage=FULL if number == turns - 1 else Usage())
    return session


def in_the_middle(session: Session, usage: Usage = FULL) -> Session:
    """The model has called a tool, and the result is there."""
    say(session, "ask on")
    reply(session, ToolCall("last", "shell", "{}"), usage=usage)
    assert offline(session, run_policies(session, "after_call")).events == ()
    session.log.append(ToolReturned(ToolResult("last", (Text("x" * 400),)), tool="shell"))
    return session


@pytest.mark.parametrize("moment", OUTSIDE)
@pytest.mark.states("CX-33")
def test_outside_a_turn_messages_and_summary_stay_and_the_next_turn_states_the_context_behind_them(moment: Moment) -> None:
    session = worked()
    assert sorted(session.log.view.facts) == ["agents_md", "environment", "permissions"]
    online(session, run_policies(session, moment), Scripted("the summary"))
    assert shows(session) == ["ask 0", "ask 1", "ask 2", "the summary"]
    assert session.log.view.facts == {}
    state(session)
    say(session, "ask 3")
    assert shows(session) == ["ask 0", "ask 1", "ask 2", "the summary", *CONTEXT, "ask 3"]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-34")
def test_within_a_turn_the_context_stands_directly_before_the_last_real_message_and_the_summary_last(name: str) -> None:
    session = in_the_middle(worked(name, 2))
    facts = session.log.view.facts
    online(session, run_policies(session, "before_call"), Scripted("the summary"))
    assert shows(session) == ["ask 0", "ask 1", *CONTEXT, "ask on", "the summary"]
    assert session.log.view.facts == facts
    assert [item.kind for item in session.log.view.items][-2:] == ["user", "summary"]


@pytest.mark.parametrize("moment", OUTSIDE)
@pytest.mark.states("CX-34")
def test_in_the_newer_version_every_fold_moves_the_context(moment: Moment) -> None:
    session = worked("codex-0.166")
    facts = session.log.view.facts
    online(session, run_policies(session, moment), Scripted("the summary"))
    assert shows(session) == ["ask 0", "ask 1", *CONTEXT, "ask 2", "the summary"]
    assert session.log.view.facts == facts


@pytest.mark.states("CX-34")
def test_what_was_stated_again_moves_in_its_newest_form_and_what_only_happened_does_not() -> None:
    session = worked("codex-0.166")
    session.log.append(ContextStated((Statement("environment", "<environment_context>new"), Statement("turn_aborted", "<turn_aborted>"))))
    online(session, run_policies(session, "asked"), Scripted("the summary"))
    assert shows(session) == ["ask 0", "ask 1", *CONTEXT[:2], "<environment_context>new", "ask 2", "the summary"]
    assert sorted(session.log.view.facts) == ["agents_md", "environment", "permissions"]


@pytest.mark.states("CX-34")
def test_a_statement_that_only_tells_what_changed_stays_with_the_whole() -> None:
    session = codex_session("codex-0.166")
    whole = "<environment_context>\n  <cwd>/repo</cwd>\n  <shell>bash</shell>\n</environment_context>"
    session.log.append(ContextStated((Statement("environment", whole), Statement("agents_md", "# AGENTS.md instructions"))))
    turn(session, "ask 0", 0)
    session.log.append(ContextStated((Statement("environment", "<cwd>/repo/sub</cwd>"),)))
    turn(session, "ask 1", 1)
    online(session, run_policies(session, "asked"), Scripted("the summary"))
    assert shows(session) == ["ask 0", whole, "<cwd>/repo/sub</cwd>", "# AGENTS.md instructions", "ask 1", "the summary"]


@pytest.mark.states("CX-35")
def test_the_insertion_point_falls_back_to_the_summary_then_the_compaction_item_then_the_end() -> None:
    context = (Keep("1.0"),)
    first, second = Group((Keep("2.0"),)), Group((Keep("3.0"), Keep("3.1")))
    summary = Group((Put("summary", Text("s")),), "summary")
    compaction = Group((Put("summary", Opaque("openai", "gpt-5.5", "{}")),), "compaction")
    other = Group((Put("assistant", Text("said", "assistant")),), "other")
    assert place_context((first, second, summary), context) == (Keep("2.0"), Keep("1.0"), Keep("3.0"), Keep("3.1"), *summary.pieces)
    assert place_context((other, summary, compaction), context) == (*other.pieces, Keep("1.0"), *summary.pieces, *compaction.pieces)
    assert place_context((other, compaction), context) == (*other.pieces, Keep("1.0"), *compaction.pieces)
    assert place_context((other,), context) == (*other.pieces, Keep("1.0"))
    assert place_context((), context) == (Keep("1.0"),)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-36")
def test_the_fold_keeps_the_newest_messages_and_cuts_the_one_that_crosses_the_bound(name: str) -> None:
    session = codex_session(name)
    for number, letter in enumerate("abcd"):
        turn(session, letter * 28_896, number)
    turn(session, "short e", 5, usage=FULL)
    online(session, run_policies(session, "turn_starts"), Scripted("the summary"))
    marker = "…1674 tokens truncated…"
    cut = ["b" * 11_100, marker, "b" * 11_100] if name == "codex-0.166" else ["b" * 11_100 + marker + "b" * 11_100]
    assert shows(session) == [*cut, "c" * 28_896, "d" * 28_896, "short e", "the summary"]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-37")
def test_earlier_summaries_are_never_kept_and_real_messages_survive_three_folds(name: str) -> None:
    session = codex_session(name)
    for number in range(3):
        turn(session, f"ask {number}", number, usage=FULL)
        ran = online(session, run_policies(session, "turn_starts"), Scripted(f"summary {number}"))
        assert ran.folded
        # What was kept is named, not written down again.
        assert [piece.kind for piece in fold(session).into if isinstance(piece, Put)] == ["summary"]
    assert shows(session) == ["ask 0", "ask 1", "ask 2", "summary 2"]


def fold(session: Session) -> Fold:
    (edit,) = [event.body for event in session.log.events() if isinstance(event.body, ViewEdited)][-1].edits
    assert isinstance(edit, Fold)
    return edit


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-38")
def test_the_compaction_call_has_no_tools_the_same_cache_key_and_the_prompt_as_last_user_message(name: str) -> None:
    session = worked(name)
    provider = Scripted("the summary")
    online(session, run_policies(session, "turn_starts"), provider)
    request = sent(provider)
    assert (request["tools"], request["parallel_tool_calls"], request["prompt_cache_key"]) == ([], False, "s")
    assert request["input"][-1]["role"] == "user"
    assert said(request) == [*CONTEXT, "ask 0", "done 0", "ask 1", "done 1", "ask 2", "done 2", prompt("handoff", focus="")]
    bodies = [event.body for event in session.log.reader.run(0, session.log.tip)]
    started = [body for body in bodies if isinstance(body, CallStarted) and body.purpose != "turn"]
    replied = [body for body in bodies if isinstance(body, ModelReplied) and body.purpose != "turn"]
    assert [(body.purpose, body.model) for body in started] == [("compact", "other")]
    assert [(body.purpose, body.parts) for body in replied] == [("compact", (Text("the summary", "assistant"),))]


@pytest.mark.states("CX-38")
def test_the_call_has_the_base_instructions_of_every_other_and_no_instructions_of_its_own() -> None:
    for name in BOTH:
        session = codex_session(name)
        session.log.append(ContextStated(head=(Statement("base", "You write code.", "system"),)))
        turn(session, "ask", 1, usage=FULL)
        provider = Scripted("the summary")
        online(session, run_policies(session, "turn_starts"), provider)
        request = sent(provider)
        base = request["instructions"] if name == "codex" else request["input"][0]["content"][0]["text"]
        assert base == "You write code."
        assert ("instructions" in request) is (name == "codex")
        assert [text_of(item.content) for item in session.log.view.head] == ["You write code."]


@pytest.mark.states("CX-38")
def test_the_prompt_may_come_from_the_settings_and_names_what_the_user_wants_kept() -> None:
    session = worked(settings={"compact_prompt": "sum it up"})
    provider = Scripted("the summary")
    online(session, run_policies(session, "asked", asked="the parser"), provider)
    assert said(sent(provider))[-1] == "sum it up\n\nPay special attention to this: the parser"
    session = worked()
    provider = Scripted("the summary")
    online(session, run_policies(session, "asked", asked="the parser"), provider)
    assert said(sent(provider))[-1].endswith("\nPay special attention to this: the parser")


@pytest.mark.states("CX-39")
def test_overflow_while_compacting_drops_the_oldest_with_its_counterpart_and_tries_again() -> None:
    session = worked(turns=10)
    provider = Scripted(*[PromptTooLong("too long")] * 4, "the summary")
    ran = online(session, run_policies(session, "turn_starts"), provider)
    before, after = sent(provider, 0)["input"], sent(provider, 4)["input"]
    assert before[-len(after) :] == after
    calls = [item["call_id"] for item in after if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in after if item["type"] == "function_call_output"]
    assert calls == outputs == [f"c{number}" for number in range(1, 10)]
    assert shows(session) == [*(f"ask {number}" for number in range(10)), "the summary"]
    assert any("oldest items did not fit the request for the summary, which does not cover them" in line for line in ran.notices)


@pytest.mark.states("CX-41")
def test_a_trailing_model_switch_is_hidden_from_the_summariser_and_stands_behind_the_summary() -> None:
    for name in BOTH:
        session = worked(name)
        session.log.append(ContextStated((Statement("model_switch", "<model_switch>new</model_switch>", "developer"),)))
        provider = Scripted("the summary")
        online(session, run_policies(session, "asked"), provider)
        assert "<model_switch>new</model_switch>" not in said(sent(provider))
        assert shows(session)[-2:] == ["the summary", "<model_switch>new</model_switch>"]
        assert shows(session).count("<model_switch>new</model_switch>") == 1


@pytest.mark.states("CX-41")
def test_a_switch_before_the_newest_message_is_shown_to_the_summariser_and_folded() -> None:
    session = worked("codex-0.166")
    session.log.append(ContextStated((Statement("model_switch", "<model_switch>new</model_switch>", "developer"),)))
    turn(session, "ask 3", 3)
    provider = Scripted("the summary")
    online(session, run_policies(session, "asked"), provider)
    assert "<model_switch>new</model_switch>" in said(sent(provider))
    assert shows(session) == ["ask 0", "ask 1", "ask 2", *CONTEXT, "ask 3", "the summary"]


def test_images_of_a_message_are_left_behind_and_a_reply_without_words_leaves_the_opening_alone() -> None:
    session = codex_session()
    session.log.append(UserSaid((Text("look"), Image("image/png", url="https://example.org/a.png"))))
    reply(session, Text("x" * 2_000, "assistant"), usage=FULL)
    online(session, run_policies(session, "turn_starts"), Scripted(ModelReplied((ToolCall("c", "shell", "{}"),))))
    assert shows(session) == ["look", ""]
    assert session.log.view.items[-1].content == Text(f"{PREFIX}\n")


def test_the_summary_is_the_last_message_of_the_reply() -> None:
    parts = (Text("first", "assistant", ref="m1"), Text("sec", "assistant", ref="m2"), Text("ond", "assistant", ref="m2"))
    assert last_message(ModelReplied(parts)) == "second"
    assert last_message(ModelReplied(())) == ""


@pytest.mark.states("CX-44")
def test_what_the_log_proves_stands_behind_the_summary_if_the_user_wants_it() -> None:
    for name in BOTH:
        session = codex_session(name, settings={"PAL_EVIDENCE": "on"})
        say(session, "fix the parser")
        use(session, "c1", "read_file", '{"path":"src/parser.py"}', "x" * 2_000)
        use(session, "c2", "apply_patch", "*** Begin Patch\n*** Update File: src/parser.py\n@@\n-a\n+b\n*** End Patch", "ok")
        use(session, "c3", "shell", '{"command":["pytest","-q"]}', "1 failed", exit_code=1)
        reply(session, Text("done", "assistant"), usage=FULL)
        online(session, run_policies(session, "turn_starts"), Scripted("all is well"))
        summary, proved = (text_of(item.content) for item in session.log.view.items[-2:])
        assert summary == f"{PREFIX}\nall is well"
        assert "src/parser.py" in proved
        assert "- [1] pytest -q" in proved


def test_a_second_look_rests_and_so_does_one_at_an_empty_session() -> None:
    for name in BOTH:
        session = worked(name)
        assert online(session, run_policies(session, "asked"), Scripted("the summary")).folded
        assert online(session, run_policies(session, "asked"), Scripted()).events == ()
        assert online(codex_session(name), run_policies(codex_session(name), "asked"), Scripted()).events == ()


def test_notices_give_the_free_share_and_once_warn_that_long_sessions_lose_accuracy() -> None:
    session = worked()
    ran = online(session, run_policies(session, "turn_starts"), Scripted("the summary"))
    assert ran.notices == ("compacted: about 100% of the context is free now", WARNING)
    turn(session, "ask 3", 3, usage=FULL)
    ran = online(session, run_policies(session, "turn_starts"), Scripted("the summary"))
    assert ran.notices == ("compacted: about 100% of the context is free now",)


def test_pins_stay_with_their_other_half() -> None:
    session = worked()
    result = next(item.id for item in session.log.view.items if item.kind == "result")
    session.pin(ids=(result,))
    online(session, run_policies(session, "asked"), Scripted("the summary"))
    assert [item.kind for item in session.log.view.items] == ["user", "call", "result", "user", "user", "summary"]


def test_pins_stay_where_they_stood_between_the_messages() -> None:
    session = worked("codex-0.166")
    spoken = [item.id for item in session.log.view.items if item.kind == "assistant"]
    session.pin(ids=tuple(spoken))
    online(session, run_policies(session, "asked"), Scripted("the summary"))
    assert shows(session) == ["ask 0", "done 0", "ask 1", "done 1", *CONTEXT, "ask 2", "done 2", "the summary"]


def test_a_call_that_waits_for_its_result_is_not_folded() -> None:
    session = worked()
    say(session, "ask on")
    reply(session, ToolCall("open", "shell", "{}"))
    online(session, run_policies(session, "asked"), Scripted("the summary"))
    assert [item.kind for item in session.log.view.items] == ["user"] * 4 + ["summary", "call"]


@pytest.mark.parametrize("error", [ProviderError("down", status=500), PromptTooLong("never fits")])
def test_a_failure_leaves_the_view_as_it_was(error: ProviderError) -> None:
    session = worked(turns=1)
    before = session.log.view.items
    ran = online(session, run_policies(session, "asked"), Scripted(*(error for _ in range(5))))
    assert ran.failure is error
    assert session.log.view.items == before


def test_the_prompts_have_their_required_parts_and_the_prefix_a_versioned_first_line() -> None:
    words = prompt("handoff", focus="")
    for heading in ("Current request", "Tasks", "Decisions", "Limits and wishes", "Facts that cannot be found again", "Next steps"):
        assert f"## {heading}\n" in words
    assert "{{" not in words
    assert PREFIX.split("\n")[0] == "[hand-over v1]"


def test_the_evidence_counts_messages_that_are_too_old_to_be_listed() -> None:
    evidence = Evidence(user_messages=(UserMessage("40.0", 0, "Go on."), UserMessage("44.0", 0, "And now?")), earlier=7)
    assert evidence_text(evidence, frozenset({"3.0", "44.0"}), 1_000).splitlines() == [
        "Older messages of the user, by id, time and opening words:",
        "- 6 before these",
        "- 40.0, 1970-01-01 00:00: Go on.",
    ]
