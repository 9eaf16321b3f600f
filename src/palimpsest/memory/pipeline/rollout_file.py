"""The file of a session's summary: a head that names the session, and a body made by a model or by structure alone."""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.items import Value
from palimpsest.core.redaction import redact
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.pipeline.transcript import SessionReading, iso_time
from palimpsest.memory.reading import escaped

Outcome: TypeAlias = Literal["success", "partial", "uncertain", "failed"]
MadeBy: TypeAlias = Literal["model", "structure"]
# Tokens of the body of a summary.
LONGEST_SUMMARY: Final = 1_500
_MOST_FILES, _MOST_COMMANDS, _LONGEST_TEXT, _LONGEST_TITLE = 30, 20, 600, 120
_MOST_TASKS, _MOST_POINTS = 12, 12


class TaskSummary(Struct, frozen=True, forbid_unknown_fields=True):
    """One task of a session: what the user wanted, how it ended, and what a later session can learn from it."""

    name: str
    outcome: Outcome
    preferences: tuple[str, ...] = ()
    worked: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    references: tuple[str, ...] = ()


class RolloutFile(Value, frozen=True):
    """A summary file. `updated` is the time of the last event of the session, in milliseconds since 1970."""

    session: str
    updated: int
    cwd: str
    branch: str
    made_by: MadeBy
    body: str

    @property
    def title(self) -> str:
        """The first heading of the body."""
        return next((line[2:].strip() for line in self.body.split("\n") if line.startswith("# ")), "")


def encode_rollout(rollout: RolloutFile) -> str:
    """Return the text of a summary file, without secrets."""
    head = (
        ("thread_id", rollout.session),
        ("updated_at", iso_time(rollout.updated)),
        ("updated_ms", str(rollout.updated)),
        ("cwd", rollout.cwd),
        ("git_branch", rollout.branch),
        ("made_by", rollout.made_by),
    )
    lines = (f"{key}: {' '.join(redact(value).split())}" for key, value in head if value)
    return "\n".join((*lines, "", bounded_lines(redact(rollout.body).strip(), LONGEST_SUMMARY), ""))


def decode_rollout(text: str) -> RolloutFile | None:
    """Return the summary that a text states; `None` if it is none."""
    head, _, body = text.partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.split("\n") if ": " in line)
    session, updated = fields.get("thread_id", ""), fields.get("updated_ms", "")
    if not session or not updated.isascii() or not updated.isdigit() or len(updated) > 15:
        return None
    made_by: MadeBy = "model" if fields.get("made_by") == "model" else "structure"
    return RolloutFile(session, int(updated), fields.get("cwd", ""), fields.get("git_branch", ""), made_by, body.rstrip("\n"))


def structural_body(reading: SessionReading) -> str:
    """Return the summary of a session that no model has read: what it was about in the user's words, and what was done by the log.

    Empty if the user said nothing.
    """
    if not reading.first:
        return ""
    edited = _points(reading.edited, _MOST_FILES)
    commands = _points(
        (f"`{ran.command}`: {'running' if ran.exit is None else f'exit code {ran.exit}'}" for ran in reading.commands[::-1]), _MOST_COMMANDS
    )
    parts = (
        f"# {title_of(reading)}",
        "(made from the log, without a model)",
        _section("First message", (f"> {line}" for line in _cut(reading.first).split("\n"))),
        _section("Files changed", edited),
        _section("Commands and their last outcome, newest first", commands),
        _section("Closing message of the agent", (f"> {line}" for line in _cut(reading.closing).split("\n")) if reading.closing else ()),
    )
    return "\n\n".join(part for part in parts if part)


def model_body(title: str, context: str, tasks: Iterable[TaskSummary]) -> str:
    """Return the summary that a model has written, as Markdown; text cannot form tags or headings of its own."""
    parts = [f"# {_line(title)[:_LONGEST_TITLE]}"]
    if context.strip():
        parts.append(_line(context))
    for number, task in enumerate(list(tasks)[:_MOST_TASKS], 1):
        lists = (
            ("What the user prefers", task.preferences),
            ("What worked", task.worked),
            ("What failed, and what to do instead", task.failed),
            ("References", task.references),
        )
        shown = [f"{name}:\n" + "\n".join(_points(map(_line, points), _MOST_POINTS)) for name, points in lists if points]
        parts.append("\n".join((f"## Task {number}: {_line(task.name)[:_LONGEST_TITLE]}", f"Outcome: {task.outcome}", *shown)))
    return "\n\n".join(parts)


def title_of(reading: SessionReading) -> str:
    """Return the title of a session: the recorded one, or the first line of the first message."""
    first = next((line for line in reading.first.split("\n") if line.strip()), "")
    return _line(reading.title or first)[:_LONGEST_TITLE] or "(untitled)"


def bounded_lines(text: str, tokens: int) -> str:
    """Return the first lines of a text that have at most so many tokens; a last line says how many were left out."""
    if estimate(text) <= tokens:
        return text
    lines, low = text.split("\n"), 0
    high = len(lines)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate(_cut_at(lines, middle)) <= tokens else (low, middle - 1)
    return _cut_at(lines, low)


def _cut_at(lines: list[str], kept: int) -> str:
    return "\n".join((*lines[:kept], f"({len(lines) - kept:,} lines left out)"))


def _section(name: str, lines: Iterable[str]) -> str:
    listed = "\n".join(lines)
    return f"## {name}\n{listed}" if listed else ""


def _points(texts: Iterable[str], most: int) -> tuple[str, ...]:
    listed = list(texts)
    more = (f"- … and {len(listed) - most:,} more",) if len(listed) > most else ()
    return (*(f"- {_line(text)}" for text in listed[:most]), *more)


def _line(text: str) -> str:
    line = " ".join(escaped(text).split()).lstrip("#> ")
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"


def _cut(text: str) -> str:
    return escaped(text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…")
