import itertools
from pathlib import Path

import pytest
from claude_session import Line, blocks_of, readable, spoken
from corpus import WITHOUT, corpus, golden
from every_case import every_case
from readings import Home, called, check_repeat, faults, returned, said

from palimpsest.core.events import CallStarted, ModelReplied, SessionOpened, UserSaid
from palimpsest.core.items import Text, ToolResult, text_of
from palimpsest.core.log import Log
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.stores.in_memory import FixedClock

CLAUDE = ClaudeFormat()
HEADLESS = "69901b92-81d1-436f-9093-e5364257259e"
FILES = [*golden("claude/*/projects/**/*.jsonl"), *corpus("claude-code/*.jsonl")]


def read(path: Path) -> tuple[Home, str]:
    home = Home()
    return home, home.take(CLAUDE, path)[0].session


@every_case("path", FILES)
def test_every_message_call_and_result_of_a_real_session_is_there_once(path: Path) -> None:
    home, session = read(path)
    found = home.bodies(session)
    lines = [line for line in readable(path) if path.stem.startswith("agent-") or not line.get("isSidechain")]
    asked = [block["id"] for line in lines if line["type"] == "assistant" for block in blocks_of(line) if block["type"] == "tool_use"]
    answers = [line for line in lines if line["type"] == "user"]
    answered = [block["tool_use_id"] for line in answers for block in blocks_of(line) if block["type"] == "tool_result"]
    assert said(found) == spoken(lines)
    assert sorted(called(found)) == sorted(asked)
    assert returned(found) == answered
    messages = [line["message"] for line in lines if line["type"] == "assistant"]
    counted = {message["id"]: message["usage"]["output_tokens"] for message in messages}
    replies = [body for body in found if isinstance(body, ModelReplied)]
    assert [body.message for body in replies] == list(counted)
    assert sum(body.usage.output for body in replies) == sum(counted.values())


@every_case("path", FILES)
def test_the_views_of_a_real_session_are_requests_that_every_provider_takes(path: Path) -> None:
    home, session = read(path)
    assert faults(home, session, every=max(1, len(home.events(session)) // 12)) == []


@pytest.mark.parametrize("path", golden("claude/*/projects/**/*.jsonl"), ids=lambda path: path.stem[-24:])
def test_a_session_that_is_imported_twice_does_not_change(path: Path) -> None:
    check_repeat(CLAUDE, path)


@pytest.mark.skipif(not corpus("claude-code/*.jsonl"), reason=WITHOUT)
def test_an_unreadable_line_is_counted_and_named_and_the_rest_goes_on() -> None:
    (path,) = corpus("claude-code/M-Thisness-M-Claude__c76e5be5*.jsonl")
    (done,) = Home().take(CLAUDE, path)
    assert [bad.where for bad in done.problems] == [f"{path}:859"]
    assert (done.counts.user_messages, done.counts.calls, done.counts.results) == (23, 296, 295)


def test_a_session_is_opened_with_what_the_file_knows_of_it() -> None:
    (path,) = golden(f"claude/2.1.325/projects/*/{HEADLESS}.jsonl")
    home, session = read(path)
    opened = home.bodies(session)[0]
    assert session == f"claude-{HEADLESS}"
    assert isinstance(opened, SessionOpened)
    assert (opened.cwd, opened.origin, opened.model) == ("/repo/project", "claude-code", "claude-sonnet-4-6")
    assert opened.meta == {"version": "2.1.325", "branch": "main"}


def test_the_user_messages_of_a_headless_session() -> None:
    (path,) = golden(f"claude/2.1.325/projects/*/{HEADLESS}.jsonl")
    home, session = read(path)
    found = home.bodies(session)
    assert said(found) == [
        "FIRST-USER-MSG read notes.txt and change the first alpha to beta",
        "SECOND-USER-MSG run a failing command",
        "THIRD-USER-MSG ask a subagent",
        "FOURTH-USER-MSG what is this image?",
        "FIFTH-USER-MSG print many numbers",
        "SIXTH-USER-MSG fill the context",
        "SEVENTH-USER-MSG after compaction one",
        "EIGHTH-USER-MSG chat",
        "NINTH-USER-MSG fill again",
        "TENTH-USER-MSG after compaction two",
        "ELEVENTH-USER-MSG end",
        f"RESUMED-MSG ['--resume', '{HEADLESS}']",
    ]
    assert [body.parts[0] for body in found if isinstance(body, UserSaid) and body.steering] == [Text("FIFTH-USER-MSG print many numbers")]


def test_a_prompt_follows_its_statements_as_in_the_request() -> None:
    (path,) = golden(f"claude/2.1.325/projects/*/{HEADLESS}.jsonl")
    home, session = read(path)
    log = Log.open(home.store, session, FixedClock())
    first = next(event for event in log.events() if isinstance(event.body, CallStarted))
    view = log.state_at(first.seq).view
    assert [item.source or item.kind for item in view.items] == [
        "environment",
        "model",
        "deferred_tools_delta",
        "agent_listing_delta",
        "skill_listing",
        "total_tokens_reminder",
        "instructions",
        "session_context",
        "date",
        "remote_session_change",
        "user",
    ]
    assert [item.source for item in view.head] == ["system:0", "system:1"]
    assert isinstance(first.body, CallStarted)
    assert home.blobs.get(first.body.tools).startswith(b'[{"name":"Agent"')


def _seen(messages: list[Line]) -> list[tuple[str, str]]:
    """The user's side of a request; the budget goes into the results, and so do reminders that follow them."""
    found = []
    for message in messages:
        blocks = [{"type": "text", "text": message["content"]}] if isinstance(message["content"], str) else message["content"]
        words = [block["text"].strip() for block in blocks if block["type"] == "text"]
        found += [(block["type"], block.get("tool_use_id", "")) for block in blocks if block["type"] != "text"]
        found += [("text", word) for word in words if "<total_tokens>" not in word]
    return [pair for pair in found if pair[0] in {"text", "tool_result"}]


@pytest.mark.parametrize("name", ["69901b92*", "d2b453cc*"])
def test_the_view_at_a_call_is_what_the_logged_request_showed(name: str) -> None:
    (path,) = golden(f"claude/2.1.325/projects/*/{name}.jsonl")
    home, session = read(path)
    lines = readable(path)
    blobs = {line["hash"]: line["message"] for line in lines if line["type"] == "api-request-blob"}
    requests: dict[str, list[str]] = {}
    for line in lines:
        if line["type"] == "api-request":
            requests[line["id"]] = [*requests.get(line.get("base", ""), [])[: line["keep"]], *line["tail"]]
    refs = {line["message"]["id"]: line["requestRef"] for line in lines if line["type"] == "assistant"}
    log = Log.open(home.store, session, FixedClock())
    events = list(log.events())
    compared = 0
    for started, replied in itertools.pairwise(events):
        if not isinstance(replied.body, ModelReplied) or refs[replied.body.message] not in requests:
            continue
        wanted = _seen([blobs[each] for each in requests[refs[replied.body.message]] if each in blobs and blobs[each]["role"] == "user"])
        view, items = log.state_at(started.seq).view, []
        for before, item in zip([None, *view.items], view.items, strict=False):
            after_result = before is not None and before.kind == "result" and item.kind in {"context", "steering"}
            if isinstance(item.content, ToolResult):
                items.append(("tool_result", item.content.call_id))
            elif (
                isinstance(item.content, Text)
                and item.kind != "assistant"
                and "<total_tokens>" not in item.content.text
                and not after_result
            ):
                items.append(("text", item.content.text.strip()))
        folded = {"task-notification", "nested_memory"}
        shown_now = [
            pair for pair in items if not any(item.source in folded and text_of(item.content).strip() == pair[1] for item in view.items)
        ]
        assert shown_now == [pair for pair in wanted if "SYSTEM NOTIFICATION" not in pair[1]]
        compared += 1
    assert compared > 1
