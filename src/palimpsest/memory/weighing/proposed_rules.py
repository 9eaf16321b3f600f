"""Abstraction: several facts of one person that share a pattern become one rule that takes their place, as long as two of them stand."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.memory.note import LONGEST_ABOUT, Note, NoteKind, is_by_hand, name_of, time_of

LEAST_SUPPORTS: Final = 3
LEAST_REMAINING: Final = 2
LEAST_SESSIONS: Final = 2
# Names and events that one rule cites; more would not fit into the head of its file.
MOST_SUPPORTS: Final = 8
# Characters of a case in the text of its rule; what says more stays a note of its own.
LONGEST_LINE: Final = 400
# A pause after which a person who writes notes with commands does so in another session, as with sessions of an agent.
SITTING_SECONDS: Final = 6 * 3_600
_RULE: Final = ".rule"


class RuleStep(Value, frozen=True):
    """One change of the rules: the rule that is written, or the one that leaves, and why."""

    why: str
    saved: tuple[Note, ...] = ()
    past: tuple[Note, ...] = ()


class _Pattern(NamedTuple):
    kind: NoteKind
    person: str
    attribute: str


def rule_steps(notes: Iterable[Note], past: Iterable[Note] = ()) -> tuple[RuleStep, ...]:
    """Return the changes that make the rules of a scope follow from its facts. Doing it again with their result changes nothing.

    A pattern is structural: statements of the user about one person whose attributes lie in one family (`reply.length`, `reply.tone`), or
    several values of an attribute that may have many. Three of them, learned in at least two sessions, give a rule, which takes their
    place: they are `past` versions from then on, and its evidence. A rule with fewer than two cases left is retracted, and the last one
    holds again; one that lost or won a case is written again from those it has. What the user undid is not proposed again from the same.
    """
    active = {note.name: note for note in notes if note.status == "active"}
    gone = tuple(past)
    groups = _groups(active.values())
    steps: list[RuleStep] = []
    ruled: set[_Pattern] = set()
    for rule in sorted((note for note in active.values() if is_proposed(note)), key=lambda note: note.name):
        pattern = _Pattern(rule.kind, rule.person.casefold(), rule.attribute.removesuffix(_RULE))
        ruled.add(pattern)
        known = cases_of(rule, active, gone)
        cases = (*known, *(note for note in groups.get(pattern, ()) if note not in known))[:MOST_SUPPORTS]
        written, taken = written_again(rule, cases), [note for note in cases if note.name in active]
        if len(cases) < LEAST_REMAINING:
            steps.append(retracted(rule, cases))
        elif written is not rule or taken:
            steps.append(
                _taking(
                    written if written is not rule else replace(rule, rev=rule.rev + 1), taken, f"the cases of {rule.name} have changed"
                )
            )
    for pattern, found in sorted(groups.items()):
        count, cases = _count_of_sessions(found), found[:MOST_SUPPORTS]
        if pattern not in ruled and len(cases) >= LEAST_SUPPORTS and count >= LEAST_SESSIONS and not _is_undone(pattern, cases, gone):
            rule = _new_rule(pattern, cases, frozenset(active))
            active[rule.name] = rule
            steps.append(_taking(rule, cases, f"{len(cases)} facts of {count} sessions share {pattern.attribute}"))
    return tuple(steps)


def cases_of(rule: Note, active: Mapping[str, Note], past: Iterable[Note]) -> tuple[Note, ...]:
    """Return the notes whose place a rule has taken: past versions, or the active note of that name if there is a newer one."""
    left = sorted((note for note in past if note.superseded_by.partition("@")[0] == rule.name), key=lambda note: note.rev)
    versions = {note.name: note for note in left} | {name: note for name, note in active.items() if name in rule.stands_for}
    names = dict.fromkeys((*rule.stands_for, *sorted(versions)))
    return tuple(versions[name] for name in names if name in versions)


def retracted(rule: Note, cases: Iterable[Note]) -> RuleStep:
    """Return the step by which a rule leaves and its cases hold again."""
    back = tuple(brought_back(note) for note in cases if note.status != "active")
    return RuleStep(f"{rule.name} has fewer than {LEAST_REMAINING} cases", back, (replace(rule, status="retracted"),))


def brought_back(case: Note) -> Note:
    """Return a case as it is when it holds again."""
    return replace(case, status="active", superseded_by="", rev=case.rev + 1)


def without_corrected(saved: Iterable[Note], active: Mapping[str, Note], past: Sequence[Note]) -> tuple[RuleStep, ...]:
    """Return the changes of rules that have cases which notes to be saved replace, as values of the same attribute.

    What a rule says is never older than a correction: the case leaves it at once, and the next consolidation takes up the new value.
    """
    steps: list[RuleStep] = []
    listed = [note for note in saved if note.level == "fact" and note.attribute and note.policy == "single"]
    for rule in (note for note in active.values() if is_proposed(note)):
        values = {note.attribute for note in listed if note.person.casefold() == rule.person.casefold()}
        cases = cases_of(rule, {}, past)
        left = tuple(note for note in cases if note.attribute not in values)
        if len(left) == len(cases):
            continue
        steps.append(
            retracted(rule, left) if len(left) < LEAST_REMAINING else RuleStep("a case was corrected", (written_again(rule, left),))
        )
    return tuple(steps)


def _taking(rule: Note, cases: Sequence[Note], why: str) -> RuleStep:
    """Return the step by which a rule takes the place of cases: it was used as often as they were, and matters as much."""
    weighed = replace(
        rule,
        uses=rule.uses + sum(note.uses for note in cases),
        last_used=max((rule.last_used, *(note.last_used for note in cases))),
        intensity=max((rule.intensity, *(note.intensity for note in cases))),
    )
    return RuleStep(why, (weighed,), tuple(replace(note, status="superseded", superseded_by=rule.revision) for note in cases))


def _is_undone(pattern: _Pattern, cases: Iterable[Note], past: Iterable[Note]) -> bool:
    """Return whether the user took back a rule that stood for all of these cases: it names what holds in its place."""
    names = {note.name for note in cases}
    undone = (
        note for note in past if note.status == "retracted" and note.superseded_by and note.attribute == f"{pattern.attribute}{_RULE}"
    )
    return any(names <= set(note.stands_for) and note.person.casefold() == pattern.person for note in undone)


def _count_of_sessions(notes: Sequence[Note]) -> int:
    """Return how many sessions notes come from; what a person wrote with a command or by hand counts as one until a pause of hours."""
    events = {each for note in notes for each in note.evidence}
    sessions = {each.rpartition(":")[0] for each in events if not is_by_hand(each)}
    times = sorted(time_of(note.when) for note in notes if all(map(is_by_hand, note.evidence)))
    pauses = sum((later - earlier).total_seconds() >= SITTING_SECONDS for earlier, later in pairwise(times))
    return len(sessions) + (1 + pauses if times else 0)


def is_proposed(note: Note) -> bool:
    """Return whether a note is a rule that was proposed here, so that its text follows from its supports."""
    return note.level == "rule" and note.by == "consolidate" and note.attribute.endswith(_RULE)


def written_again(rule: Note, supports: Sequence[Note]) -> Note:
    """Return a rule as these supports state it, with nothing of others; the rule itself if they are the ones it has."""
    kept = tuple(supports[:MOST_SUPPORTS])
    if not kept:
        return rule
    names = tuple(note.name for note in kept)
    body, evidence = _body(kept), _evidence(kept)
    if (rule.stands_for, rule.body, rule.evidence) == (names, body, evidence):
        return rule
    family = rule.attribute.removesuffix(_RULE)
    newest = max(kept, key=lambda note: time_of(note.when)).when
    return replace(
        rule,
        about=_about(family, kept),
        body=body,
        backstory=_backstory(family, kept),
        evidence=evidence,
        stands_for=names,
        when=newest,
        rev=rule.rev + 1,
    )


def worded(rule: Note, about: str) -> Note:
    """Return a rule with a line of a model above its supports, which stay below it."""
    return replace(rule, about=" ".join(about.split())[:LONGEST_ABOUT])


def _groups(notes: Iterable[Note]) -> Mapping[_Pattern, tuple[Note, ...]]:
    found: dict[_Pattern, list[Note]] = {}
    for note in sorted(notes, key=lambda each: each.name):
        family = note.attribute.rpartition(".")[0] or (note.attribute if note.policy == "set" else "")
        if family and _can_be_case(note):
            found.setdefault(_Pattern(note.kind, note.person.casefold(), family), []).append(note)
    return {pattern: tuple(members) for pattern, members in found.items()}


def _can_be_case(note: Note) -> bool:
    """Return whether a rule may take the place of a note: it can say all of it in a line, and the note neither ends nor is pinned."""
    is_open = not (note.valid_from or note.valid_to or note.pinned)
    return note.level == "fact" and note.trust == "stated" and is_open and len(_line(note)) <= LONGEST_LINE


def _new_rule(pattern: _Pattern, supports: tuple[Note, ...], taken: frozenset[str]) -> Note:
    kept = supports[:MOST_SUPPORTS]
    return Note(
        name=name_of(pattern.kind, f"rule {pattern.attribute}", taken),
        kind=pattern.kind,
        about=_about(pattern.attribute, kept),
        body=_body(kept),
        backstory=_backstory(pattern.attribute, kept),
        person=kept[0].person,
        relationship=kept[0].relationship,
        when=max(kept, key=lambda note: time_of(note.when)).when,
        evidence=_evidence(kept),
        trust="stated",
        attribute=f"{pattern.attribute}{_RULE}",
        policy="set",
        level="rule",
        stands_for=tuple(note.name for note in kept),
        by="consolidate",
    )


def _about(family: str, supports: Sequence[Note]) -> str:
    return f"{family}: {'; '.join(note.about for note in supports)}"[:LONGEST_ABOUT].rstrip()


def _body(supports: Sequence[Note]) -> str:
    return "In the place of these notes:\n" + "".join(f"- {_line(note)} ({note.name})\n" for note in supports)


def _line(note: Note) -> str:
    """Return all that a case says, in one line."""
    body = " ".join(note.body.split())
    return body if body.casefold().startswith(note.about.casefold()) else f"{note.about}: {body}"


def _backstory(family: str, supports: Sequence[Note]) -> str:
    return f"Proposed by consolidation from {len(supports)} statements about {family}."


def _evidence(supports: Sequence[Note]) -> tuple[str, ...]:
    """The newest event of each support; the others are reached through the notes themselves."""
    return tuple(dict.fromkeys(note.evidence[-1] for note in supports))
