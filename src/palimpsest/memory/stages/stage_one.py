"""Stage one: asks a model once about a finished session, for a raw memory, a summary with the evidence to redo the work, and a slug."""

import pkgutil
import re
from collections.abc import Generator
from functools import cache
from typing import Final

import msgspec

from palimpsest.core.errors import CannotFold
from palimpsest.core.items import Text, Value
from palimpsest.core.policy import Answer, Ask, Want, ask
from palimpsest.core.redaction import redact
from palimpsest.core.tokens.estimate import estimate
from palimpsest.core.tokens.truncate import truncate_middle
from palimpsest.memory.pipeline.rollout_file import bounded_lines, structural_body, title_of
from palimpsest.memory.pipeline.transcript import SessionReading
from palimpsest.memory.reading import escaped
from palimpsest.memory.stages.rollout_text import RolloutText
from palimpsest.wire.reply_schema import reply_schema

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
    text = "".join(part.text for part in parts if isinstance(part, Text))
    start, end = text.find("{"), text.rfind("}")
    data = text[start : end + 1] if 0 <= start < end else text
    try:
        if not has_raw:
            found = msgspec.json.decode(data, type=SummaryReply)
            raw, slug = "", found.rollout_slug
        else:
            reply = msgspec.json.decode(data, type=MemoryReply)
            raw, slug = _clean(reply.raw_memory, source, RAW_TOKENS), reply.rollout_slug or ""
            found = SummaryReply(reply.rollout_summary, slug)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CannotFold(f"the reply about a session does not have the required form: {error}", kind="malformed") from error
    summary = _clean(found.rollout_summary, source, SUMMARY_TOKENS)
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


def stage_one_schema(*, has_raw: bool) -> str:
    """Return the JSON schema of the reply."""
    return reply_schema(MemoryReply if has_raw else SummaryReply)


@cache
def prompt_text(name: str) -> str:
    """Return a prompt of the two stages."""
    return (pkgutil.get_data("palimpsest.memory", f"prompts/stages/{name}.md") or b"").decode()


def _clean(text: str, source: str, tokens: int) -> str:
    """Return a text without secrets, tags, and lines with an address that its source does not name."""
    lines = (line for line in redact(text).strip().split("\n") if all(url in source for url in _URL.findall(line)))
    return bounded_lines(escaped("\n".join(lines)).strip(), tokens)
