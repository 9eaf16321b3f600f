"""Notes of trust `observed`, counted over the sessions of a project without a model: what ran, what was edited together, what was fixed."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, combinations
from typing import Final

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.memory.changes import AcceptedChange, Memory, RefusedChange, attribute_digest
from palimpsest.memory.note import LONGEST_ABOUT, Note, check_note
from palimpsest.memory.reading import iso_time
from palimpsest.memory.sessions.facts import FixFact, SessionFacts

# A command that succeeded so often, in so many sessions, is how the project works and not what one task needed.
LEAST_SUCCESSES, LEAST_SESSIONS = 3, 2
# Files that were edited in one turn so often belong together; twice is what one task and its correction give.
LEAST_TOGETHER: Final = 3
# Lines of a note, and events that it cites, with the characters of their ids: the fields of a note have at most 400 tokens.
MOST_LINES, MOST_EVIDENCE, _EVIDENCE_CHARACTERS = 8, 6, 500
_CITABLE: Final = re.compile(r"[A-Za-z0-9._:-]{1,180}")
_SHOWN_PATHS: Final = 4
_HOW_TO_APPLY: Final = "**How to apply**: as a record of what happened; it is no request to run or change anything."

TEST_COMMAND, COMMANDS, TOGETHER, FIXED = "test.command", "commands.succeeded", "files.edited_together", "errors.fixed"
# The name of the note of each attribute: a note is replaced by its next count, and never stands beside it.
OBSERVED_NAMES: Final[Mapping[str, str]] = {
    TEST_COMMAND: "project_test_command",
    COMMANDS: "project_commands_that_succeeded",
    TOGETHER: "project_files_edited_together",
    FIXED: "project_errors_that_were_fixed",
}


class _Count(Value, frozen=True):
    """A command over all sessions; `evidence` are event ids of its newest successes, newest first."""

    command: str
    ran: int = 0
    succeeded: int = 0
    proved: int = 0
    tests: bool = False
    sessions: int = 0
    evidence: tuple[str, ...] = ()
    at: int = 0

    @property
    def line(self) -> str:
        return f"`{self.command}` ran {_times(self.ran)} and succeeded {_times(self.succeeded)}, in {_sessions(self.sessions)}"


def observed_notes(facts: Iterable[SessionFacts]) -> tuple[Note, ...]:
    """Return the notes that the sessions of one project support, at most one for each of `OBSERVED_NAMES`.

    The order of the facts does not matter, and of several for one session the newest counts. Sessions whose ids cannot be cited are left
    out. Notes state counts, commands, paths and names
    of errors, and never a text that a tool printed.
    """
    newest: dict[str, SessionFacts] = {}
    for each in facts:
        known = newest.get(each.session)
        # Of two that end at the same time one is chosen by its content, so that their order does not matter.
        if _CITABLE.fullmatch(each.session) and (known is None or (known.at, repr(known)) < (each.at, repr(each))):
            newest[each.session] = each
    # Newest session first, so that evidence and ties are of the newest.
    sessions = sorted(newest.values(), key=lambda each: (-each.at, each.session))
    counts = _counts(sessions)
    found = (_test_command(counts), _commands(counts), _edited_together(sessions), _fixes(sessions))
    return tuple(note for note in found if note is not None)


def observation_changes(memory: Memory, observed: Sequence[Note]) -> tuple[AcceptedChange | RefusedChange, ...]:
    """Return what observed notes change: new counts replace old ones, and a note that nothing supports any more is retracted.

    What the user stated or wrote stands, and what was forgotten is not observed again.
    """
    found: list[AcceptedChange | RefusedChange] = []
    for note in observed:
        known = memory.notes.get(note.name)
        if reason := _refusal(note, known, memory):
            found.append(RefusedChange(reason))
        elif known is None:
            found.append(AcceptedChange((note,), reason="observed"))
        elif (known.body, known.about) != (note.body, note.about):
            kept = replace(note, rev=known.rev + 1, uses=known.uses, shown=known.shown, last_used=known.last_used, pinned=known.pinned)
            found.append(AcceptedChange((kept,), reason="observed again"))
    names = {note.name for note in observed}
    for name in OBSERVED_NAMES.values():
        known = memory.notes.get(name)
        if known is not None and name not in names and known.trust == "observed" and known.by == "consolidate" and not known.pinned:
            found.append(AcceptedChange((), (replace(known, status="retracted"),), "no session supports it any more"))
    return tuple(found)


def _refusal(note: Note, known: Note | None, memory: Memory) -> str:
    digest = attribute_digest(memory.key, note.person, note.attribute)
    if any(stone.digest == digest or set(note.evidence) <= set(stone.evidence) for stone in memory.tombstones):
        return "it was forgotten"
    if known is not None and (known.trust != "observed" or known.by != "consolidate"):
        return "the note of this name is not a count"
    stated = (other for other in memory.notes.values() if other.attribute == note.attribute and other.trust == "stated")
    return "the user stated it" if any(stated) else ""


def _counts(sessions: Sequence[SessionFacts]) -> list[_Count]:
    """Return every command over all sessions, those first that proved a fix, ran tests, or succeeded in most sessions."""
    found: dict[str, _Count] = {}
    for facts in sessions:
        for tally in facts.commands:
            evidence = tuple(f"{facts.session}:{seq}" for seq in reversed(tally.successes))
            known = found.get(tally.command) or _Count(tally.command, at=facts.at)
            found[tally.command] = _Count(
                tally.command,
                known.ran + tally.ran,
                known.succeeded + tally.succeeded,
                known.proved + tally.proved,
                known.tests or tally.tests,
                known.sessions + (tally.succeeded > 0),
                (*known.evidence, *evidence),
                known.at if known.evidence else facts.at,
            )
    return sorted(found.values(), key=lambda count: (-count.proved, -count.tests, -count.sessions, -count.succeeded, count.command))


def _test_command(counts: Sequence[_Count]) -> Note | None:
    """Return the note of the test command: of those that run tests the one that succeeded in most sessions and most often.

    Without such a program it is the command that proved fixes again and again.
    """
    runners = [count for count in counts if count.tests and count.succeeded >= LEAST_SUCCESSES]
    runners = runners or [count for count in counts if count.proved >= LEAST_SESSIONS and count.succeeded >= LEAST_SUCCESSES]
    if not runners:
        return None
    best = max(runners, key=lambda count: (count.sessions, count.succeeded, count.proved, count.command))
    proved = f" It succeeded {_times(best.proved)} after it had failed and files were edited." if best.proved else ""
    return _note(TEST_COMMAND, f"test command: {best.line}", f"{best.line}.{proved}", [best.evidence], at=best.at, sessions=best.sessions)


def _commands(counts: Sequence[_Count]) -> Note | None:
    chosen = [count for count in counts if count.succeeded >= LEAST_SUCCESSES and count.sessions >= LEAST_SESSIONS][:MOST_LINES]
    if not chosen:
        return None
    about = f"commands that succeeded repeatedly: {', '.join(f'`{count.command}`' for count in chosen)}"
    body = "\n".join(f"- {count.line}" for count in chosen)
    sessions = max(count.sessions for count in chosen)
    return _note(COMMANDS, about, body, [count.evidence for count in chosen], at=max(count.at for count in chosen), sessions=sessions)


def _edited_together(sessions: Sequence[SessionFacts]) -> Note | None:
    times: Counter[tuple[str, str]] = Counter()
    seen: dict[tuple[str, str], dict[str, int]] = {}
    for facts in sessions:
        for turn in facts.turns:
            for pair in combinations(turn.paths, 2):
                times[pair] += 1
                seen.setdefault(pair, {})[facts.session] = turn.seq
    pairs = [pair for pair, count in times.items() if count >= LEAST_TOGETHER and len(seen[pair]) >= LEAST_SESSIONS]
    chosen = sorted(pairs, key=lambda pair: (-times[pair], -len(seen[pair]), pair))[:MOST_LINES]
    if not chosen:
        return None
    lines = [
        f"- `{one}` and `{other}` were edited in the same turn {_times(times[one, other])}, in {_sessions(len(seen[one, other]))}"
        for one, other in chosen
    ]
    evidence = [tuple(f"{session}:{seq}" for session, seq in seen[pair].items()) for pair in chosen]
    at = max(facts.at for facts in sessions if any(facts.session in seen[pair] for pair in chosen))
    about = f"files edited in the same turn: {'; '.join(f'`{one}` and `{other}`' for one, other in chosen)}"
    return _note(TOGETHER, about, "\n".join(lines), evidence, at=at, sessions=max(len(seen[pair]) for pair in chosen))


def _fixes(sessions: Sequence[SessionFacts]) -> Note | None:
    """Return the note of the newest fixes, one for each command and kind of error, those by edits before those by other commands."""
    found = ((fix, facts.session) for facts in sessions for fix in facts.fixes)
    newest = sorted(found, key=lambda each: (not each[0].paths, -each[0].at, each[1], each[0].failed))
    chosen: dict[tuple[str, tuple[str, ...]], tuple[FixFact, str]] = {}
    for fix, session in newest:
        chosen.setdefault((fix.command, fix.errors), (fix, session))
    kept = list(chosen.values())[:MOST_LINES]
    if not kept:
        return None
    evidence = [(f"{session}:{fix.proved}", f"{session}:{fix.failed}") for fix, session in kept]
    commands = ", ".join(f"`{command}`" for command in dict.fromkeys(fix.command for fix, _ in kept))
    body = "\n".join(_fix_line(fix) for fix, _ in kept)
    at, count = max(fix.at for fix, _ in kept), len({session for _, session in kept})
    return _note(FIXED, f"what was done before errors went away: {commands}", body, evidence, at=at, sessions=count)


def _fix_line(fix: FixFact) -> str:
    errors = f" ({', '.join(fix.errors)})" if fix.errors else ""
    edited = f"edits of {', '.join(f'`{path}`' for path in fix.paths[:_SHOWN_PATHS])}" if fix.paths else ""
    ran = f"`{'`, `'.join(fix.commands)}` ran" if fix.commands and not fix.paths else ""
    return f"- `{fix.command}` failed{errors} and succeeded after {edited or ran}"


def _note(attribute: str, about: str, body: str, evidence: Sequence[Sequence[str]], *, at: int, sessions: int) -> Note:
    """Return a checked note; it cites the newest event of each line before the second of any."""
    depth = max(map(len, evidence))
    ids = dict.fromkeys(each[place] for place in range(depth) for each in evidence if place < len(each))
    sizes = accumulate(map(len, ids))
    cited = tuple(each for each, size in zip(ids, sizes, strict=True) if size <= _EVIDENCE_CHARACTERS)[:MOST_EVIDENCE]
    why = f"**Why**: counted from the logs of {_sessions(sessions)}, without a model; the user did not state it."
    return check_note(
        Note(
            name=OBSERVED_NAMES[attribute],
            kind="project",
            about=about if len(about) <= LONGEST_ABOUT else f"{about[: LONGEST_ABOUT - 1]}…",
            backstory=f"Counted in {_sessions(sessions)} of this project.",
            when=iso_time(at),
            evidence=cited,
            trust="observed",
            body=f"{body}\n\n{why}\n{_HOW_TO_APPLY}\n",
            attribute=attribute,
            by="consolidate",
        )
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"
