"""The requests of a continuation test: the place in a session, the view of each profile there, and the tools on offer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.audit.tools.calls import args_of
from palimpsest.core.errors import BadInput
from palimpsest.core.events import CallStarted, Usage
from palimpsest.core.items import ToolCall, Value
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.core.view import View
from palimpsest.lab.simulation.loading import LoadedSession
from palimpsest.lab.simulation.recording import RecordedSession, Step
from palimpsest.lab.simulation.recording_index import RecordingIndex
from palimpsest.lab.simulation.replay import UNSEEN_SOURCE, replay, view_at
from palimpsest.profiles.profile import Profile
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.models.prices import Tariff
from palimpsest.wire.past_requests import recorded_tools
from palimpsest.wire.request import Tool

# Stands for a system prompt that the file does not have; a model that is asked would read it as a text.
_FILLER_SOURCE: Final = f"{UNSEEN_SOURCE}_1"
_JSON_TYPES: Final[Mapping[type, str]] = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


class ContinuationRequest(Value, frozen=True):
    """What one profile would send at the place; `tokens` is an estimate of the prompt, without the tools."""

    profile: str
    view: View
    tokens: int


class RecordedPlace(Value, frozen=True):
    """A recorded call, counted from 0, and the call at which the fold before it was made."""

    step: int
    folded_at: int


def place_of(recording: RecordedSession, profile: Profile, card: ModelCard, at: int | None, index: RecordingIndex) -> RecordedPlace:
    """Return the first call from a fold of the profile on that answers a message of the user, or the call of the fold if none does.

    `at` counts the folds from 1; `None` is the last one. Raises `BadInput` if there is no such fold.
    """
    folds = [edit.step for edit in replay(recording, profile, card, index=index).edits if edit.kind == "fold"]
    number = len(folds) - 1 if at is None else at - 1
    if not 0 <= number < len(folds):
        raise BadInput(_no_such_fold(profile.name, at, len(folds), card.window), where=recording.session)
    answers = (step.number for step in recording.steps[folds[number] :] if step.turn)
    return RecordedPlace(next(answers, folds[number]), folds[number])


def _no_such_fold(name: str, at: int | None, folds: int, window: int) -> str:
    if not folds:
        return f"{name} never folds this session in a window of {window:,} tokens; give a smaller --window, or a call with --call"
    return f"there is no fold {at} under {name}, which folds {'once' if folds == 1 else f'{folds} times'}; name a call with --call"


def requests_at(
    recording: RecordedSession, profiles: Iterable[Profile], card: ModelCard, step: int, index: RecordingIndex
) -> list[ContinuationRequest]:
    """Return the request of each profile for a recorded call; a stand-in for an unrecorded system prompt is left out."""
    count = TokenCounter(palimpsest_size, recording.calibration.factor).item
    requests = []
    for profile in profiles:
        view = view_at(recording, profile, card, step, index)
        view = replace(view, head=tuple(item for item in view.head if item.source != _FILLER_SOURCE))
        requests.append(ContinuationRequest(profile.name, view, sum(map(count, (*view.head, *view.items)))))
    return requests


def most_usd(requests: Iterable[ContinuationRequest], model: ModelCard, samples: int, reply: int) -> float | None:
    """Return the US dollars of all requests without a cache, with replies of `reply` tokens; `None` if no price is known."""
    tariff = Tariff.of(model)
    if tariff is None:
        return None
    return sum(samples * tariff.bill(Usage(input=request.tokens, output=reply)).total for request in requests)


def offered_tools(loaded: LoadedSession) -> tuple[tuple[Tool, ...], bool]:
    """Return the tools of the last recorded request; if the file has none, tools derived from the recorded calls, and true."""
    for event in reversed(loaded.events):
        if isinstance(event.body, CallStarted) and event.body.tools:
            return recorded_tools(event.body.tools, loaded.recording.blobs.get), False
    return derived_tools(loaded.recording.steps), True


def derived_tools(steps: Sequence[Step]) -> tuple[Tool, ...]:
    """Return a declaration for each tool that was called, with the arguments that its calls had."""
    calls: dict[str, list[ToolCall]] = {}
    for step in steps:
        for part in step.reply.parts:
            if isinstance(part, ToolCall) and part.form in ("json", "free"):
                calls.setdefault(part.tool, []).append(part)
    return tuple(_derived(name, found) for name, found in sorted(calls.items()))


def _derived(name: str, calls: Sequence[ToolCall]) -> Tool:
    if calls[0].form == "free":
        return Tool(name, form="free")
    given = [args_of(call) for call in calls]
    types: dict[str, str] = {}
    for each in given:
        for key, value in each.items():
            types.setdefault(key, _JSON_TYPES.get(type(value), ""))
    properties = {key: {"type": kind} if kind else {} for key, kind in types.items()}
    required = [key for key in types if all(key in each for each in given)]
    return Tool(name, schema=Raw(msgspec.json.encode({"type": "object", "properties": properties, "required": required})))
