"""Consolidation of notes without a model, with conflicts, importance, staleness, and rules made of several facts."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.memory.index_text import Words, are_of_two_things, claim_of, clusters, merged, near_duplicates, numbers_of
from palimpsest.memory.note import LONGEST_ABOUT, Note, NoteKind, is_by_hand, name_of, time_of

Reason: TypeAlias = Literal["corrected", "stated", "newer"]
NEAR_CONFLICT: Final = 0.5


class Settled(Value, frozen=True):
    """A conflict in which one note holds: the winner supersedes the loser, whose validity ends where the winner's begins."""

    winner: Note
    loser: Note
    reason: Reason


class Contested(Value, frozen=True):
    """A conflict that the notes themselves do not settle: both stay, and are shown together with their dates."""

    one: Note
    other: Note


Conflict: TypeAlias = Settled | Contested


class _Pair(NamedTuple):
    one: Note
    other: Note


def conflicts(notes: Iterable[Note], words: Words, corrections: frozenset[str] = frozenset()) -> tuple[Conflict, ...]:
    """Return the conflicts between active notes, each settled or contested. `corrections` are names of notes by which the user corrected.

    Two notes conflict if they give one attribute of one person, of which there is one value at a time, different values for overlapping
    times; or if they say nearly the same of one thing with other numbers. Notes about different persons never conflict.
    """
    active = sorted((note for note in notes if note.status == "active"), key=lambda note: note.name)
    return tuple(_settled(pair, corrections) for pair in _conflicting(active, words))


def supersede(winner: Note, loser: Note) -> tuple[Note, Note]:
    """Return both notes with their links: the winner names what it supersedes, and the loser by what and until when it held."""
    links = tuple(dict.fromkeys((*winner.supersedes, loser.revision)))
    until = winner.valid_from or winner.when
    ended = replace(loser, status="superseded", superseded_by=f"{winner.name}@{winner.rev + 1}", valid_to=loser.valid_to or until)
    return replace(winner, supersedes=links, rev=winner.rev + 1), ended


def begins_later(note: Note) -> bool:
    """Return whether a note states what holds only some time after it was said."""
    return bool(note.valid_from) and time_of(note.valid_from) > time_of(note.when)


def chain_of(note: Note, versions: Mapping[str, Note]) -> tuple[Note, ...]:
    """Return a note and what it superseded, newest first; `versions` are all notes by `name@rev`. Each version appears once."""
    found: dict[str, Note] = {}
    waiting = [note]
    while waiting:
        each = waiting.pop(0)
        if each.revision not in found:
            found[each.revision] = each
            waiting += [versions[name] for name in each.supersedes if name in versions]
    return tuple(sorted(found.values(), key=lambda each: (time_of(each.when), each.rev), reverse=True))


def _conflicting(active: list[Note], words: Words) -> Iterator[_Pair]:
    by_attribute: dict[tuple[str, str], list[Note]] = {}
    for note in active:
        if note.attribute and note.policy != "set":
            by_attribute.setdefault((note.person.casefold(), note.attribute), []).append(note)
    seen: set[tuple[str, str]] = set()
    for group in by_attribute.values():
        for place, one in enumerate(group):
            for other in group[place + 1 :]:
                if claim_of(one)[3] != claim_of(other)[3] and _overlaps(one, other):
                    seen.add((one.name, other.name))
                    yield _Pair(one, other)
    by_name = {note.name: note for note in active}
    for name, others in near_duplicates(active, words, NEAR_CONFLICT).items():
        for other_name in sorted(others):
            one, other = by_name[name], by_name[other_name]
            is_new = name < other_name and (name, other_name) not in seen
            differs = one.attribute == other.attribute and numbers_of(one) != numbers_of(other) and _overlaps(one, other)
            if is_new and differs and one.policy != "set" and not are_of_two_things(one, other, words):
                yield _Pair(one, other)


def _settled(pair: _Pair, corrections: frozenset[str]) -> Conflict:
    one, other = pair
    by_correction = (one.name in corrections) - (other.name in corrections)
    by_trust = (one.trust == "stated") - (other.trust == "stated")
    by_time = _compare(one, other)
    rules: tuple[tuple[int, Reason], ...] = ((by_correction, "corrected"), (by_trust, "stated"), (by_time, "newer"))
    for difference, reason in rules:
        if difference:
            winner, loser = (one, other) if difference > 0 else (other, one)
            return Settled(winner, loser, reason)
    return Contested(one, other)


def _compare(one: Note, other: Note) -> int:
    first, second = time_of(one.when), time_of(other.when)
    return (first > second) - (first < second)


def _overlaps(one: Note, other: Note) -> bool:
    """Whether there is a time at which both hold; an open end holds always."""
    ends_before = bool(one.valid_to and other.valid_from and time_of(one.valid_to) <= time_of(other.valid_from))
    starts_after = bool(other.valid_to and one.valid_from and time_of(other.valid_to) <= time_of(one.valid_from))
    return not ends_before and not starts_after


_DAY_SECONDS: Final = 86_400.0


class Weighing(Value, frozen=True):
    """The weights of the four factors, which add up to 1, half-lives in days by kind, and the bound below which a note is compressible."""

    uses: float = 0.35
    age: float = 0.30
    intensity: float = 0.15
    uniqueness: float = 0.20
    uses_scale: float = 3.0
    compressible_below: float = 0.35
    user_days: float = 365.0
    feedback_days: float = 365.0
    project_days: float = 60.0
    reference_days: float = 180.0

    def half_life(self, kind: NoteKind) -> float:
        """Return the half-life of a kind, in days."""
        match kind:
            case "user":
                return self.user_days
            case "feedback":
                return self.feedback_days
            case "project":
                return self.project_days
            case "reference":
                return self.reference_days


DEFAULT_WEIGHING: Final = Weighing()


def importance(note: Note, now: datetime, near_duplicates: int, weighing: Weighing = DEFAULT_WEIGHING) -> float:
    """Return the importance of a note at a time, from 0 to 1. `near_duplicates` counts other active notes that say nearly the same."""
    age = max(0.0, (now - newest_time(note)).total_seconds() / _DAY_SECONDS)
    return (
        weighing.uses * (1 - math.exp(-note.uses / weighing.uses_scale))
        + weighing.age * 2 ** (-age / weighing.half_life(note.kind))
        + weighing.intensity * note.intensity
        + weighing.uniqueness / (1 + near_duplicates)
    )


def is_compressible(note: Note, now: datetime, near_duplicates: int, weighing: Weighing = DEFAULT_WEIGHING) -> bool:
    """Return whether a note may be replaced by one that stands for it; a pinned one never."""
    return not note.pinned and importance(note, now, near_duplicates, weighing) < weighing.compressible_below


def newest_time(note: Note) -> datetime:
    """Return the time of the newest evidence or of the last use, whichever is later."""
    return max(time_of(note.when), time_of(note.last_used) if note.last_used else datetime.min.replace(tzinfo=UTC))


DIGEST_CHARACTERS: Final = 12
# What a stale note loses of its score: more than importance, use and age can give, less than a matching word.
STALE_LOSS: Final = 1.0
Digest: TypeAlias = Callable[[str], str]
"""Returns the beginning of the SHA-256 of a file's bytes as they are now, by its path in the project; empty if there is no such file."""
HasCommit: TypeAlias = Callable[[str], bool]
"""Returns whether the repository of the project has a commit."""


class CitedFile(Value, frozen=True):
    """A file that a note is about: what the note says was true of these bytes. `commit` is empty if it was not known."""

    path: str
    digest: str
    commit: str = ""

    @property
    def text(self) -> str:
        """The file as the field `files` of a note names it."""
        return f"{self.path}@{self.digest}" + (f"@{self.commit}" if self.commit else "")


def cited_files(note: Note) -> tuple[CitedFile, ...]:
    """Return the files that a note cites; what is no `path@digest@commit` is left out. A path may contain `@`."""
    found = []
    for each in note.files:
        parts = each.split("@")
        last = (
            len(parts) - 1
            if len(parts) > 1 and _is_digest(parts[-1]) and not (len(parts) > 2 and _is_digest(parts[-2]))
            else len(parts) - 2
        )
        if last >= 1 and _is_digest(parts[last]):
            found.append(CitedFile("@".join(parts[:last]), parts[last], "@".join(parts[last + 1 :])))
    return tuple(found)


def changed_paths(note: Note, digest: Digest, has_commit: HasCommit) -> tuple[str, ...]:
    """Return the paths of cited files that have other bytes now, that are gone, or whose commit is gone."""
    return tuple(
        cited.path
        for cited in cited_files(note)
        if digest(cited.path) != cited.digest or (bool(cited.commit) and not has_commit(cited.commit))
    )


def _is_digest(text: str) -> bool:
    return len(text) == DIGEST_CHARACTERS and all(letter in "0123456789abcdef" for letter in text)


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
    return note.level == "fact" and note.trust == "stated" and is_open and len(_case_line(note)) <= LONGEST_LINE


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
    return "In the place of these notes:\n" + "".join(f"- {_case_line(note)} ({note.name})\n" for note in supports)


def _case_line(note: Note) -> str:
    """Return all that a case says, in one line."""
    body = " ".join(note.body.split())
    return body if body.casefold().startswith(note.about.casefold()) else f"{note.about}: {body}"


def _backstory(family: str, supports: Sequence[Note]) -> str:
    return f"Proposed by consolidation from {len(supports)} statements about {family}."


def _evidence(supports: Sequence[Note]) -> tuple[str, ...]:
    """The newest event of each support; the others are reached through the notes themselves."""
    return tuple(dict.fromkeys(note.evidence[-1] for note in supports))


UNUSED_DAYS: Final = 90


class ConsolidationStep(Value, frozen=True):
    """One change that consolidation makes: the notes it writes, those that leave as they are then, and why."""

    why: str
    saved: tuple[Note, ...] = ()
    past: tuple[Note, ...] = ()


class Consolidated(Value, frozen=True):
    """The steps of a consolidation in order, the active notes after it by name, and the pairs that only the user can settle."""

    steps: tuple[ConsolidationStep, ...]
    notes: Mapping[str, Note]
    contested: tuple[tuple[str, str], ...] = ()


def consolidate(
    notes: Iterable[Note],
    now: datetime,
    words: Words,
    *,
    corrections: frozenset[str] = frozenset(),
    weighing: Weighing = DEFAULT_WEIGHING,
) -> Consolidated:
    """Return the steps that make the notes of a scope consistent. Doing it again with their result changes nothing.

    `words` returns the stemmed content words of a text; `corrections` are names of notes by which the user corrected another.
    """
    active = {note.name: note for note in notes if note.status == "active"}
    steps: list[ConsolidationStep] = []

    def take(step: ConsolidationStep) -> None:
        for note in step.past:
            active.pop(note.name, None)
        active.update((note.name, note) for note in step.saved)
        steps.append(step)

    for step in _merges(active.values()):
        take(step)
    contested = _settle(active, words, corrections, take)
    for step in expiries(active.values(), now, words, weighing):
        take(step)
    for step in _clusterings(active.values(), now, words, weighing):
        take(step)
    return Consolidated(tuple(steps), dict(active), contested)


def _merges(active: Iterable[Note]) -> list[ConsolidationStep]:
    groups: dict[tuple[str, ...], list[Note]] = {}
    for note in sorted(active, key=lambda each: each.name):
        groups.setdefault(claim_of(note), []).append(note)
    steps = []
    for group in groups.values():
        if len(group) > 1:
            kept = merged(group)
            gone = [note for note in group if note.name != kept.name]
            kept = replace(kept, rev=kept.rev + 1, supersedes=tuple(dict.fromkeys((*kept.supersedes, *(note.revision for note in gone)))))
            past = tuple(replace(note, status="superseded", superseded_by=kept.revision) for note in gone)
            steps.append(ConsolidationStep(f"{len(group)} notes say the same", (kept,), past))
    return steps


def _settle(
    active: dict[str, Note], words: Words, corrections: frozenset[str], take: Callable[[ConsolidationStep], None]
) -> tuple[tuple[str, str], ...]:
    """Settle conflicts one after the other, for a note that lost one has no part in the next. Returns the contested pairs."""
    contested: list[tuple[str, str]] = []
    for conflict in conflicts(active.values(), words, corrections):
        if isinstance(conflict, Contested):
            if conflict.one.name in active and conflict.other.name in active:
                contested.append((conflict.one.name, conflict.other.name))
            continue
        winner, loser = active.get(conflict.winner.name), active.get(conflict.loser.name)
        if winner is not None and loser is not None and begins_later(winner):
            ending = replace(loser, valid_to=winner.valid_from, rev=loser.rev + 1)
            take(ConsolidationStep(f"{loser.name} holds until {winner.name} does: {conflict.reason}", (ending,), ()))
        elif winner is not None and loser is not None:
            saved, past = supersede(winner, loser)
            take(ConsolidationStep(f"{winner.name} holds against {loser.name}: {conflict.reason}", (saved,), (past,)))
    return tuple(pair for pair in contested if pair[0] in active and pair[1] in active)


def expiries(active: Iterable[Note], now: datetime, words: Words, weighing: Weighing = DEFAULT_WEIGHING) -> list[ConsolidationStep]:
    """Retire notes that nothing used for 90 days and that weigh little. One whose validity is over stays, and is recalled as history.

    The least important goes first: the last of several that say nearly the same is unique again.
    """
    steps, gone = [], set[str]()
    listed = list(active)
    near = near_duplicates(listed, words)
    for note in sorted(listed, key=lambda each: (importance(each, now, len(near[each.name]), weighing), each.name)):
        unused = now - newest_time(note) > timedelta(days=UNUSED_DAYS)
        if unused and is_compressible(note, now, len(near[note.name] - gone), weighing):
            gone.add(note.name)
            steps.append(ConsolidationStep(f"{note.name} was not used for {UNUSED_DAYS} days", (), (replace(note, status="superseded"),)))
    return steps


def _clusterings(active: Iterable[Note], now: datetime, words: Words, weighing: Weighing) -> list[ConsolidationStep]:
    listed = list(active)
    near = near_duplicates(listed, words)

    steps = []
    for cluster in clusters(listed, near, words):
        leaving = tuple(note for note in cluster.members if is_compressible(note, now, len(near[note.name]), weighing))
        standing = replace(cluster, members=leaving).standing_for_all() if leaving else cluster.representative
        if leaving:
            past = tuple(replace(note, status="superseded", superseded_by=f"{standing.name}@{standing.rev + 1}") for note in leaving)
            steps.append(
                ConsolidationStep(f"{standing.name} stands for {len(leaving)} notes", (replace(standing, rev=standing.rev + 1),), past)
            )
    return steps
