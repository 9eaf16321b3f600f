"""Extraction of notes by a model, from new events or a finished session, and the wordings, summary and skills of a scope."""

import pkgutil
import re
from collections.abc import Generator, Iterable, Mapping
from functools import cache
from typing import Final

import msgspec

from palimpsest.core.errors import CannotFold
from palimpsest.core.front_matter import FENCE, field_line
from palimpsest.core.items import Text, Value
from palimpsest.core.plans import Answer, Ask, Want, ask
from palimpsest.core.redaction import redact
from palimpsest.core.tokens import estimate
from palimpsest.memory.changes import (
    AddNote,
    Change,
    QuotableEvent,
    SupersedeNote,
)
from palimpsest.memory.evidence import escaped, line_of_source, manifest, newest_within, stated_object
from palimpsest.memory.index_text import Words
from palimpsest.memory.note import LONGEST_ABOUT, Note
from palimpsest.memory.summaries import (
    RolloutFile,
    SessionReading,
    SummaryInput,
    TaskSummary,
    bounded_lines,
    check_summary,
    middle_cut,
    model_body,
    structural_body,
    summary_material,
    transcript_lines,
)
from palimpsest.wire.reply import reply_schema

PURPOSE: Final = "memory"
# Tokens of the whole request and of the reply, and of the list of notes, of which the newest are kept.
MOST_READ: Final = 8_000
MOST_WRITTEN: Final = 1_500
MOST_LISTED: Final = 2_500
MOST_CHANGES: Final = 20
# Requests: a second one if the first reply cannot be read.
MOST_ASKS: Final = 2
# Characters of a reply that are read; the request asks for far less.
LONGEST_REPLY: Final = 60_000
OWN_NOTE: Final = "a reply cannot change a note that it adds itself"


class Changes(msgspec.Struct, frozen=True):
    """The reply of the model."""

    changes: tuple[Change, ...]


class Proposed(Value, frozen=True):
    """What a model proposed after it had read these sources. `left_out` counts the changes beyond the most that one reply may have."""

    changes: tuple[Change, ...] = ()
    read: tuple[QuotableEvent, ...] = ()
    left_out: int = 0


# Characters that stand for `<` and `>` in a request, where no tag may begin or end.
_SHOWN: Final = str.maketrans("‹›", "<>")
_TYPOGRAPHIC: Final = str.maketrans("‘’“”–—", "''\"\"--")


def proposed_changes(sources: tuple[QuotableEvent, ...], notes: Iterable[Note], model: str = "") -> Generator[Want, Answer, Proposed]:
    """Ask about the newest of the sources and return the changes that a model proposes; without sources nothing is asked.

    A reply that cannot be read is asked for once more. Raises `CannotFold` if that cannot be read either, and the `PalimpsestError` of a
    failed call.
    """
    listed = _listed(notes)
    read = newest_within(sources, MOST_READ - estimate(_template()) - estimate(listed))
    if not read:
        return Proposed()
    prompt, advice = _prompt(read, listed), ""
    for number in range(1, MOST_ASKS + 1):
        want = Ask((), prompt + advice, PURPOSE, head=False, tools=False, model=model, reply=MOST_WRITTEN, schema=changes_schema())
        reply = yield from ask(want)
        text = "".join(part.text for part in reply.parts if isinstance(part, Text))
        try:
            read_reply = (Text(text[:LONGEST_REPLY]),)
            proposed = stated_object(read_reply, Changes, "the reply of the memory job is no list of changes").changes
            break
        except CannotFold as error:
            if number == MOST_ASKS:
                raise
            advice = f"\n\nYour last reply could not be read ({error.__cause__}). Reply with the JSON object alone, and make it shorter."
    return Proposed(tuple(_as_written(change, read) for change in proposed[:MOST_CHANGES]), read, len(proposed[MOST_CHANGES:]))


def target_of(change: Change) -> str:
    """Return the name of the note that a change is about; empty for one that adds a note."""
    return "" if isinstance(change, AddNote) else change.name


@cache
def changes_schema() -> str:
    """Return the JSON schema of the reply."""
    return reply_schema(Changes)


@cache
def _template() -> str:
    data = pkgutil.get_data("palimpsest.memory", "prompts/extract.md")
    return (data or b"").decode()


def _listed(notes: Iterable[Note]) -> str:
    """Return the manifest within its bound, cut at a line, with a line that says how many notes are not in it."""
    lines, kept, left = manifest(notes), list[str](), MOST_LISTED
    for line in lines:
        left -= estimate(f"{line}\n")
        if left < 0:
            return "\n".join((*kept, f"({len(lines) - len(kept)} older notes are not listed)"))
        kept.append(line)
    return "\n".join(kept) or "(none)"


def _prompt(read: tuple[QuotableEvent, ...], listed: str) -> str:
    values = {"newest": max(source.at for source in read), "most": str(MOST_CHANGES), "manifest": listed}
    text = _template()
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    # The last one, because the events may contain anything.
    return text.replace("{{events}}", "\n".join(map(line_of_source, read)))


def _as_written(change: Change, read: tuple[QuotableEvent, ...]) -> Change:
    """Return a change with the signs of the events in place of those that the request, or the habits of a model, put there."""
    seen = "".join(source.text for source in read)
    signs = {sign: plain for sign, plain in _SHOWN.items() if chr(sign) not in seen}
    quote = change.quote.translate(signs | {sign: plain for sign, plain in _TYPOGRAPHIC.items() if chr(sign) not in seen})
    if not isinstance(change, AddNote | SupersedeNote):
        return msgspec.structs.replace(change, quote=quote)
    note = change.note
    texts = {name: getattr(note, name).translate(signs) for name in ("about", "body", "backstory")}
    return msgspec.structs.replace(change, quote=quote, note=msgspec.structs.replace(note, **texts))


PHASE_ONE_PURPOSE: Final = "memory"
# Tokens of the reply.
PHASE_ONE_MOST_WRITTEN: Final = 3_000
PHASE_ONE_MOST_CHANGES: Final = 20


class SessionReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reply of the model. Without a title and tasks there is nothing that a later session needs."""

    title: str
    slug: str
    context: str
    tasks: tuple[TaskSummary, ...]
    changes: tuple[Change, ...]


class SessionOutput(Value, frozen=True):
    """What phase one makes of a session: the body of its summary, empty if there is nothing to keep, and proposed changes of notes.

    `read` are the events that the model has seen, which its changes may cite.
    """

    body: str = ""
    slug: str = ""
    is_by_model: bool = False
    changes: tuple[Change, ...] = ()
    read: tuple[QuotableEvent, ...] = ()


def phase_one(reading: SessionReading, notes: Iterable[Note], *, limit: int, model: str = "") -> Generator[Want, Answer, SessionOutput]:
    """Ask once about a session, of which at most `limit` tokens are sent. A session without a text of the user is not asked about.

    Raises `CannotFold` if the reply does not have the required form, and the `PalimpsestError` of a failed call.
    """
    if not reading.first:
        return SessionOutput()
    prompt, read = _phase_one_prompt(reading, notes, limit)
    want = Ask((), prompt, PHASE_ONE_PURPOSE, head=False, tools=False, model=model, reply=PHASE_ONE_MOST_WRITTEN, schema=session_schema())
    reply = stated_object((yield from ask(want)).parts, SessionReply, "the reply about a session does not have the required form")
    body = model_body(reply.title, reply.context, reply.tasks) if reply.title.strip() and reply.tasks else ""
    return SessionOutput(body, reply.slug[:60], is_by_model=True, changes=reply.changes[:PHASE_ONE_MOST_CHANGES], read=read)


def without_model(reading: SessionReading) -> SessionOutput:
    """Return the summary that the log alone gives."""
    return SessionOutput(structural_body(reading), reading.title)


@cache
def session_schema() -> str:
    """Return the JSON schema of the reply."""
    return reply_schema(SessionReply)


@cache
def _phase_one_template() -> str:
    data = pkgutil.get_data("palimpsest.memory", "prompts/phase_one.md")
    return (data or b"").decode()


def _phase_one_prompt(reading: SessionReading, notes: Iterable[Note], limit: int) -> tuple[str, tuple[QuotableEvent, ...]]:
    """Return the prompt and the sources that it shows; prompt, manifest and session have together at most `limit` tokens."""
    lines = "\n".join(manifest(notes)) or "(none)"
    facts = f"session {reading.session} of {reading.origin} in {reading.cwd or 'an unknown folder'}" + (
        f", branch {reading.branch}" if reading.branch else ""
    )
    text = _phase_one_template().replace("{{manifest}}", lines).replace("{{session}}", escaped(facts))
    beginning, end = middle_cut(reading.sources, max(0, limit - estimate(text)))
    read = (*beginning, *end)
    shown = "\n".join(transcript_lines(beginning, end, len(reading.sources) - len(read)))
    return text.replace("{{events}}", shown), read


PHASE_TWO_PURPOSE: Final = "memory"
# Tokens of a request and of a reply.
PHASE_TWO_MOST_READ: Final = 16_000
PHASE_TWO_MOST_WRITTEN: Final = 3_000
MOST_WORDINGS: Final = 40
MOST_SKILLS: Final = 5
# Sessions in which a procedure must have succeeded to become a skill.
LEAST_SUCCESSES: Final = 2
LONGEST_SKILL: Final = 1_200
_MALFORMED: Final = "the reply of the consolidation does not have the required form"
_SKILL_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,40}")


class StandingLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line that says what several notes have in common."""

    name: str
    about: str


class StandingLines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reply to the question for lines."""

    wordings: tuple[StandingLine, ...]


class SkillDraft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A procedure that succeeded repeatedly; `sessions` are the names of the summaries that show it."""

    name: str
    description: str
    steps: tuple[str, ...]
    sessions: tuple[str, ...]


class ProposedSkills(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reply to the question for procedures."""

    skills: tuple[SkillDraft, ...]


class SkillFile(Value, frozen=True):
    """A skill inside of the memory folder: its name and the text of its SKILL.md."""

    name: str
    text: str


def wordings(groups: Mapping[str, tuple[Note, ...]], words: Words, model: str = "") -> Generator[Want, Answer, Mapping[str, str]]:
    """Ask once for a line about each group of notes, by the name of the note that stands for it; without groups nothing is asked.

    A line counts only if all of its content words occur in the notes of its group, so that it cannot say more than they do.
    """
    chosen = dict(list(groups.items())[:MOST_WORDINGS])
    if not chosen:
        return {}
    shown = "\n\n".join(f"{name}:\n" + "\n".join(f"- {escaped(note.about)}" for note in notes) for name, notes in chosen.items())
    reply = yield from ask(
        _want(_phase_two_prompt("wordings", {"groups": bounded_lines(shown, PHASE_TWO_MOST_READ)}), StandingLines, model)
    )
    accepted: dict[str, str] = {}
    for wording in stated_object(reply.parts, StandingLines, _MALFORMED).wordings:
        about = " ".join(redact(wording.about).split())
        known = frozenset[str]().union(*(words(f"{note.about}\n{note.body}") for note in chosen.get(wording.name, ())))
        if about and len(about) <= LONGEST_ABOUT and words(about) and words(about) <= known:
            accepted[wording.name] = about
    return accepted


def summarised(given: SummaryInput, model: str = "") -> Generator[Want, Answer, str]:
    """Ask once for SUMMARY.md and return it. Raises `CannotFold` if it does not hold against its check, so that the old one stays."""
    material = bounded_lines(summary_material(given), PHASE_TWO_MOST_READ)
    reply = yield from ask(_want(_phase_two_prompt("summary", {"material": material}), None, model))
    text = redact(_fenced("".join(part.text for part in reply.parts if isinstance(part, Text)))).strip() + "\n"
    if wrong := check_summary(text, given.targets()):
        raise CannotFold(f"the new SUMMARY.md is not valid, and the old one stays: {wrong}", kind="malformed")
    return text


def skills_of(rollouts: Mapping[str, RolloutFile], model: str = "") -> Generator[Want, Answer, tuple[SkillFile, ...]]:
    """Ask once for procedures that succeeded in several sessions; `rollouts` are summaries by stem. Those of one session are left out.

    With fewer than two summaries by a model nothing is asked: those that the log alone gives say nothing about procedures.
    """
    read = {stem: rollout for stem, rollout in rollouts.items() if rollout.made_by == "model"}
    if len(read) < LEAST_SUCCESSES:
        return ()
    shown, left = [], PHASE_TWO_MOST_READ
    for stem, rollout in sorted(read.items(), reverse=True):
        text = f"[{stem}]\n{escaped(rollout.body)}"
        left -= estimate(text) + 1
        if left < 0:
            break
        shown.append(text)
    reply = yield from ask(_want(_phase_two_prompt("skills", {"sessions": "\n\n".join(shown)}), ProposedSkills, model))
    proposed = stated_object(reply.parts, ProposedSkills, _MALFORMED).skills[:MOST_SKILLS]
    return tuple({file.name: file for draft in proposed if (file := _skill(draft, read)) is not None}.values())


def _skill(draft: SkillDraft, read: Mapping[str, RolloutFile]) -> SkillFile | None:
    sessions = {read[stem].session for stem in draft.sessions if stem in read}
    steps = [" ".join(escaped(step).split()) for step in draft.steps if step.strip()]
    if not _SKILL_NAME.fullmatch(draft.name) or len(sessions) < LEAST_SUCCESSES or not steps or not draft.description.strip():
        return None
    lines = (
        FENCE,
        field_line("name", draft.name),
        field_line("description", " ".join(escaped(draft.description).split())[:300]),
        FENCE,
        "",
        "Proposed from sessions in which it succeeded; it is offered to no agent until a person moves it into a folder of skills.",
        "",
        *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
        "",
        *(f"- rollouts/{stem}.md" for stem in dict.fromkeys(draft.sessions) if stem in read),
    )
    return SkillFile(draft.name, bounded_lines(redact("\n".join(lines)), LONGEST_SKILL) + "\n")


def _want(prompt: str, reply: type[msgspec.Struct] | None, model: str) -> Ask:
    schema = "" if reply is None else reply_schema(reply)
    return Ask((), prompt, PHASE_TWO_PURPOSE, head=False, tools=False, model=model, reply=PHASE_TWO_MOST_WRITTEN, schema=schema)


def _fenced(text: str) -> str:
    """Return what stands within a fence, if the whole reply is one."""
    body = text.strip()
    if body.startswith("```") and body.endswith("```") and "\n" in body:
        return body[body.find("\n") + 1 : -3]
    return body


@cache
def _phase_two_template(name: str) -> str:
    data = pkgutil.get_data("palimpsest.memory", f"prompts/{name}.md")
    return (data or b"").decode()


def _phase_two_prompt(name: str, texts: Mapping[str, str]) -> str:
    prompt = _phase_two_template(name)
    for key, text in texts.items():
        prompt = prompt.replace(f"{{{{{key}}}}}", text)
    return prompt
