"""The state of the work: tasks, agents that can be started, what session-start hooks said, and the token budget."""

from typing import Final

from palimpsest.core.items import Role
from palimpsest.sources.source import Fields, Place, Source, World, differing, reminder

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


def tokens_left(role: Role = "system", place: Place = "start") -> Source:
    """Return the token budget of the session; it differs in every turn, so that each turn states it once."""

    def observed(world: World) -> Fields | None:
        left = world.state.tokens_left
        return None if left is None else {"left": str(left)}

    def baseline(fields: Fields) -> str:
        return f"<total_tokens>{fields['left']} tokens left</total_tokens>"

    return Source("total_tokens", observed, baseline, role=role, place=place)


def _framed(text: str, role: Role) -> str:
    return reminder(text) if role == "user" else text
