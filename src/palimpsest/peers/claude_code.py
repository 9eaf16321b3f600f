"""Profiles that imitate Claude Code, documented and measured: settings, sources, context editing, and restoration after a fold."""

import posixpath
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import msgspec
from msgspec import structs

from palimpsest.audit.gate import same_path
from palimpsest.audit.sizes import claude_list_size
from palimpsest.audit.tool_calls import action_of, args_of, operation_of, result_text
from palimpsest.audit.working_state import CONTENT_ACTIONS, RESTORED, read_paths
from palimpsest.core.budget import Budget, used
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ChildEnded, ChildOpened, Event, ModelReplied, ToolReturned, ViewEdited
from palimpsest.core.front_matter import read_front_matter
from palimpsest.core.items import EMPTY_MAPPING, Edit, Insert, Item, Mask, Put, Text, ToolCall, ToolResult, Value, text_of
from palimpsest.core.plans import Answer, EventSpan, Look, Moment, Plan, Policy, Proposal, Situation, Steps, Want, look_or_none, span
from palimpsest.core.text import within
from palimpsest.core.tokens import CountsTokens
from palimpsest.core.view import View, shown
from palimpsest.peers.clearing import KEPT_USES, TRIGGER, ClaudeLimiter, ClearCached, ClearIdle, ClearResults, ClearToolUses
from palimpsest.peers.summaries import ContinuationMessage, Summarize, SwapNotes
from palimpsest.policies.fold import model_free_fallback
from palimpsest.policies.notices import Warn, WatchCache
from palimpsest.policies.profile import (
    NO_MEMORY,
    MemoryRules,
    NoteRules,
    Profile,
    evidence,
    for_any_model,
    is_on,
    lenient_number,
    quoted,
    strict_number,
)
from palimpsest.sources.environment import claude_environment, date_source, git_text, mode, model_statement, stated_environment
from palimpsest.sources.instructions import claude_files, config_folder, file_list, folders_of_project
from palimpsest.sources.progress import agent_types, deferred_tools, session_start, work_state
from palimpsest.sources.prompts import KEY, RULES, fixed, mcp_in_head, model_prompt, prompt_text
from palimpsest.sources.skills import Skill, SkillRoot, find_skills, skill_list
from palimpsest.sources.source import Fields, Source, SourceSet, World, differing, given
from palimpsest.sources.source import reminder as claude_code_reminder
from palimpsest.wire.models import ModelCard
from palimpsest.wire.request import Params

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


LANGUAGE, OUTPUT_STYLE, SCRATCHPAD = "PAL_LANGUAGE", "PAL_OUTPUT_STYLE", "PAL_SCRATCHPAD"
_DEFAULT: Final = "default"
_BUILT_IN: Final = ("explanatory", "learning")
_LONGEST_NAME: Final = 60
_LARGEST_STYLE: Final = 32 * 1024
_GUIDANCE: Final[Mapping[str, str]] = {
    "spawn_agent": "For a search that takes several rounds, start a sub-agent with `spawn_agent`; read a known file yourself.",
    "skill": "`/NAME` in a message of the user names a skill: run it with `skill`, and only skills that are listed.",
    "bash": "If a command needs the user, such as a login, ask them to run it: `!COMMAND` does in the terminal.",
    "recall": "Results that were cleared and messages that were summed up can be fetched again with `recall`.",
}


def session_guidance() -> Source:
    """Return the hints on tools that the session has at its start; tools that come or go later change nothing in the system prompt."""

    def observed(world: World) -> Fields | None:
        names = {tool.name for tool in (*world.state.tools, *world.state.deferred)}
        lines = [f"- {hint}" for name, hint in _GUIDANCE.items() if name in names]
        return {"text": "\n".join(lines)} if lines else None

    def baseline(fields: Fields) -> str:
        return f"# Session-specific guidance\n{fields['text']}"

    return Source("session_guidance", observed, baseline, lambda _, __: "", role="system", place="head")


def language(settings: Mapping[str, str]) -> Source:
    """Return the language of answers. Raises `BadInput` if the setting is not the name of one."""
    name = _name_setting(settings, LANGUAGE)

    def baseline(fields: Fields) -> str:
        return (
            f"# Language\nAnswer in {fields['language']}, also in explanations and questions. Code, commands, paths and identifiers stay "
            "as they are."
        )

    return Source("language", lambda _: {"language": name} if name else None, baseline, role="system", place="head")


def output_style(settings: Mapping[str, str]) -> Source:
    """Return the output style: one of ours, or a file `output-styles/NAME.md` of the user, else of the project.

    Raises `BadInput` if the setting cannot be a name; observing it raises `BadInput` if there is no such style.
    """
    name = _name_setting(settings, OUTPUT_STYLE)
    if "/" in name or "\\" in name or name.startswith("."):
        raise BadInput(f"{OUTPUT_STYLE} is {name!r}; give the name of a style, not a path", where="settings")

    def observed(world: World) -> Fields | None:
        if name.lower() in ("", _DEFAULT):
            return None
        if name.lower() in _BUILT_IN:
            return {"style": name, "text": prompt_text(f"claude/styles/{name.lower()}")}
        return {"style": name, "text": _style_file(world, name)}

    def baseline(fields: Fields) -> str:
        return f"# Output style: {fields['style']}\n{fields['text']}"

    return Source("output_style", observed, baseline, lambda _, __: "", role="system", place="head", is_required=bool(name))


def scratchpad() -> Source:
    """Return the folder for temporary files, if the session has one."""

    def observed(world: World) -> Fields | None:
        path = world.state.texts.get("scratchpad", "")
        return {"path": path} if path else None

    def baseline(fields: Fields) -> str:
        return (
            f"# Scratchpad\nTemporary files, such as scripts that run once, drafts and intermediate results, belong in {fields['path']}, "
            "not in the project and not in /tmp. It is yours alone in this session."
        )

    return Source("scratchpad", observed, baseline, lambda _, __: "", role="system", place="head")


def _name_setting(settings: Mapping[str, str], name: str) -> str:
    text = settings.get(name, "").strip()
    if len(text) > _LONGEST_NAME or not ((text.isprintable() and text.isascii()) or text.replace(" ", "").isalpha()):
        raise BadInput(f"{name} must be one name of at most {_LONGEST_NAME} characters", where="settings")
    return text


def _style_file(world: World, name: str) -> str:
    folders = [config_folder(world, ".claude"), *(posixpath.join(folder, ".claude") for folder in folders_of_project(world))]
    paths = [posixpath.join(folder, "output-styles", f"{name}.md") for folder in folders if folder]
    for path in paths:
        data = world.read(path, _LARGEST_STYLE)
        if data is None:
            continue
        text = data.decode("utf-8", "replace")
        front = read_front_matter(text)
        if body := (text if front is None else front.body).strip():
            return body
    known = ", ".join((_DEFAULT, *_BUILT_IN))
    raise BadInput(f"there is no output style {name!r}: it can be {known}, or a file such as {paths[0]}", where="settings")


_PLAN = "Hand the plan over with `exit_plan_mode`, which keeps it in a file, and end your turn."
_MEMORY_NAME = "the index of your notes"
_REMARK = "This context may or may not matter for the task; do not mention it unless it does."


def claude_code_sources(settings: Mapping[str, str] = EMPTY_MAPPING) -> SourceSet:
    """Return the documented sources: the system prompt with environment and git status, then instructions and date in one reminder.

    Raises `BadInput` for a setting that cannot mean anything.
    """
    return SourceSet(
        (
            fixed("version", lambda world: world.state.texts.get("version", "")),
            fixed("identity", lambda _: prompt_text("claude/identity")),
            model_prompt("claude", (((), "main"),), slots=(RULES,)),
            session_guidance(),
            claude_environment(),
            language(settings),
            output_style(settings),
            mcp_in_head(lambda name, text: f"## {name}\n{text}", "# MCP servers"),
            scratchpad(),
            _git_in_head(),
            deferred_tools(tag=True),
            _instructions_and_date(),
            session_start(),
            mode("user", plan=_PLAN),
            *work_state(),
        ),
        renews_head=False,
    )


def claude_code_2_1_325_sources(settings: Mapping[str, str] = EMPTY_MAPPING) -> SourceSet:
    """Return the measured sources: three system blocks, then each statement on its own in a fixed order, stated again after a fold.

    What settings of the user add follows the three blocks. Raises `BadInput` for a setting that cannot mean anything.
    """
    return SourceSet(
        (
            fixed("version", lambda world: world.state.texts.get("version", "")),
            fixed("identity", lambda _: prompt_text("claude/identity")),
            model_prompt("claude", (((), "main"),), slots=(RULES,)),
            language(settings),
            output_style(settings),
            scratchpad(),
            stated_environment(),
            model_statement(),
            deferred_tools(tag=False, role="system"),
            agent_types(),
            skill_list(claude_skills),
            _instructions(),
            _git(),
            date_source(),
            given("attribution", frame=claude_code_reminder),
            session_start(),
            mode(plan=_PLAN),
            *work_state(),
        ),
        after_fold=(
            "deferred_tools",
            "agents",
            "skills",
            "environment",
            "model",
            "instructions",
            "session_context",
            "date",
            "attribution",
        ),
        renews_head=False,
    )


def claude_skills(world: World) -> tuple[Skill, ...]:
    """Return the skills of the user's folder and of `.claude` in each folder from the project root down."""
    config = config_folder(world, ".claude")
    roots = [SkillRoot(posixpath.join(config, "skills"), "user")] if config else []
    roots += [SkillRoot(posixpath.join(folder, ".claude/skills"), "repo") for folder in folders_of_project(world)]
    return find_skills(world, roots)


def _claude_memory(world: World) -> Fields:
    """Return the index of the notes as a field beside the instruction files; nothing if there is none."""
    text = world.state.texts.get(KEY, "").strip()
    return {_MEMORY_NAME: text} if text else {}


def _instructions_and_date() -> Source:
    """Return instruction files with the index of the notes, and the date, as one reminder; a new date alone is stated in one line."""
    files = file_list(claude_files)

    def observed(world: World) -> Fields:
        instructions = files.observe(world)
        stated = files.baseline(instructions) if instructions else ""
        return {"claudeMd": stated, **_claude_memory(world), "currentDate": f"Today's date is {world.today()}."}

    def baseline(fields: Fields) -> str:
        index = fields.get(_MEMORY_NAME, "")
        texts = {"claudeMd": "\n\n".join(filter(None, (fields["claudeMd"], index))), "currentDate": fields["currentDate"]}
        sections = [f"# {name}\n{text}" for name, text in texts.items() if text]
        return claude_code_reminder("\n".join((*sections, "", _REMARK)))

    def change(previous: Fields | None, fields: Fields) -> str:
        changed = (fields.keys() if previous is None else differing(previous, fields)) - {_MEMORY_NAME}
        sections = [f"# {name}\n{text or 'There are no instruction files any more.'}" for name, text in fields.items() if name in changed]
        return claude_code_reminder("\n".join(("This has changed and replaces what was stated before:", *sections))) if sections else ""

    return Source("instructions", observed, baseline, change)


def _instructions() -> Source:
    """Return instruction files and behind them the index of the notes, as one reminder; a change of the index is not stated."""
    files = file_list(claude_files, frame=lambda text: claude_code_reminder(f"# Instructions\n{text}\n\n{_REMARK}"))

    def observed(world: World) -> Fields | None:
        return {**(files.observe(world) or {}), **_claude_memory(world)} or None

    def change(previous: Fields | None, fields: Fields) -> str:
        if previous is None:
            return files.baseline(fields)
        return files.update(_without_memory(previous), _without_memory(fields))

    return Source("instructions", observed, files.baseline, change, removal=files.removal)


def _without_memory(fields: Fields) -> Fields:
    """Return the fields without the index: the model knows what it wrote itself, and a later conversation reads it again."""
    return {name: text for name, text in fields.items() if name != _MEMORY_NAME}


def _git_in_head() -> Source:
    def baseline(fields: Fields) -> str:
        return f"gitStatus: the state of the repository at the start of the session. It is a snapshot and does not update.\n{fields['git']}"

    # It is a snapshot: what git says later is seen by running git.
    return Source("git_status", _git_fields, baseline, lambda _, __: "", role="system", place="head")


def _git() -> Source:
    def baseline(fields: Fields) -> str:
        return claude_code_reminder(
            f"# gitStatus\nA snapshot of the repository that does not update during the conversation.\n{fields['git']}"
        )

    return Source("session_context", _git_fields, baseline, lambda _, __: "")


def _git_fields(world: World) -> Fields | None:
    facts = world.git()
    return None if facts is None else {"git": git_text(facts)}


CLAUDE_REPLY: Final = 32_000
CLAUDE_MARGIN: Final = 13_000
CLAUDE_WARNING: Final = 20_000
CLAUDE_ERROR: Final = 20_000
CLAUDE_BLOCK_MARGIN: Final = 3_000
CLAUDE_REPLY_CAP: Final = 20_000
_NO_AUTO_MEMORY: Final = "CLAUDE_CODE_DISABLE_AUTO_MEMORY"
# The models for which 2.1.325 was observed to compact automatically.
_AUTO_COMPACTED = re.compile(r"-4-6\b")
# Claude Code uses the long window of these only under a name that asks for it.
_SHORT_WINDOW = re.compile(r"-4-[678]")


def claude_budget(
    window: int = 200_000, max_output: int = CLAUDE_REPLY, *, auto: bool = True, percent: int | None = None, block_at: int | None = None
) -> Budget:
    """Return the documented budget of Claude Code: the whole reply is reserved, and requests are blocked 3,000 tokens before the end.

    In a small window each reserve is at most half of the level it is taken from, so that all levels stay above zero and in order.
    """
    reply = min(max_output if max_output > 0 else CLAUDE_REPLY, window // 2)
    blocks = block_at if block_at is not None and block_at > 0 else _before(window, CLAUDE_BLOCK_MARGIN, 4)
    budget = _claude_levels(window, reply, blocks, auto=auto, percent=percent)
    return structs.replace(budget, clear_at=budget.warn_at)


def claude_measured_budget(
    window: int = 200_000, max_output: int = CLAUDE_REPLY, *, auto: bool = True, percent: int | None = None, auto_window: int | None = None
) -> Budget:
    """Return the budget of Claude Code 2.1.325 as measured: at most 20,000 tokens are reserved for the reply, and no level clears results.

    Small windows are as in `claude_budget`.
    """
    window = auto_window if auto_window is not None and auto_window > 0 else window
    reply = min(max_output if max_output > 0 else CLAUDE_REPLY, CLAUDE_REPLY_CAP, window // 2)
    return _claude_levels(window, reply, _before(window - reply, CLAUDE_BLOCK_MARGIN, 4), auto=auto, percent=percent)


def _claude_levels(window: int, reply: int, block_at: int, *, auto: bool, percent: int | None) -> Budget:
    available = window - reply
    compact_at = usual = _before(available, CLAUDE_MARGIN)
    if percent is not None and 1 <= percent <= 100:
        compact_at = max(1, min(usual, available * percent // 100))
    effective = compact_at if auto else available
    return Budget(
        window=window,
        reply=reply,
        buffer=window - usual,
        warn_at=_before(effective, CLAUDE_WARNING),
        compact_at=compact_at if auto else None,
        block_at=block_at,
        error_at=_before(effective, CLAUDE_ERROR),
    )


def _before(level: int, reserve: int, most: int = 2) -> int:
    """Subtract a reserve from a level; the reserve is at most one part in `most` of the level."""
    return level - min(reserve, level // most)


def claude_code(environment: Mapping[str, str]) -> Profile:
    """Mask old results in three ways; compact by swapping in running notes if there are any, else by summarizing the whole conversation.

    With the setting `keep_analysis` the analysis before a summary stays in front of it, as in version 2.1.19.
    """
    asked, auto = _compacts(environment)
    limit = _reply_limit(environment)
    percent = lenient_number(environment, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", 100)
    block_at = lenient_number(environment, "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE")

    def budget(card: ModelCard) -> Budget:
        return claude_budget(_window(card), limit or min(CLAUDE_REPLY, card.reply), auto=auto, percent=percent, block_at=block_at)

    form = ContinuationMessage(keep_analysis=is_on(environment, "keep_analysis"))
    cached = _switch(environment, "cached_microcompact")
    by_size = ((ClearCached(),) if cached else ()) + (ClearResults(beside_cached=cached),)
    masks = (ClearIdle(), *(() if is_on(environment, "DISABLE_MICROCOMPACT") else by_size))
    policies = (
        *masks,
        SwapNotes(auto=auto, asked=asked),
        Summarize(auto=auto, asked=asked, form=form),
        *evidence(environment),
        Restore(),
        Warn(),
        WatchCache(),
    )
    return _documented(environment, policies, budget)


def _documented(environment: Mapping[str, str], policies: tuple[Policy, ...], budget: Callable[[ModelCard], Budget]) -> Profile:
    """Return the documented profile with the given policies and budget, whose settings other versions do not read."""
    no_memory = is_on(environment, _NO_AUTO_MEMORY)
    return Profile(
        name="claude-code",
        policies=policies,
        budget=budget,
        fallback=model_free_fallback(),
        size_rule="claude-code",
        count=count,
        overflow="stop",
        circuit=3,
        folds_per_turn=0,
        limiter=for_any_model(ClaudeLimiter()),
        params=Params(max_tokens=_reply_limit(environment) or CLAUDE_REPLY, breakpoint_rule="claude-code"),
        # Files that the main model reads and writes itself, unless the user turned automatic memory off; running notes stay even then.
        notes=NoteRules("nothing", recall="off") if no_memory else NoteRules("index", recall="model", folder="claude"),
        sources=claude_code_sources(environment),
        scratchpad=is_on(environment, SCRATCHPAD),
        keeps_plan=True,
        rows="documents",
        counts_tools=True,
        skills=claude_skills,
        memory=MemoryRules(remembers=False, extracts=not no_memory, summarises=False, finishes=True),
        forgets_hidden_reads=True,
    )


def claude_code_2_1_325(environment: Mapping[str, str]) -> Profile:
    """Mask nothing, keep the last round in every compaction, retry without a limit, and compact when a request was too long.

    The original compacts automatically for some models only. The setting `proactive=measured` imitates that; by default this profile
    compacts for all models, because a session that is never compacted ends at the window.
    """
    all_models = environment.get("proactive", "").strip().lower() != "measured"
    asked, auto = _compacts(environment)
    limit = _reply_limit(environment)
    percent = lenient_number(environment, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", 100)
    window = lenient_number(environment, "CLAUDE_CODE_AUTO_COMPACT_WINDOW")
    block_at = lenient_number(environment, "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE")

    def budget(card: ModelCard) -> Budget:
        compacts = auto and (all_models or window is not None or _AUTO_COMPACTED.search(card.name) is not None)
        reply = limit or min(CLAUDE_REPLY, card.reply)
        measured = claude_measured_budget(_window(card), reply, auto=compacts, percent=percent, auto_window=window)
        return measured if block_at is None else structs.replace(measured, block_at=block_at)

    summarize = Summarize(
        auto=auto,
        asked=asked,
        overflow=True,
        keeps_round=True,
        images=True,
        form=ContinuationMessage(measured=True),
        report="Compacted",
        breakpoint_rule="claude-code-2.1.325-fold",
    )
    restore = Restore(large_files="note", numbering="tab", place="prompt")
    documented = _documented(environment, (summarize, *evidence(environment), restore, Warn()), budget)
    return replace(
        documented,
        name="claude-code-2.1.325",
        overflow="fold" if auto else "stop",
        circuit=0,
        limiter=for_any_model(ClaudeLimiter(short_names=True)),
        params=structs.replace(documented.params, breakpoint_rule="claude-code-2.1.325"),
        notes=structs.replace(documented.notes, recall="off"),
        sources=claude_code_2_1_325_sources(environment),
        rows="measured",
        counts_tools=False,
        # The original makes no request for memory: its main model reads and writes the notes itself.
        memory=NO_MEMORY,
        forgets_hidden_reads=False,
    )


def _reply_limit(environment: Mapping[str, str]) -> int | None:
    return lenient_number(environment, "CLAUDE_CODE_MAX_OUTPUT_TOKENS")


def _compacts(environment: Mapping[str, str]) -> tuple[bool, bool]:
    """Return whether it compacts when the user asks, and by itself."""
    asked = not is_on(environment, "DISABLE_COMPACT")
    return asked, asked and not is_on(environment, "DISABLE_AUTO_COMPACT")


def _switch(environment: Mapping[str, str], name: str) -> bool:
    """Return a switch that is off by default. Raises `BadInput` for a value that is neither on nor off."""
    value = environment.get(name, "").strip().lower()
    if value not in ("", "on", "off"):
        raise BadInput(f"{name} is {quoted(value)}; it can be on or off", where="settings")
    return value == "on"


def count(view: View, counter: CountsTokens, tools_tokens: int) -> int:
    """Return the last usage that the provider reported plus an estimate of later items; without a report, the estimate plus a third."""
    return used(view, counter, tools_tokens, unreported=lambda total: claude_list_size((total,)))


def _window(card: ModelCard) -> int:
    is_short = _SHORT_WINDOW.search(card.name) is not None and not card.name.endswith("[1m]")
    return min(card.working_window, 200_000) if is_short else card.working_window


def context_editing(settings: Mapping[str, str]) -> Profile:
    """Clear old tool results as the provider does with `clear_tool_uses_20250919`; what clearing cannot keep small is summarized.

    The settings are the published parameters after `clear_tool_uses.`: `trigger` (input tokens, by default 100,000), `keep` (tool uses,
    3), `clear_at_least` (tokens, 0), `exclude_tools` (names with `+` between) and `clear_tool_inputs` (off). `sticky=on`: the client
    keeps what was cleared, instead of sending its whole history to be cleared again. Those of `claude-code-2.1.325` apply too.
    """

    def number(name: str, default: int) -> int:
        found = strict_number(settings, f"clear_tool_uses.{name}", least=0)
        return default if found is None else found

    clearing = ClearToolUses(
        trigger=number("trigger", TRIGGER),
        keep=number("keep", KEPT_USES),
        clear_at_least=number("clear_at_least", 0),
        exclude_tools=frozenset(settings.get("clear_tool_uses.exclude_tools", "").split("+")) - {""},
        clear_tool_inputs=is_on(settings, "clear_tool_uses.clear_tool_inputs"),
        sticky=is_on(settings, "clear_tool_uses.sticky"),
    )
    backing = claude_code_2_1_325(settings)
    return replace(backing, name="context-editing", policies=(clearing, *backing.policies))
