"""Abstraction: several facts of one person that share a pattern become one proposed rule, which stands as long as two of them do."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.memory.note import LONGEST_ABOUT, Note, NoteKind, name_of
from palimpsest.memory.weighing.importance import time_of

LEAST_SUPPORTS: Final = 3
LEAST_REMAINING: Final = 2
LEAST_SESSIONS: Final = 2
# Names and events that one rule cites; more would not fit into the head of its file.
MOST_SUPPORTS: Final = 10
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


def rule_steps(notes: Iterable[Note]) -> tuple[RuleStep, ...]:
    """Return the changes that make the rules of a scope follow from its facts. Doing it again with their result changes nothing.

    A pattern is structural: statements of the user about one person whose attributes lie in one family (`reply.length`, `reply.tone`), or
    several values of an attribute that may have many. Three of them, learned in at least two sessions, give a rule. A rule with fewer than
    two of its supports left is retracted; one that lost or won a support is written again from those it has.
    """
    active = {note.name: note for note in notes if note.status == "active"}
    groups = _groups(active.values())
    steps: list[RuleStep] = []
    ruled: set[_Pattern] = set()
    for rule in sorted((note for note in active.values() if note.level == "rule"), key=lambda note: note.name):
        pattern = _Pattern(rule.kind, rule.person.casefold(), rule.attribute.removesuffix(_RULE))
        ruled.add(pattern)
        supports = groups.get(pattern, ()) or tuple(active[name] for name in rule.stands_for if name in active)
        if len(supports) < LEAST_REMAINING:
            past = replace(rule, status="retracted")
            steps.append(RuleStep(f"{rule.name} has fewer than {LEAST_REMAINING} supports", (), (past,)))
        elif (written := written_again(rule, supports)) is not rule:
            steps.append(RuleStep(f"the supports of {rule.name} have changed", (written,)))
    for pattern, supports in sorted(groups.items()):
        sessions = {each.rpartition(":")[0] for note in supports for each in note.evidence}
        if pattern not in ruled and len(supports) >= LEAST_SUPPORTS and len(sessions) >= LEAST_SESSIONS:
            rule = _new_rule(pattern, supports, frozenset(active))
            active[rule.name] = rule
            steps.append(RuleStep(f"{len(supports)} facts of {len(sessions)} sessions share {pattern.attribute}", (rule,)))
    return tuple(steps)


def written_again(rule: Note, supports: Sequence[Note]) -> Note:
    """Return a rule as these supports state it, with nothing of others; the rule itself if they are the ones it has."""
    kept = tuple(supports[:MOST_SUPPORTS])
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
        if note.level == "fact" and note.trust == "stated" and family:
            found.setdefault(_Pattern(note.kind, note.person.casefold(), family), []).append(note)
    return {pattern: tuple(members) for pattern, members in found.items()}


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
    return "Proposed from what these notes have in common:\n" + "".join(f"- {note.about} ({note.name})\n" for note in supports)


def _backstory(family: str, supports: Sequence[Note]) -> str:
    return f"Proposed by consolidation from {len(supports)} statements about {family}."


def _evidence(supports: Sequence[Note]) -> tuple[str, ...]:
    """The newest event of each support; the others are reached through the notes themselves."""
    return tuple(dict.fromkeys(note.evidence[-1] for note in supports))
