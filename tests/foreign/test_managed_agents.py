"""The golden session was written by hand; that its events are those of the service is shown by the types of its client."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.beta import BetaManagedAgentsSession
from anthropic.types.beta.sessions import BetaManagedAgentsSessionEvent
from corpus import golden
from pydantic import BaseModel, TypeAdapter
from readings import Home, called, check_growth, check_session, read_session, returned, said, shown, sources

from palimpsest.core.events import (
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    Failed,
    ForeignNoted,
    ModelReplied,
    ModelSwitched,
    Permitted,
    SessionOpened,
    Statement,
    Titled,
    ToolRefused,
    ToolReturned,
    TurnEnded,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Document, Image, Text, ToolCall
from palimpsest.exchange.importing import provenance_of
from palimpsest.exchange.managed_agents import ManagedAgentsFormat
from palimpsest.exchange.transcript import ReadProblem

FORM = ManagedAgentsFormat()
(RUN,) = golden("managed-agents/session.jsonl")
LINES = [json.loads(line) for line in RUN.read_text(encoding="utf-8").splitlines()]
EVENT: TypeAdapter[BaseModel] = TypeAdapter(BetaManagedAgentsSessionEvent)
SUMMARY = "The service compacted the conversation before this place; its summary is not in the events."

pytestmark = pytest.mark.states("PV-81")


def event(number: int, kind: str, **fields: object) -> dict[str, Any]:
    """An event as the client of the service reads it."""
    stamp = datetime(2026, 11, 2, 9, 0, number, tzinfo=UTC)
    made = EVENT.validate_python({"id": f"sevt_{number}", "type": kind, "processed_at": stamp, **fields})
    assert (type(made).__name__.endswith("Event"), made.model_extra) == (True, {})
    return made.model_dump(mode="json", exclude_unset=True)


def words(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def usage(tokens: int, speed: str | None = None) -> dict[str, object]:
    names = ("cache_creation_input_tokens", "cache_read_input_tokens", "input_tokens", "output_tokens")
    return dict.fromkeys(names, tokens) | ({"speed": speed} if speed else {})


def reply(number: int, *events: dict[str, Any], **end: object) -> list[dict[str, Any]]:
    """A request to the model, its events, and its end."""
    first = event(number, "span.model_request_start")
    fields = {"model_usage": usage(5), "model_request_start_id": first["id"], **end}
    return [first, *events, event(number + 9, "span.model_request_end", **fields)]


def as_lines(events: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in events)


def read(tmp_path: Path, events: list[dict[str, Any]]) -> tuple[Home, str, list[object]]:
    path = tmp_path / "events.jsonl"
    path.write_text(as_lines(events), encoding="utf-8")
    home, session, bodies = check_session(FORM, path)
    return home, session, [*bodies]


def test_every_line_of_the_golden_session_is_what_the_client_of_the_service_reads() -> None:
    for line in LINES:
        made = BetaManagedAgentsSession.model_validate(line) if line["type"] == "session" else EVENT.validate_python(line)
        assert (made.model_dump(mode="json", exclude_unset=True), made.model_extra) == (line, {})


def test_no_message_call_or_result_is_lost_and_the_session_reads_the_same_however_it_is_imported(tmp_path: Path) -> None:
    home, session, bodies = check_session(FORM, RUN)
    check_growth(FORM, RUN, tmp_path, 30)
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.session, opened.model) == ("managed-agents-sesn_011CZkZAtmR3yMPDzynEDxu7", "claude-sonnet-4-5")
    assert opened.meta == {"agent": "Coder", "environment": "env_01"}
    assert said(bodies) == ["Fix the sum in add.py.", "Look at this."]
    own = [line for line in LINES if line["type"].endswith("tool_use") and "session_thread_id" not in line]
    assert called(bodies) == returned(bodies) == [line["id"] for line in own]
    assert [(body.tool, body.result.error) for body in bodies if isinstance(body, ToolReturned)] == [
        ("read", False),
        ("bash", True),
        ("mcp__tracker__find_issue", False),
        ("open_ticket", False),
    ]
    found = next(body for body in bodies if isinstance(body, ToolReturned) and body.tool == "mcp__tracker__find_issue")
    assert found.result.parts == (Text("Issue 7\nhttps://tracker.example/7\nThe sum is a difference."),)
    assert [body.title for body in bodies if isinstance(body, Titled)] == ["The sum", "The sum is right"]
    assert shown(home, session) == [
        "You fix small programs.",
        SUMMARY,
        "The sum is right now.",
        "Look at this.",
        "[image image/png]",
        "Sums are commutative.",
    ]


def test_each_request_to_the_model_is_a_call_with_its_usage_and_one_that_failed_cost_nothing() -> None:
    _, _, bodies = read_session(FORM, RUN)
    ends = [line for line in LINES if line["type"] == "span.model_request_end"]
    replies = [body for body in bodies if isinstance(body, ModelReplied)]
    assert len([body for body in bodies if isinstance(body, CallStarted)]) == len(ends) == len(replies) + 1
    assert [body.usage for body in replies] == [
        Usage(1200, 0, 800, output=60),
        Usage(90, 2000, 100, output=50),
        Usage(40, 2200, 60, output=70),
        Usage(700, output=20),
    ]
    assert [(body.what, body.error, body.message) for body in bodies if isinstance(body, Failed)] == [
        ("session", "model_overloaded_error", "The model is overloaded."),
        ("call", "model_request_failed", ""),
        ("turn", "interrupted", ""),
    ]
    assert replies[2].parts == (
        Text("I ask the reviewer.", "assistant"),
        Text('<message to="Reviewer">\nIs a + b right?\n</message>', "assistant"),
        ToolCall(replies[2].parts[2].call_id, "open_ticket", '{"title":"sum"}') if isinstance(replies[2].parts[2], ToolCall) else None,
    )


def test_a_thread_below_is_a_sub_agent_and_its_calls_are_not_those_of_the_session() -> None:
    _, _, bodies = read_session(FORM, RUN)
    assert [(body.session, body.role) for body in bodies if isinstance(body, ChildOpened)] == [("managed-agents-sthr_01", "Reviewer")]
    assert [(body.session, body.status, body.cost_usd) for body in bodies if isinstance(body, ChildEnded)] == [
        ("managed-agents-sthr_01", "done", None)
    ]
    told = [item for body in bodies if isinstance(body, ContextStated) for item in body.items]
    assert told == [Statement("managed-agents.Reviewer", "It is right.")]


def test_the_events_of_a_thread_are_the_session_that_its_parent_names(tmp_path: Path) -> None:
    thread = {"session_thread_id": "sthr_01", "agent_name": "Reviewer"}
    events = [
        event(1, "session.thread_status_running", **thread),
        event(2, "agent.thread_message_received", from_session_thread_id="sthr_00", content=words("Is a + b right?")),
        *reply(3, event(4, "agent.message", content=words("It is right."))),
        event(13, "session.thread_status_idle", **thread, stop_reason={"type": "end_turn"}),
    ]
    _, session, bodies = read(tmp_path, events)
    assert session == "managed-agents-sthr_01"
    assert [body.parts for body in bodies if isinstance(body, UserSaid)] == [(Text("Is a + b right?"),)]
    assert [body.stop for body in bodies if isinstance(body, TurnEnded)] == ["done"]


def test_a_reply_goes_on_while_a_thread_below_becomes_idle_and_ends_with_its_session(tmp_path: Path) -> None:
    thread = {"session_thread_id": "sthr_01", "agent_name": "Reviewer"}
    start, message, end = reply(1, event(2, "agent.message", content=words("It is right.")))
    idle = event(3, "session.thread_status_idle", **thread, stop_reason={"type": "end_turn"})
    unended = reply(11, event(12, "agent.message", content=words("One more")))[:-1]
    running = event(0, "session.status_running")
    _, _, bodies = read(tmp_path, [running, start, message, idle, end, *unended, event(30, "session.deleted")])
    replies = [body for body in bodies if isinstance(body, ModelReplied)]
    assert [(body.parts, body.usage) for body in replies] == [
        ((Text("It is right.", "assistant"),), Usage(5, 5, 5, output=5)),
        ((Text("One more", "assistant"),), Usage()),
    ]


def test_what_is_not_known_is_kept_with_every_field(tmp_path: Path) -> None:
    unknown = {"id": "x", "type": "agent.dreamt", "processed_at": "2026-11-02T09:00:05Z", "of": {"sheep": [1, None]}}
    _, _, bodies = read(tmp_path, [event(1, "user.message", content=words("hi")), unknown, event(6, "agent.thinking")])
    kept = [body for body in bodies if isinstance(body, ForeignNoted)]
    assert [body.keys for body in kept] == [("x",), ("sevt_6",)]
    found = provenance_of(kept[0])
    assert found is not None
    assert json.loads(bytes(found.line)) == {name: value for name, value in unknown.items() if name != "id"}


@pytest.mark.parametrize(
    "shape",
    [
        json.dumps,
        lambda events: json.dumps({"data": events, "next_page": None}, indent=2),
        lambda events: json.dumps({"data": events[::-1], "next_page": "p2"}),
        lambda events: as_lines([*events[:20], *events[15:]]),
    ],
    ids=["a list", "a page", "a page with the newest first", "lines of pages that overlap"],
)
def test_a_list_and_a_page_of_the_service_give_the_session_of_the_lines(
    shape: Callable[[list[dict[str, Any]]], str], tmp_path: Path
) -> None:
    events = LINES[1:]
    (tmp_path / "lines.jsonl").write_text(as_lines(events), encoding="utf-8")
    (tmp_path / "other.json").write_text(shape(events), encoding="utf-8")
    assert check_session(FORM, tmp_path / "other.json")[0].logs() == check_session(FORM, tmp_path / "lines.jsonl")[0].logs()


def test_calls_that_are_allowed_refused_and_stopped_say_so(tmp_path: Path) -> None:
    uses = [event(number, "agent.tool_use", name="bash", input={}, evaluated_permission="ask") for number in (3, 4)]
    events = [
        event(1, "user.define_outcome", outcome_id="o", description="Tidy up.", rubric={"type": "text", "content": "tidy"}),
        event(2, "system.message", content=words("Be careful.")),
        *reply(2, *uses),
        event(12, "user.tool_confirmation", tool_use_id="sevt_3", result="allow"),
        event(13, "user.tool_confirmation", tool_use_id="sevt_4", result="deny", deny_message="not that"),
        event(14, "user.tool_result", tool_use_id="sevt_3", content=words("done")),
        event(15, "agent.tool_result", tool_use_id="sevt_4", content=words("denied"), is_error=True),
        event(16, "agent.tool_result", tool_use_id="of another thread", content=words("not ours")),
        event(17, "session.status_idle", stop_reason={"type": "refusal"}),
    ]
    events[2]["id"] = "start"
    home, session, bodies = read(tmp_path, events)
    assert [(body.call_id, body.by) for body in bodies if isinstance(body, Permitted)] == [("sevt_3", "user")]
    assert [(body.call_id, body.why) for body in bodies if isinstance(body, ToolRefused)] == [("sevt_4", "not that")]
    assert [body.stop for body in bodies if isinstance(body, TurnEnded)] == ["refusal"]
    assert shown(home, session) == ["Tidy up.", "Be careful.", "bash {}", "bash {}", "done", "denied"]


def test_files_of_a_message_are_parts_and_those_named_by_an_id_stay_in_the_line(tmp_path: Path) -> None:
    content = [
        {"type": "image", "source": {"type": "url", "url": "https://example.org/p.png"}},
        {"type": "document", "title": "t", "source": {"type": "url", "url": "https://example.org/p.pdf"}},
        {"type": "document", "title": "u", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
        {"type": "image", "source": {"type": "file", "file_id": "file_01"}},
        {"type": "redacted"},
    ]
    home, _, bodies = read(tmp_path, [event(1, "user.message", content=content)])
    (message,) = [body for body in bodies if isinstance(body, UserSaid)]
    image, linked, inline = message.parts
    assert (image, linked) == (
        Image("image/*", url="https://example.org/p.png"),
        Document("application/pdf", url="https://example.org/p.pdf", name="t"),
    )
    assert isinstance(inline, Document)
    assert (inline.media, inline.name, home.blobs.get(inline.blob)) == ("application/pdf", "u", b"%PDF")
    found = provenance_of(message)
    assert found is not None
    assert json.loads(bytes(found.line))["content"] == content


def test_a_changed_model_a_fast_reply_and_a_grader_are_priced_apart(tmp_path: Path) -> None:
    agent = {**LINES[0]["agent"], "model": {"id": "claude-opus-4-5"}, "system": None}
    events = [
        event(1, "user.message", content=words("go")),
        event(2, "session.updated", agent=agent),
        *reply(3, event(4, "agent.message", content=words("fast")), model_usage=usage(5, "fast")),
        event(14, "span.outcome_evaluation_end", outcome_id="o", outcome_evaluation_start_id="s", iteration=0, result="satisfied",
              explanation="fine", usage=usage(7)),
    ]  # fmt: skip
    _, _, bodies = read(tmp_path, events)
    assert [(body.model, body.previous) for body in bodies if isinstance(body, ModelSwitched)] == [("claude-opus-4-5", "")]
    assert [(body.model, body.purpose, body.tier, body.usage) for body in bodies if isinstance(body, ModelReplied)] == [
        ("claude-opus-4-5", "turn", "fast", Usage(5, 5, 5, output=5)),
        ("unknown", "outcome evaluation", "", Usage(7, 7, 7, output=7)),
    ]


def test_what_is_no_event_is_named_with_its_line_and_a_file_that_became_another_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first, last = event(1, "user.message", content=words("hi")), event(2, "user.message", content=words("you"))
    path.write_text(f"{as_lines([first])}garbage\n[1]\n{{}}\n{as_lines([last])}", encoding="utf-8")
    _, done, bodies = read_session(FORM, path)
    assert [problem.where for problem in done.problems] == [f"{path}:{number}" for number in (2, 3, 4)]
    assert said(bodies) == ["hi", "you"]
    (source,) = sources(FORM, path)
    path.write_text("{}", encoding="utf-8")
    assert [type(output) for output in FORM.read(source, Home().blobs)] == [ReadProblem]
