"""After a fold under the profiles of Claude Code: files, plan, skills and agents that were in use are shown again."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from palimpsest.audit.pins import same_path
from palimpsest.audit.tools.calls import action_of, args_of, result_text
from palimpsest.core.edits import Edit, Insert, Mask, Put
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ChildEnded, ChildOpened, Event, ModelReplied, ToolReturned, ViewEdited
from palimpsest.core.items import Item, Text, ToolCall, ToolResult, Value, text_of
from palimpsest.core.pairs import answered_calls
from palimpsest.core.policy import Answer, EventSpan, Look, Plan, Proposal, Steps, Want, look, span
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.view import View, shown
from palimpsest.policies.fold.fold import rung

_PLANS = frozenset({"ExitPlanMode", "exit_plan_mode"})
_SKILLS = frozenset({"Skill", "skill"})
_SEARCHES = frozenset({"ToolSearch", "tool_search"})
_OPENING = 200
AGENTS = 10
_RUNG = rung().name
# So many events are looked at in one go, and at most so many times: what is older is not recent.
RUN = 250
RUNS = 8


class Past(Value, frozen=True):
    """Newest first: paths, the plan that was agreed on, skills with their texts, agents by session, and tools that were found.

    `freed` is how many tokens a fold without a model took away, if that is what happened last.
    """

    paths: tuple[str, ...] = ()
    plan: str = ""
    skills: tuple[tuple[str, str], ...] = ()
    agents: tuple[str, ...] = ()
    tools: str = ""
    freed: int | None = None


def look_back(tip: int) -> Generator[Want, Answer, Past]:
    """What happened along the way that leads to the tip, as far back as is looked at."""
    tally = _Tally(tip)
    last = tip
    for _ in range(RUNS):
        events = yield from span(EventSpan(max(0, last - RUN + 1), last))
        for event in reversed(events):
            tally.take(event)
        last -= RUN
        if last < 0:
            break
    agents = tuple(tally.agents.values())[:AGENTS]
    return Past(tuple(tally.paths), tally.plan, tuple(tally.skills.items()), agents, tally.tools, tally.freed)


class _Tally:
    """What is being gathered, from the newest event backwards; a call that failed did nothing."""

    def __init__(self, tip: int) -> None:
        self.paths: dict[str, None] = {}
        self.skills: dict[str, str] = {}
        self.agents: dict[str, str] = {}
        self.plan = ""
        self.tools = ""
        self.freed: int | None = None
        self._tip = self._next = tip
        self._results: dict[str, list[ToolResult]] = {}
        self._ended: dict[str, ChildEnded] = {}

    def take(self, event: Event) -> None:
        # What lies on a branch that was left is passed over: each event names the one before it.
        if event.seq != self._next:
            return
        self._next = event.parent
        match event.body:
            case ToolReturned(result=result):
                self._results.setdefault(result.call_id, []).append(result)
            case ModelReplied(parts=parts):
                for part in reversed(parts):
                    # Logs of 0.1.0 may have several calls with one id: the newest of them has the newest result.
                    if isinstance(part, ToolCall) and (results := self._results.get(part.call_id)) and not (result := results.pop(0)).error:
                        self._take_call(part, result)
            case ViewEdited(by=by) as edit if by == _RUNG and event.seq == self._tip:
                self.freed = max(0, edit.tokens_before - edit.tokens_after)
            case ChildEnded(session=session) as ended:
                self._ended.setdefault(session, ended)
            case ChildOpened(session=session, role=role):
                self.agents.setdefault(session, self._state(session, role))
            case _:
                pass

    def _take_call(self, call: ToolCall, result: ToolResult) -> None:
        if call.tool in _PLANS:
            self.plan = self.plan or str(args_of(call).get("plan") or "")
        elif call.tool in _SKILLS:
            args = args_of(call)
            name = str(args.get("skill") or args.get("name") or args.get("command") or "")
            self.skills.setdefault(name, result_text(result))
        elif call.tool in _SEARCHES:
            self.tools = self.tools or result_text(result)
        else:
            action = action_of(call)
            for touched in action.paths if action.kind in KNOWING else ():
                self.paths.setdefault(touched.path)

    def _state(self, session: str, role: str) -> str:
        ended = self._ended.get(session)
        who = f"{session} ({role})" if role else session
        if ended is None:
            return f"{who}: running"
        said = " ".join(ended.text[:_OPENING].split())
        return f"{who}: {ended.status}; the result is in its own session" + (f": {said}" if said else "")


# What a tool does that leaves the model knowing the content of a file.
KNOWING = frozenset({"read", "edit", "write"})


def known_paths(view: View) -> frozenset[str]:
    """The files whose content shows: what an unmasked result read, edited or wrote, without those that were forgotten."""
    return frozenset(path for _, path, result in _touches(view) if result.mask is None) - must_read_again(view)


def read_paths(view: View) -> frozenset[str]:
    """The files that an unmasked Read shows."""
    return frozenset(path for how, path, result in _touches(view) if how == "read" and result.mask is None)


def must_read_again(view: View) -> frozenset[str]:
    """The files that only masked Reads named: an edit of one has to wait until it was read again."""
    masked = frozenset(path for how, path, result in _touches(view) if how == "read" and result.mask is not None)
    return masked - read_paths(view)


def _touches(view: View) -> Iterator[tuple[str, str, Item]]:
    """How each call touched which path, and its result; a call that failed touched nothing."""
    calls = answered_calls(view.items)
    for item in view.items:
        if isinstance(item.content, ToolResult) and not item.content.error and item.id in calls:
            action = action_of(calls[item.id])
            if action.kind in KNOWING:
                yield from ((action.kind, touched.path, item) for touched in action.paths)


# The source of each thing that comes back: this and its name.
RESTORED = "restored "


@dataclass(frozen=True, slots=True)
class Restored:
    """The texts that show, and the copies that earlier folds brought back, by their source."""

    texts: tuple[str, ...]
    copies: dict[str, tuple[Item, ...]]

    def shows(self, text: str) -> bool:
        """Whether some item shows a text whole."""
        return bool(text.strip()) and any(text in each for each in self.texts)

    def newest(self, puts: Iterable[Put]) -> tuple[Item, ...]:
        """The copy that says the same as some pieces of one source; empty when there is none."""
        wanted = tuple(puts)
        copy = self.copies.get(wanted[0].source, ())[-len(wanted) :] if wanted else ()
        same = len(copy) == len(wanted) and all(item.content == put.content for item, put in zip(copy, wanted, strict=True))
        return copy if same else ()

    def outdated(self, puts: Iterable[Put]) -> tuple[str, ...]:
        """The items of a source that other pieces take the place of, or that stand there once more."""
        wanted = tuple(puts)
        stays = {item.id for item in self.newest(wanted)}
        return tuple(item.id for item in self.copies.get(wanted[0].source, ()) if item.id not in stays) if wanted else ()


def restored_in(view: View) -> Restored:
    """What the items of a view show."""
    texts: list[str] = []
    copies: dict[str, list[Item]] = {}
    for item in view.items:
        content = shown(item)
        if isinstance(content, ToolCall):
            texts += [value for value in args_of(content).values() if isinstance(value, str)]
        elif content is not None:
            texts.append(text_of(content))
        if item.kind == "reminder" and item.source.startswith(RESTORED) and item.mask is None:
            copies.setdefault(item.source, []).append(item)
    return Restored(tuple(texts), {source: tuple(items) for source, items in copies.items()})


def reminder(text: str, name: str) -> Put:
    """A text that comes back, in its frame and under its name."""
    return Put("reminder", Text(f"<system-reminder>\n{text}\n</system-reminder>"), f"{RESTORED}{name}")


def without(ids: Iterable[str]) -> tuple[Mask, ...]:
    """Hides copies that are out of date."""
    gone = tuple(ids)
    return (Mask(gone),) if gone else ()


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
