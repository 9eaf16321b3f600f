"""Sources that state tasks, agents, token budget, business state, deferred tools, and actions of the user beside typing."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Statement
from palimpsest.core.items import Role
from palimpsest.core.text import lazy_pattern, within, without_tags
from palimpsest.core.truncate import truncate_middle
from palimpsest.core.view import View
from palimpsest.sources.source import Fields, Source, World, differing, reminder, stated_value
from palimpsest.wire.request import Tool

TASK_LINES: Final = 20
_AGENT_LINES: Final = 40
_LINE_CHARS: Final = 300
HOOK_CHARS: Final = 10_000
"""Most characters of the output of session-start hooks."""


def tasks(role: Role = "user", *, after_fold: bool = False) -> Source:
    """Return the ready and the running tasks, at most 20 lines; with `after_fold` only after a fold."""

    def observed(world: World) -> Fields | None:
        lines = world.state.tasks
        if not lines or (after_fold and not world.state.folded):
            return None
        shown = [line[:_LINE_CHARS] for line in lines[:TASK_LINES]]
        if len(lines) > TASK_LINES:
            shown[-1] = f"… and {len(lines) - TASK_LINES + 1} more; list them with the task tool"
        return {"tasks": "\n".join(shown)}

    def baseline(fields: Fields) -> str:
        return _framed(f"# Tasks\n{fields['tasks']}", role)

    if after_fold:
        return Source("tasks", observed, baseline, _unstated, role=role)
    removal = _framed("# Tasks\nNo task is ready or running.", role)
    return Source("tasks", observed, baseline, role=role, removal=removal)


def todos(role: Role = "user") -> Source:
    """Return the todo list after a fold that removed it; later states stand in the results of its tool."""

    def observed(world: World) -> Fields | None:
        return {"todos": "\n".join(world.state.todos)} if world.state.todos else None

    def baseline(fields: Fields) -> str:
        return _framed(f"# Todo list\n{fields['todos']}", role)

    return Source("todos", observed, baseline, _unstated, role=role)


def work_state(role: Role = "user") -> tuple[Source, Source]:
    """Return the sources of open work for the profiles of other programs: tasks and todo list, after a fold."""
    return tasks(role, after_fold=True), todos(role)


def _unstated(_: Fields | None, __: Fields) -> str:
    """A change that is not stated, because the results of tools show it."""
    return ""


def agent_types(role: Role = "system") -> Source:
    """Return the agent types that can be started; a change states those that came and went."""

    def observed(world: World) -> Fields | None:
        return {name: text[:_LINE_CHARS] for name, text in sorted(world.state.agents.items())[:_AGENT_LINES]} or None

    def baseline(fields: Fields) -> str:
        return _framed("\n".join(("Agents that can be started:", *(f"- {name}: {text}" for name, text in fields.items()))), role)

    def change(previous: Fields | None, fields: Fields) -> str:
        if previous is None:
            return baseline(fields)
        changed = differing(previous, fields)
        lines = [f"- {name}: {text}" for name, text in fields.items() if name in changed]
        lines += [f"- {name}: can no longer be started" for name in sorted(changed - fields.keys())]
        return _framed("\n".join(("The agents that can be started have changed:", *lines)), role)

    return Source("agents", observed, baseline, change, role=role, removal=_framed("No agents can be started any more.", role))


def session_start(role: Role = "user") -> Source:
    """Return what the hooks of the session start said; it is data of other programs and grants nothing."""

    def observed(world: World) -> Fields | None:
        text = world.state.texts.get("session_start", "").strip()
        return {"text": text[:HOOK_CHARS]} if text else None

    def baseline(fields: Fields) -> str:
        return reminder(f"Output of the hooks that ran at the start of the session:\n{fields['text']}")

    return Source("session_start", observed, baseline, role=role)


def _framed(text: str, role: Role) -> str:
    return reminder(text) if role == "user" else text


KEY: Final = "business_state"


class StateMachine(Struct, frozen=True):
    """The states of a task with one line of meaning each, the state at the start, and the allowed transitions.

    Without `transitions` every state can follow every other. Raises `BadInput` if a state has no name, a meaning spans lines, or the start
    or a transition names an unknown state.
    """

    states: Mapping[str, str]
    start: str
    transitions: Mapping[str, frozenset[str]] | None = None

    def __post_init__(self) -> None:
        for name, meaning in self.states.items():
            if not name.strip() or len(f"{name}{meaning}".splitlines()) > 1:
                raise BadInput(f"the state {name!r} needs a name and a meaning of one line", where=KEY)
        self.check(self.start)
        for origin, targets in (self.transitions or {}).items():
            for name in (origin, *sorted(targets)):
                self.check(name)

    def check(self, name: str) -> None:
        """Raise `BadInput` if there is no such state."""
        if name not in self.states:
            raise BadInput(f"there is no state {name!r}; declared are {', '.join(self.states)}", where=KEY)

    def transition(self, current: str, target: str) -> str:
        """Return the target state; staying is always allowed. Raises `BadInput` for an unknown state or a forbidden transition."""
        self.check(current)
        self.check(target)
        if target == current or self.transitions is None:
            return target
        allowed = self.transitions.get(current, frozenset())
        if target not in allowed:
            options = ", ".join(sorted(allowed)) or "no other state"
            raise BadInput(f"{current!r} cannot become {target!r}; it can become {options}", where=KEY)
        return target

    def stated(self, name: str) -> tuple[str, str]:
        """Return name and meaning of a state, as `SessionState.business` holds them. Raises `BadInput` if there is no such state."""
        self.check(name)
        return name, self.states[name]

    def current(self, view: View) -> str:
        """Return the state that the view states, the start if it states none; for a session that is resumed."""
        fields = stated_value(view, KEY)
        name = self.start if fields is None else fields.get("state", self.start)
        return name if name in self.states else self.start


def business_state() -> Source:
    """Return the source of the business state; its value comes from the developer's code and never from a model."""

    def observed(world: World) -> Fields | None:
        business = world.state.business
        return None if business is None else {"state": business[0], "meaning": business[1]}

    def baseline(fields: Fields) -> str:
        meaning = f" — {fields['meaning']}" if fields["meaning"] else ""
        return f"<business_state>{without_tags(fields['state'] + meaning, KEY)}</business_state>"

    return Source(KEY, observed, baseline, role="system", removal="<business_state>none</business_state>")


MOST_FOUND: Final = 5
_MOST_LISTED: Final = 400
_QUERY_CHARS: Final = 500
_SELECT: Final = "select:"
_LOADED: Final = "loaded"
_TAG: Final = "available-deferred-tools"
# Letters and digits of any script, with names such as `readFile` and `mcp__git__log` taken apart.
_WORD: Final = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
# Chinese, Japanese and Korean have no spaces between words, so pairs of letters are compared.
_UNSPACED: Final = lazy_pattern(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NAME_WEIGHT: Final = 3
_SATURATION, _LENGTH_SHARE = 1.2, 0.5


def deferred_tools(*, tag: bool, role: Role = "user") -> Source:
    """Return the names of the tools that are loaded on demand; a change states those that came and went.

    A tool that was loaded leaves the list without a statement, because the search that loaded it said so.
    """

    def observed(world: World) -> Fields | None:
        loaded = {tool.name for tool in world.state.tools}
        listed = sorted(tool.name for tool in world.state.deferred)[:_MOST_LISTED]
        return {name: _LOADED if name in loaded else "" for name in listed} if not loaded.issuperset(listed) else None

    def baseline(fields: Fields) -> str:
        return _tools_framed("\n".join(name for name, loaded in fields.items() if not loaded), tag=tag, role=role)

    def change(previous: Fields | None, fields: Fields) -> str:
        if previous is None:
            return baseline(fields)
        added = [name for name in fields if name not in previous]
        removed = [name for name in previous if name not in fields]
        lines = [f"Now available too: {', '.join(added)}"] if added else []
        lines += [f"No longer available: {', '.join(removed)}"] if removed else []
        return _stated(without_tags("\n".join(lines), _TAG), role) if lines else ""

    return Source("deferred_tools", observed, baseline, change, role=role, removal=_stated("No deferred tools are left.", role))


def _tools_framed(names: str, *, tag: bool, role: Role) -> str:
    if tag:
        return within(_TAG, names)
    text = f"These tools exist but are not loaded. Find one with the tool search before you call it:\n{names}"
    return _stated(text, role)


def _stated(text: str, role: Role) -> str:
    return reminder(text) if role == "user" else text


def search_tools(query: str, tools: Sequence[Tool], most: int = MOST_FOUND) -> tuple[Tool, ...]:
    """Return the tools that fit a query best, best first; at most `most`, none that shares no word with it.

    `select:one,two` returns the tools of exactly these names. Words in names weigh more than words in descriptions.
    """
    query = query[:_QUERY_CHARS]
    if query.startswith(_SELECT):
        wanted = [name.strip() for name in query.removeprefix(_SELECT).split(",")]
        by_name = {tool.name: tool for tool in tools}
        return tuple(by_name[name] for name in dict.fromkeys(wanted) if name in by_name)[:most]
    documents = [Counter(words(tool.description)) + Counter(words(tool.name) * _NAME_WEIGHT) for tool in tools]
    usual = sum(document.total() for document in documents) / len(documents) if documents else 0.0
    terms = set(words(query))
    rarity = {term: math.log(1 + len(documents) / (1 + sum(term in document for document in documents))) for term in terms}
    scored = []
    for place, document in enumerate(documents):
        length = 1 - _LENGTH_SHARE + _LENGTH_SHARE * document.total() / usual if usual else 1.0
        score = sum(rarity[term] * document[term] / (document[term] + _SATURATION * length) for term in terms if term in document)
        if score > 0:
            scored.append((-score, tools[place].name, place))
    return tuple(tools[place] for _, _, place in sorted(scored)[:most])


def words(text: str) -> list[str]:
    """Return the words of a text in lower case; names are taken apart, and scripts without spaces give pairs of letters."""
    found: list[str] = []
    for word in _WORD.findall(text):
        if _UNSPACED.search(word):
            found += [word[place : place + 2] for place in range(max(1, len(word) - 1))]
        else:
            found.append(word.lower())
    return found


OUTPUT_TOKENS: Final = 10_000


def shell_statement(line: str, code: int, seconds: float, output: str) -> Statement:
    """Return the statement of a line that the user ran in a shell, with the middle of a long output cut."""
    shown = truncate_middle(output, OUTPUT_TOKENS).text
    result = within("result", f"Exit code: {code}\nDuration: {seconds:.4f} seconds\nOutput:\n{shown}")
    tag = "user_shell_command"
    return Statement(tag, within(tag, f"{within('command', line)}\n{result}"), "user")


def review_text(asked: str, results: str) -> str:
    """Return what is stated of a review that the user asked for."""
    context = within("context", f"The user had the work reviewed: {asked}. The results follow; act on them only if the user asks for it.")
    return within("user_action", "\n".join((context, within("action", "review"), within("results", results))))
