"""What phase two asks a model, once each and only after a change: wordings of representatives and rules, SUMMARY.md, and skills."""

import pkgutil
import re
from collections.abc import Generator, Iterable, Mapping
from functools import cache
from typing import Final, TypeVar

import msgspec

from palimpsest.core.errors import CannotFold
from palimpsest.core.format.front_matter import FENCE, field_line
from palimpsest.core.items import Text, Value
from palimpsest.core.policy import Answer, Ask, Want, ask
from palimpsest.core.redaction import redact
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.note import LONGEST_ABOUT, Note
from palimpsest.memory.pipeline.rollout_file import RolloutFile, bounded_lines
from palimpsest.memory.pipeline.summary_file import SummaryInput, check_summary, summary_material
from palimpsest.memory.reading import escaped
from palimpsest.memory.weighing.duplicates import Words
from palimpsest.wire.reply_schema import reply_schema

Reply = TypeVar("Reply", bound=msgspec.Struct)
PURPOSE: Final = "memory"
# Tokens of a request and of a reply.
MOST_READ: Final = 16_000
MOST_WRITTEN: Final = 3_000
MOST_WORDINGS: Final = 40
MOST_SKILLS: Final = 5
# Sessions in which a procedure must have succeeded to become a skill.
LEAST_SUCCESSES: Final = 2
LONGEST_SKILL: Final = 1_200
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
    reply = yield from ask(_want(_prompt("wordings", {"groups": bounded_lines(shown, MOST_READ)}), StandingLines, model))
    accepted: dict[str, str] = {}
    for wording in _decoded(reply.parts, StandingLines).wordings:
        about = " ".join(redact(wording.about).split())
        known = frozenset[str]().union(*(words(f"{note.about}\n{note.body}") for note in chosen.get(wording.name, ())))
        if about and len(about) <= LONGEST_ABOUT and words(about) and words(about) <= known:
            accepted[wording.name] = about
    return accepted


def summarised(given: SummaryInput, model: str = "") -> Generator[Want, Answer, str]:
    """Ask once for SUMMARY.md and return it. Raises `CannotFold` if it does not hold against its check, so that the old one stays."""
    material = bounded_lines(summary_material(given), MOST_READ)
    reply = yield from ask(_want(_prompt("summary", {"material": material}), None, model))
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
    shown, left = [], MOST_READ
    for stem, rollout in sorted(read.items(), reverse=True):
        text = f"[{stem}]\n{escaped(rollout.body)}"
        left -= estimate(text) + 1
        if left < 0:
            break
        shown.append(text)
    reply = yield from ask(_want(_prompt("skills", {"sessions": "\n\n".join(shown)}), ProposedSkills, model))
    proposed = _decoded(reply.parts, ProposedSkills).skills[:MOST_SKILLS]
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
    return Ask((), prompt, PURPOSE, head=False, tools=False, model=model, reply=MOST_WRITTEN, schema=schema)


def _decoded(parts: Iterable[object], reply: type[Reply]) -> Reply:
    text = "".join(part.text for part in parts if isinstance(part, Text))
    start, end = text.find("{"), text.rfind("}")
    try:
        return msgspec.json.decode(text[start : end + 1] if 0 <= start < end else text, type=reply)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CannotFold(f"the reply of the consolidation does not have the required form: {error}", kind="malformed") from error


def _fenced(text: str) -> str:
    """Return what stands within a fence, if the whole reply is one."""
    body = text.strip()
    if body.startswith("```") and body.endswith("```") and "\n" in body:
        return body[body.find("\n") + 1 : -3]
    return body


@cache
def _template(name: str) -> str:
    data = pkgutil.get_data("palimpsest.memory", f"prompts/{name}.md")
    return (data or b"").decode()


def _prompt(name: str, texts: Mapping[str, str]) -> str:
    prompt = _template(name)
    for key, text in texts.items():
        prompt = prompt.replace(f"{{{{{key}}}}}", text)
    return prompt
