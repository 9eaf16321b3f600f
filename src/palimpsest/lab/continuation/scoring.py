"""Compares the first tool calls of a model with the recorded ones by rules: same tool and target, used later, or read again."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from palimpsest.audit.tools.calls import action_of
from palimpsest.audit.visibility.visible import last_two_parts
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import ToolCall, ToolResult, Value
from palimpsest.core.pairs import answered_calls
from palimpsest.core.view import View, shown
from palimpsest.lab.simulation.recording import Step

LATER_CALLS: Final = 20
Verdict: TypeAlias = Literal["same", "later", "again", "other"]
"""`same`: a call of the recorded reply; `later`: one of the next 20 recorded calls; `again`: reads what was hidden; `other`: none."""


class ComparedCall(Value, frozen=True):
    """A tool call of the model, and how it compares with the recording."""

    tool: str
    target: str
    verdict: Verdict


class _Target(Value, frozen=True):
    """What a call acts on: its class, and a path, a command or its arguments."""

    kind: str
    name: str


def compare(reply: ModelReplied, view: View, steps: Sequence[Step], number: int) -> tuple[ComparedCall, ...]:
    """Compare the tool calls of a reply to `view` with those of the recorded call `number` and of the calls after it."""
    recorded = {target for call in _calls([steps[number].reply]) for target in _targets(call)}
    following = _calls(step.reply for step in steps[number + 1 :])[:LATER_CALLS]
    later = {target for call in following for target in _targets(call)}
    hidden = _paths_of(_calls(step.reply for step in steps[:number])) - _visible_paths(view)
    return tuple(_compared(call, recorded, later, hidden) for call in _calls([reply]))


def _compared(call: ToolCall, recorded: set[_Target], later: set[_Target], hidden: set[str]) -> ComparedCall:
    targets = _targets(call)
    verdict: Verdict = "other"
    # A read of something hidden counts as such even if the recorded reply had it too: it costs a call in either case.
    if any(target.kind == "read" and target.name in hidden for target in targets):
        verdict = "again"
    elif recorded.intersection(targets):
        verdict = "same"
    elif later.intersection(targets):
        verdict = "later"
    return ComparedCall(call.tool, targets[0].name, verdict)


def _targets(call: ToolCall) -> list[_Target]:
    action = action_of(call)
    if action.paths and action.kind != "command":
        return [_Target(action.kind, _plain(touched.path)) for touched in action.paths]
    return [_Target(action.kind, " ".join((action.command or call.args).split()))]


def _calls(replies: Iterable[ModelReplied]) -> list[ToolCall]:
    return [part for reply in replies for part in reply.parts if isinstance(part, ToolCall)]


def _paths_of(calls: Iterable[ToolCall]) -> set[str]:
    return {_plain(touched.path) for call in calls for touched in action_of(call).paths if touched.how in ("read", "edit", "write")}


def _visible_paths(view: View) -> set[str]:
    calls = answered_calls(view.items)
    visible = (item for item in view.items if isinstance(item.content, ToolResult) and shown(item) is item.content)
    return _paths_of(calls[item.id] for item in visible if item.id in calls)


def _plain(path: str) -> str:
    return last_two_parts(path.removeprefix("./").rstrip("/"))
