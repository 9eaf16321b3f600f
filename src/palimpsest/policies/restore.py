"""After a fold: brings back the files read last, the plan, the skills, the agents, the tools and the context of the session's start."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from palimpsest.audit.pins import same_path
from palimpsest.core.edits import Edit, Insert, Put
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.items import Text
from palimpsest.core.policy import Answer, Look, Plan, Proposal, Steps, Want, look
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.view import View
from palimpsest.policies.looking_back import Past, look_back
from palimpsest.policies.read_state import read_paths
from palimpsest.policies.restored import Restored, reminder, restored_in, without

FACTS = (
    ("plan", "The plan that was agreed on:"),
    ("skills", "Skills that were invoked before:"),
    ("agents", "Agents that work in the background:"),
    ("deferred_tools", "Tools that were found before and are at hand again:"),
)
START = "session_start"
WHY = "state that the fold took away"
_skills = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True)
class Restore:
    """The newest `files` within `total` tokens, and every fact that the world outside knows by its name; a skill has at most `skill`.

    A file of more than `each` is cut, or with `big="note"` only mentioned. `place` is the end of the view, or before what the user
    just said; then the context of the session's start comes first of all.
    """

    files: int = 5
    total: int = 50_000
    each: int = 5_000
    skill: int = 5_000
    big: Literal["cut", "note"] = "cut"
    lines: Literal["arrow", "tab"] = "arrow"
    place: Literal["end", "prompt"] = "end"
    name: str = "restore"
    moments: frozenset[Moment] = field(default=frozenset({"folded"}))
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """Looks at the files and facts as they are now."""
        return self._steps(situation)

    def _steps(self, situation: Situation) -> Steps:
        past = yield from look_back(situation.view.seq)
        there = restored_in(situation.view)
        room = _room(situation, past)
        found = yield from self._files(situation, past, there, min(room, self.total))
        room -= sum(_tokens(put, situation) for puts in found for put in puts if not there.newest(puts))
        for name, title in FACTS:
            told = yield from _look(Look(name, "fact"))
            for key, text in self._texts(name, told or _of_log(name, past), situation):
                put = reminder(f"{title}\n{key}\n{text}" if key else f"{title}\n{text}", f"{name} {key}".rstrip())
                size = _tokens(put, situation)
                if there.newest((put,)) or (not there.shows(text) and size <= room):
                    found.append([put])
                    room -= 0 if there.newest((put,)) else size
        start = yield from _look(Look(START, "fact"))
        return Proposal(self._edits(situation.view, there, found, reminder(start, START) if start else None), WHY)

    def _edits(self, view: View, there: Restored, found: Sequence[Sequence[Put]], start: Put | None) -> tuple[Edit, ...]:
        """Each thing once: what shows as it is now stays where it is, what shows otherwise goes."""
        everything = [*found, [start]] if start is not None else found
        new = [put for puts in found if not there.newest(puts) for put in puts]
        stated = [start] if start is not None and not there.newest((start,)) else []
        first = view.items[0].id if self.place == "prompt" and view.items else ""
        edits: list[Edit] = [*without(name for puts in everything for name in there.outdated(puts))]
        edits += [Insert(tuple(stated), first)] if stated and first else []
        new += stated if not first else []
        return (*edits, *((Insert(tuple(new), _prompt_of(view) if self.place == "prompt" else ""),) if new else ()))

    def _files(self, situation: Situation, past: Past, there: Restored, room: int) -> Generator[Want, Answer, list[list[Put]]]:
        found: list[list[Put]] = []
        visible = read_paths(situation.view)
        for path in past.paths[: self.files]:
            if any(same_path(path, each) for each in visible):
                continue
            text = yield from _look(Look(path))
            if text is None:
                continue
            name = f"file {path}"
            if self.big == "note" and _size(text, situation) > self.each:
                note = f"{path} was read before this point. It is too large to be shown again here; read it if you need it."
                found.append([reminder(note, name)])
                continue
            shown = self._numbered(_head(text, self.each, situation))
            asked = msgspec.json.encode({"file_path": path}).decode()
            puts = [reminder(f"The tool Read was called with this input: {asked}", name), reminder(f"It gave this result:\n{shown}", name)]
            if not there.newest(puts):
                size = _size(shown, situation)
                if size > room:
                    break
                room -= size
            found.append(puts)
        return found

    def _texts(self, name: str, text: str, situation: Situation) -> list[tuple[str, str]]:
        """What a fact tells, skill by skill with their names."""
        if name != "skills" or not text:
            return [("", text)] if text else []
        try:
            skills = _skills.decode(text)
        except msgspec.DecodeError:
            return [("", _head(text, self.skill, situation))]
        return [(skill, _head(body, self.skill, situation)) for skill, body in skills.items()]

    def _numbered(self, text: str) -> str:
        rows = text.split("\n")
        if self.lines == "tab":
            return "\n".join(f"{number}\t{row}" for number, row in enumerate(rows, 1))
        return "\n".join(f"{number:>6}→{row}" for number, row in enumerate(rows, 1))


def _look(want: Look) -> Generator[Want, Answer, str | None]:
    """What is there; what cannot be looked at is taken for not being there."""
    try:
        return (yield from look(want))
    except PalimpsestError:
        return None


def _of_log(name: str, past: Past) -> str:
    """What the log says where the world outside says nothing."""
    match name:
        case "plan":
            return past.plan
        case "skills":
            return msgspec.json.encode(dict(past.skills)).decode() if past.skills else ""
        case "agents":
            return "\n".join(past.agents)
        case _:
            return past.tools


def _room(situation: Situation, past: Past) -> int:
    """Half of what is left until the next compaction, which matters only in a small window; a fold of ours is not grown over again."""
    level = situation.budget.compact_at or situation.budget.block_at or situation.budget.window
    room = max(0, level - situation.used) // 2
    return room if past.freed is None else min(room, past.freed)


def _tokens(put: Put, situation: Situation) -> int:
    return situation.tokens.content(put.content)


def _size(text: str, situation: Situation) -> int:
    return situation.tokens.content(Text(text))


def _head(text: str, tokens: int, situation: Situation) -> str:
    """A text, or as much of its beginning as that many tokens hold, in whole lines where there are any."""
    size = _size(text, situation)
    if size <= tokens:
        return text
    cut = text[: len(text) * tokens // size]
    while _size(cut, situation) > tokens:
        cut = cut[: len(cut) * 9 // 10]
    line = cut.rfind("\n")
    return cut[:line] if line > len(cut) // 2 else cut


def _prompt_of(view: View) -> str:
    """The first item of what the user said last, if nothing came after it."""
    found = ""
    for item in reversed(view.items):
        if item.kind not in ("user", "steering"):
            break
        found = item.id
    return found
