"""Claude Code's restoration after a fold: shows files, plan, skills, agents and tools again that were in use."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from palimpsest.audit.pins import same_path
from palimpsest.audit.tools.calls import action_of, args_of, operation_of, result_text
from palimpsest.audit.tools.working_state import CONTENT_ACTIONS, RESTORED, read_paths
from palimpsest.core.edits import Edit, Insert, Mask, Put
from palimpsest.core.events import ChildEnded, ChildOpened, Event, ModelReplied, ToolReturned, ViewEdited
from palimpsest.core.format.tags import within
from palimpsest.core.items import Item, Text, ToolCall, ToolResult, Value, text_of
from palimpsest.core.policy import Answer, EventSpan, Look, Plan, Proposal, Steps, Want, look_or_none, span
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.view import View, shown
from palimpsest.policies.fold.fold import model_free_fallback

_AGENT_RESULT_CHARS = 200
AGENTS = 10
_FALLBACK = model_free_fallback().name
# Events are read from the newest backwards, in spans of this many and at most this many spans; older ones are not recent.
SPAN_EVENTS = 250
SPANS = 8


class RecentWork(Value, frozen=True):
    """What was in use before a fold, newest first.

    paths: files that were read, edited or written.
    plan: the plan that the user approved.
    skills: names and texts of invoked skills.
    agents: one line on each sub-agent.
    tools: the result of the last tool search.
    freed: tokens that a fold without a model freed, if such a fold is the newest event.
    """

    paths: tuple[str, ...] = ()
    plan: str = ""
    skills: tuple[tuple[str, str], ...] = ()
    agents: tuple[str, ...] = ()
    tools: str = ""
    freed: int | None = None


def recent_work(tip: int) -> Generator[Want, Answer, RecentWork]:
    """Read the newest 2,000 events on the path to the tip and return what was in use."""
    scan = _RecentWorkScan(tip)
    last = tip
    for _ in range(SPANS):
        events = yield from span(EventSpan(max(0, last - SPAN_EVENTS + 1), last))
        for event in reversed(events):
            scan.take(event)
        last -= SPAN_EVENTS
        if last < 0:
            break
    agents = tuple(scan.agents.values())[:AGENTS]
    return RecentWork(tuple(scan.paths), scan.plan, tuple(scan.skills.items()), agents, scan.tools, scan.freed)


class _RecentWorkScan:
    """Collects what was in use from events, newest first; calls that failed do not count."""

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
        # Events on abandoned branches are skipped: each event names its parent.
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
            case ViewEdited(by=by) as edit if by == _FALLBACK and event.seq == self._tip:
                self.freed = max(0, edit.tokens_before - edit.tokens_after)
            case ChildEnded(session=session) as ended:
                self._ended.setdefault(session, ended)
            case ChildOpened(session=session, role=role):
                self.agents.setdefault(session, self._agent_line(session, role))
            case _:
                pass

    def _take_call(self, call: ToolCall, result: ToolResult) -> None:
        match operation_of(call):
            case "plan":
                self.plan = self.plan or str(args_of(call).get("plan") or "")
            case "skill":
                args = args_of(call)
                name = str(args.get("skill") or args.get("name") or args.get("command") or "")
                self.skills.setdefault(name, result_text(result))
            case "tool_search":
                self.tools = self.tools or result_text(result)
            case _:
                action = action_of(call)
                for touched in action.paths if action.kind in CONTENT_ACTIONS else ():
                    self.paths.setdefault(touched.path)

    def _agent_line(self, session: str, role: str) -> str:
        ended = self._ended.get(session)
        agent = f"{session} ({role})" if role else session
        if ended is None:
            return f"{agent}: running"
        result = " ".join(ended.text[:_AGENT_RESULT_CHARS].split())
        return f"{agent}: {ended.status}; the result is in its own session" + (f": {result}" if result else "")


@dataclass(frozen=True, slots=True)
class VisibleTexts:
    """The texts of the visible items, and the items that earlier folds restored, by source."""

    texts: tuple[str, ...]
    copies: dict[str, tuple[Item, ...]]

    def shows(self, text: str) -> bool:
        """Return whether a visible item contains the whole text."""
        return bool(text.strip()) and any(text in visible for visible in self.texts)

    def current_copy(self, puts: Iterable[Put]) -> tuple[Item, ...]:
        """Return the visible items with the same content as the given pieces of one source; empty if there are none."""
        wanted = tuple(puts)
        copy = self.copies.get(wanted[0].source, ())[-len(wanted) :] if wanted else ()
        is_current = len(copy) == len(wanted) and all(item.content == put.content for item, put in zip(copy, wanted, strict=True))
        return copy if is_current else ()

    def outdated_ids(self, puts: Iterable[Put]) -> tuple[str, ...]:
        """Return the ids of restored items of that source which differ from the given pieces or repeat them."""
        wanted = tuple(puts)
        current = {item.id for item in self.current_copy(wanted)}
        return tuple(item.id for item in self.copies.get(wanted[0].source, ()) if item.id not in current) if wanted else ()


def visible_texts(view: View) -> VisibleTexts:
    """Return the visible texts of a view."""
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
    return VisibleTexts(tuple(texts), {source: tuple(items) for source, items in copies.items()})


def reminder(text: str, name: str) -> Put:
    """Return a text as a system reminder whose source is the prefix and the name."""
    return Put("reminder", Text(within("system-reminder", text)), f"{RESTORED}{name}")


def hide(ids: Iterable[str]) -> tuple[Mask, ...]:
    """Return the mask that hides the given items; empty if there are none."""
    hidden = tuple(ids)
    return (Mask(hidden),) if hidden else ()


FACTS = (
    ("plan", "The plan that was agreed on:"),
    ("skills", "Skills that were invoked before:"),
    ("agents", "Agents that work in the background:"),
    ("deferred_tools", "Tools that were found before and are at hand again:"),
)
START = "session_start"
# Tokens. A shorter beginning of a file is not worth its frame; the second is what the sentence about a cut needs.
_LEAST_CUT = 1_000
_CUT_NOTE_TOKENS = 100
WHY = "state that the fold removed"
_skills = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True)
class Restore:
    """Shows files and facts again after a fold.

    files, total_tokens: the newest files, at most this many and within this many tokens. The first that does not fit is cut, and says so.
    file_tokens: tokens above which a file is only mentioned, with `large_files="note"`.
    skill_tokens: tokens above which the text of a skill is cut, and says so.
    numbering: separator between line number and text.
    place: the end of the view, or before the newest user message; the context of the session start then comes first in the view.
    """

    files: int = 5
    total_tokens: int = 50_000
    file_tokens: int = 5_000
    skill_tokens: int = 5_000
    large_files: Literal["whole", "note"] = "whole"
    numbering: Literal["arrow", "tab"] = "arrow"
    place: Literal["end", "prompt"] = "end"
    name: str = "restore"
    moments: frozenset[Moment] = field(default=frozenset({"folded"}))
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """Plan to read files and facts as they are now and insert them."""
        return self._steps(situation)

    def _steps(self, situation: Situation) -> Steps:
        recent = yield from recent_work(situation.view.seq)
        visible_now = visible_texts(situation.view)
        room = _room(situation, recent)
        restored = yield from self._files(situation, recent, visible_now, min(room, self.total_tokens))
        room -= sum(_tokens(put, situation) for puts in restored for put in puts if not visible_now.current_copy(puts))
        for name, title in FACTS:
            current = yield from look_or_none(Look(name, "fact"))
            for key, text in self._texts(name, current or _from_log(name, recent), situation):
                put = reminder(f"{title}\n{key}\n{text}" if key else f"{title}\n{text}", f"{name} {key}".rstrip())
                size = _tokens(put, situation)
                if visible_now.current_copy((put,)) or (not visible_now.shows(text) and size <= room):
                    restored.append([put])
                    room -= 0 if visible_now.current_copy((put,)) else size
        start = yield from look_or_none(Look(START, "fact"))
        return Proposal(self._edits(situation.view, visible_now, restored, reminder(start, START) if start else None), WHY)

    def _edits(self, view: View, visible_now: VisibleTexts, restored: Sequence[Sequence[Put]], start: Put | None) -> tuple[Edit, ...]:
        """Return the edits that show each piece once: current copies stay, outdated ones are hidden, and the others are inserted."""
        everything = [*restored, [start]] if start is not None else restored
        new = [put for puts in restored if not visible_now.current_copy(puts) for put in puts]
        new_start = [start] if start is not None and not visible_now.current_copy((start,)) else []
        first = view.items[0].id if self.place == "prompt" and view.items else ""
        edits: list[Edit] = [*hide(item_id for puts in everything for item_id in visible_now.outdated_ids(puts))]
        edits += [Insert(tuple(new_start), first)] if new_start and first else []
        new += new_start if not first else []
        return (*edits, *((Insert(tuple(new), _newest_user_message(view) if self.place == "prompt" else ""),) if new else ()))

    def _files(
        self, situation: Situation, recent: RecentWork, visible_now: VisibleTexts, room: int
    ) -> Generator[Want, Answer, list[list[Put]]]:
        found: list[list[Put]] = []
        visible = read_paths(situation.view)
        for path in recent.paths[: self.files]:
            if any(same_path(path, shown_path) for shown_path in visible):
                continue
            text = yield from look_or_none(Look(path))
            if text is None:
                continue
            name = f"file {path}"
            if self.large_files == "note" and _size(text, situation) > self.file_tokens:
                note = f"{path} was read before this point. It is too large to be shown again here; read it if you need it."
                found.append([reminder(note, name)])
                continue
            shown = self._numbered(text)
            if visible_now.current_copy(puts := _as_read(path, name, shown)):
                found.append(puts)
                continue
            size = _size(shown, situation)
            if size <= room:
                found.append(puts)
                room -= size
                continue
            if room >= _LEAST_CUT:
                found.append(_as_read(path, name, _cut_file(path, shown, room, situation)))
            break
        return found

    def _texts(self, name: str, text: str, situation: Situation) -> list[tuple[str, str]]:
        """Return the texts of a fact with a name for each: one without a name, or one for each skill."""
        if name != "skills" or not text:
            return [("", text)] if text else []
        try:
            skills = _skills.decode(text)
        except msgspec.DecodeError:
            return [("", _cut_skill(text, self.skill_tokens, situation))]
        return [(skill, _cut_skill(body, self.skill_tokens, situation)) for skill, body in skills.items()]

    def _numbered(self, text: str) -> str:
        rows = text.split("\n")
        if self.numbering == "tab":
            return "\n".join(f"{number}\t{row}" for number, row in enumerate(rows, 1))
        return "\n".join(f"{number:>6}→{row}" for number, row in enumerate(rows, 1))


def _as_read(path: str, name: str, shown: str) -> list[Put]:
    arguments = msgspec.json.encode({"file_path": path}).decode()
    return [
        reminder(f"The tool Read was called with this input: {arguments}", name),
        reminder(f"It gave this result:\n{shown}", name),
    ]


def _cut_file(path: str, shown: str, room: int, situation: Situation) -> str:
    """The numbered lines of a file that fit, and what says how many they are and how to go on."""
    kept = _head(shown, room - _CUT_NOTE_TOKENS, situation)
    rows, total = kept.count("\n") + 1, shown.count("\n") + 1
    # The last row may be cut itself.
    whole = rows if shown.startswith(f"{kept}\n") else rows - 1
    return f"{kept}\n[Cut here: {path} has {total:,} lines, of which {whole:,} are shown. Read it from line {whole + 1} on for the rest.]"


def _cut_skill(text: str, tokens: int, situation: Situation) -> str:
    kept = _head(text, tokens, situation)
    if kept == text:
        return text
    return f"{kept}\n[Cut here: {len(kept):,} of {len(text):,} characters are shown. Load the skill again for the rest.]"


def _from_log(name: str, recent: RecentWork) -> str:
    """Return a fact from the log, for when the environment does not know it."""
    match name:
        case "plan":
            return recent.plan
        case "skills":
            return msgspec.json.encode(dict(recent.skills)).decode() if recent.skills else ""
        case "agents":
            return "\n".join(recent.agents)
        case _:
            return recent.tools


def _room(situation: Situation, recent: RecentWork) -> int:
    """Return the tokens that may be restored: half of the room until the next compaction.

    After a fold without a model it is at most three quarters of what that fold freed, because else the view would grow again.
    """
    level = situation.budget.compact_at or situation.budget.block_at or situation.budget.window
    room = max(0, level - situation.used) // 2
    return room if recent.freed is None else min(room, recent.freed * 3 // 4)


def _tokens(put: Put, situation: Situation) -> int:
    return situation.tokens.content(put.content)


def _size(text: str, situation: Situation) -> int:
    return situation.tokens.content(Text(text))


def _head(text: str, tokens: int, situation: Situation) -> str:
    """Return the start of a text within that many tokens, cut at a line end if one is in its second half."""
    size = _size(text, situation)
    if size <= tokens:
        return text
    cut = text[: len(text) * tokens // size]
    while _size(cut, situation) > tokens:
        cut = cut[: len(cut) * 9 // 10]
    line = cut.rfind("\n")
    return cut[:line] if line > len(cut) // 2 else cut


def _newest_user_message(view: View) -> str:
    """Return the id of the first item of the newest user message; empty if other items follow it."""
    found = ""
    for item in reversed(view.items):
        if item.kind not in ("user", "steering"):
            break
        found = item.id
    return found
