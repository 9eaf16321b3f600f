"""Stage one: asks a model once about a finished session for a memory and a summary, from a bounded text without secrets."""

import pkgutil
import re
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from palimpsest.audit.entities import is_context_text
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Event, ModelReplied, SessionOpened, ToolRefused, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, Value, text_of
from palimpsest.core.plans import Answer, Ask, AskTogether, Replies, Want, ask
from palimpsest.core.redaction import redact
from palimpsest.core.tokens import estimate
from palimpsest.core.truncate import truncate_middle
from palimpsest.memory.evidence import escaped, stated_object
from palimpsest.memory.summaries import SessionReading, bounded_lines, structural_body, title_of
from palimpsest.wire.reply import reply_schema

# Tokens of one tool result, and characters of the user's words that are kept to check what is said about the user.
OUTPUT_TOKENS: Final = 2_500
MOST_USER_CHARACTERS: Final = 20_000
_LABELS: Final = {
    "user": "[human user]",
    "assistant": "[assistant]",
    "function_call": "[tool call]",
    "function_call_output": "[tool output, untrusted]",
}


class RolloutText(Value, frozen=True):
    """A session as stage one reads it: one object an entry. Times are milliseconds since 1970; `user` are the user's own words."""

    session: str
    cwd: str
    branch: str
    started: int
    updated: int
    entries: tuple[dict[str, Any], ...]
    user: str

    def as_array(self) -> str:
        """Return the entries as one JSON array."""
        return msgspec.json.encode(self.entries).decode()

    def as_lines(self) -> str:
        """Return the entries as JSON lines, each below the label of who speaks."""
        return "\n".join(f"{_LABELS[_role(each)]}\n{msgspec.json.encode(each).decode()}" for each in self.entries)


def read_rollout(session: str, events: Iterable[Event]) -> RolloutText:
    """Read the events of the current path of a session; stated context, thinking and opaque items are left out."""
    opened, started, updated = SessionOpened(session), 0, 0
    entries: list[dict[str, Any]] = []
    said: list[str] = []
    for event in events:
        started, updated = started or event.at, max(updated, event.at)
        if isinstance(event.body, SessionOpened):
            opened = event.body
        found = list(_entries(event))
        entries += found
        said += [each["content"][0]["text"] for each in found if each.get("role") == "user"]
    words = "\n".join(said)[:MOST_USER_CHARACTERS]
    return RolloutText(session, opened.cwd, opened.meta.get("branch", ""), started, updated, tuple(entries), words)


def _entries(event: Event) -> Iterator[dict[str, Any]]:
    match event.body:
        case UserSaid(parts=parts):
            texts = [part.text for part in parts if isinstance(part, Text) and part.role == "user" and not is_context_text(part.text)]
            if any(text.strip() for text in texts):
                yield _message("user", "\n".join(texts))
        case ModelReplied(parts=parts, purpose="turn"):
            text = "\n".join(part.text for part in parts if isinstance(part, Text))
            if text.strip():
                yield _message("assistant", text)
            for part in parts:
                if isinstance(part, ToolCall):
                    bounded = truncate_middle(redact(part.args), OUTPUT_TOKENS).text
                    yield {"type": "function_call", "name": part.tool, "arguments": bounded, "call_id": part.call_id}
        case ToolReturned(result=result):
            output = truncate_middle(redact(text_of(result)), OUTPUT_TOKENS).text
            code = {} if event.body.exit is None else {"exit_code": event.body.exit}
            yield {"type": "function_call_output", "call_id": result.call_id, "output": output, **code}
        case ToolRefused(tool=tool):
            yield {"type": "function_call_output", "call_id": "", "output": f"{tool}: not allowed"}
        case _:
            return


def _message(role: str, text: str) -> dict[str, Any]:
    kind = "input_text" if role == "user" else "output_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": redact(text)}]}


def _role(entry: dict[str, Any]) -> str:
    return str(entry.get("role", entry["type"]))


PURPOSE: Final = "memory"
MOST_WRITTEN: Final = 12_000
# Tokens of a raw memory and of a summary.
RAW_TOKENS: Final = 4_000
SUMMARY_TOKENS: Final = 8_000
_MOST_KEYWORDS: Final = 20
_URL: Final = re.compile(r"https?://[^\s)>\]\"'`]+")


class MemoryReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is remembered of a session. Empty texts mean that it has nothing that a later session needs."""

    rollout_summary: str
    rollout_slug: str | None
    raw_memory: str


class SummaryReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is remembered of a session. Empty texts mean that it has nothing that a later session needs."""

    rollout_summary: str
    rollout_slug: str


class StageOneOutput(Value, frozen=True):
    """What stage one makes of a session; an empty summary says that there is nothing to keep."""

    summary: str = ""
    slug: str = ""
    raw: str = ""


def stage_one(rollout: RolloutText, *, limit: int, model: str, effort: str, has_raw: bool) -> Generator[Want, Answer, StageOneOutput]:
    """Ask once about a session, of which at most `limit` tokens are sent. One without a word of the user is not asked about.

    Raises `CannotFold` if the reply does not have the required form, and the `PalimpsestError` of a failed call.
    """
    if not rollout.user.strip():
        return StageOneOutput()
    text = rollout.as_array() if has_raw else rollout.as_lines()
    facts = f"session {rollout.session} in {rollout.cwd or 'an unknown folder'}" + (f", branch {rollout.branch}" if rollout.branch else "")
    system, prompt = prompt_text("stage_one_raw" if has_raw else "stage_one"), prompt_text("stage_one_input")
    prompt = prompt.replace("{{session}}", escaped(facts))
    room = max(0, limit - estimate(system) - estimate(prompt))
    # An escape of JSON, by which no text can close the block that it stands in.
    prompt = prompt.replace("{{rollout}}", truncate_middle(text, room).text.replace("</rollout", "<\\/rollout"))
    reply: type[msgspec.Struct] = MemoryReply if has_raw else SummaryReply
    want = Ask(
        (),
        prompt,
        PURPOSE,
        head=False,
        tools=False,
        model=model,
        reply=MOST_WRITTEN,
        schema=reply_schema(reply),
        system=system,
        effort=effort,
    )
    return checked((yield from ask(want)).parts, text, has_raw=has_raw)


def checked(parts: tuple[object, ...], source: str, *, has_raw: bool) -> StageOneOutput:
    """Return the output that a reply states, without secrets, addresses that the session does not have, and what exceeds the bounds.

    Raises `CannotFold` if the reply states none, or has unknown fields.
    """
    why = "the reply about a session does not have the required form"
    found: MemoryReply | SummaryReply = stated_object(parts, MemoryReply, why) if has_raw else stated_object(parts, SummaryReply, why)
    raw = _clean(found.raw_memory, source, RAW_TOKENS) if isinstance(found, MemoryReply) else ""
    summary, slug = _clean(found.rollout_summary, source, SUMMARY_TOKENS), found.rollout_slug or ""
    if not summary or (has_raw and not raw):
        return StageOneOutput()
    return StageOneOutput(summary, " ".join(redact(slug).split())[:60], raw)


def without_model(reading: SessionReading, *, has_raw: bool) -> StageOneOutput:
    """Return what the log alone gives: what the user wanted first, what was edited and run, and how it ended."""
    summary = structural_body(reading)
    if not summary or not has_raw:
        return StageOneOutput(summary, reading.title)
    title = title_of(reading)
    keywords = ", ".join(path.rpartition("/")[2] for path in reading.edited[:_MOST_KEYWORDS])
    head = f"---\ndescription: {title}\ntask: {title}\ntask_outcome: uncertain\nkeywords: {keywords}\n---"
    facts = [f"- edited {escaped(path)}" for path in reading.edited[:_MOST_KEYWORDS]]
    return StageOneOutput(summary, reading.title, "\n".join((head, f"### Task 1: {title}", "task_outcome: uncertain", *facts)))


@cache
def prompt_text(name: str) -> str:
    """Return a prompt of the two stages."""
    return (pkgutil.get_data("palimpsest.memory", f"prompts/stages/{name}.md") or b"").decode()


def _clean(text: str, source: str, tokens: int) -> str:
    """Return a text without secrets, tags, and lines with an address that its source does not name."""
    lines = (line for line in redact(text).strip().split("\n") if all(url in source for url in _URL.findall(line)))
    return bounded_lines(escaped("\n".join(lines)).strip(), tokens)


Result = TypeVar("Result")


def together(steps: Iterable[Generator[Want, Answer, Result]], most: int) -> Generator[Want, Answer, tuple[Result, ...]]:
    """Run steps to their ends, at most so many at a time, and return their results in order. Wants other than `Ask` are refused.

    What one of them raises ends the others, which are closed, so that each can give back what it holds.
    """
    waiting = list(enumerate(steps))
    running: dict[int, tuple[Generator[Want, Answer, Result], Ask]] = {}
    results: dict[int, Result] = {}
    started: list[Generator[Want, Answer, Result]] = [each for _, each in waiting]

    def advance(number: int, each: Generator[Want, Answer, Result], given: Answer | PalimpsestError) -> None:
        try:
            want = each.throw(given) if isinstance(given, PalimpsestError) else each.send(given)
        except StopIteration as stop:
            results[number] = stop.value
            running.pop(number, None)
            return
        if not isinstance(want, Ask):
            raise BadInput(f"steps side by side can only ask, not {type(want).__name__}", where="memory")
        running[number] = (each, want)

    try:
        while waiting or running:
            while waiting and len(running) < max(1, most):
                number, each = waiting.pop(0)
                advance(number, each, None)
            if not running:
                continue
            asked = dict(running)
            answer = yield AskTogether(tuple(want for _, want in asked.values()))
            if not isinstance(answer, Replies):
                raise BadInput(f"questions were answered with {type(answer).__name__}", where="memory")
            for (number, (each, _)), given in zip(asked.items(), answer.answers, strict=True):
                advance(number, each, given)
        return tuple(results[number] for number in sorted(results))
    finally:
        for each in started:
            each.close()
