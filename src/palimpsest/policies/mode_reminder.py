"""OpenCode's reminders: of plan mode beside the newest user message, and the frame of a message that was sent during a turn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from palimpsest.core.edits import Edit, Insert, Mask, Put, Unmask
from palimpsest.core.format.tags import without_own_voice
from palimpsest.core.items import Item, Text, seq_of
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.prompt import prompt

PLAN, BUILD = "plan", "build"
BUILDING: Final = frozenset({BUILD, "ask", "edits", "auto"})
"""The modes in which files are changed: that of OpenCode, and ours."""
_SOURCE: Final = "mode_reminder "
_REPLIES: Final = frozenset({"assistant", "thinking", "call"})
_USER: Final = frozenset({"user", "steering"})


@dataclass(frozen=True, slots=True)
class RemindOfMode:
    """Reminds the model of plan mode in every call under it, and after it once for each user message while a reply of it is visible.

    The original adds these texts to the request only. Here they are inserted and hidden again, so that every request can be rebuilt.
    """

    name: str = "mode_reminder"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """Propose to show the reminder of the current mode behind the newest user message and to hide all others."""
        items = situation.view.items
        wanted = _wanted(situation.view.mode, items)
        place = next((place for place in range(len(items) - 1, -1, -1) if items[place].kind in _USER), None)
        current = None if place is None or not wanted else _reminder_behind(items, place, wanted)
        # Thinking is bound to what stands before it, so that what was shown stays where a model would lose it.
        outdated = () if situation.reasoning else tuple(item.id for item in _reminders(items) if not item.hidden and item is not current)
        edits: list[Edit] = [Mask(outdated)] if outdated else []
        if wanted and place is not None and current is None:
            before = items[place + 1].id if place + 1 < len(items) else ""
            edits.append(Insert((Put("reminder", Text(_text(wanted)), f"{_SOURCE}{wanted}"),), before))
        return Proposal(tuple(edits), f"mode {situation.view.mode or 'none'}") if edits else ()


@dataclass(frozen=True, slots=True)
class FrameSteering:
    """Shows a message that the user sent during a turn in a frame, until a newer reply has finished or the turn has ended.

    The original frames it in the request only. Here a mask shows the framed text and is taken away again, so that every request can be
    rebuilt and the message itself stays as it was typed.
    """

    name: str = "frame_steering"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """Propose a mask with the framed text for each new message of this turn, and to unmask those that were answered."""
        items = situation.view.items
        answered = max((seq_of(item.id) for item in items if item.kind in _REPLIES), default=-1)
        # Messages of an earlier turn open the first call of this one, which frames nothing.
        since = max(answered, -1 if situation.health.turn is None else situation.health.turn)
        edits: list[Edit] = []
        outdated: list[str] = []
        for item in items:
            if item.kind != "steering" or not isinstance(item.content, Text) or not item.content.text.strip():
                continue
            framed = steering_text(item.content.text)
            is_new = seq_of(item.id) > since
            if is_new and item.mask is None:
                edits.append(Mask((item.id,), framed))
            elif not is_new and item.mask is not None and item.mask.text == framed:
                outdated.append(item.id)
        if outdated and not situation.reasoning:
            edits.append(Unmask(tuple(outdated)))
        return Proposal(tuple(edits), "messages that were sent during the turn") if edits else ()


def steering_text(text: str) -> str:
    """Return a message that the user sent during a turn, in the frame in which the documented OpenCode shows it, which it cannot end."""
    return prompt("opencode/steering", text=without_own_voice(text))


def _text(wanted: str) -> str:
    return prompt("opencode/plan") if wanted == PLAN else prompt("opencode/build")


def _wanted(mode: str, items: Sequence[Item]) -> str:
    """Return which reminder the next call needs; empty for none."""
    if mode == PLAN:
        return PLAN
    return BUILD if mode in BUILDING and _has_plan_reply(items) else ""


def _has_plan_reply(items: Sequence[Item]) -> bool:
    """Return whether a reply in the view was made in plan mode: the first one after a reminder of plan mode was inserted."""
    inserted = [seq_of(item.id) for item in _reminders(items) if item.source == f"{_SOURCE}{PLAN}"]
    return bool(inserted) and any(item.kind in _REPLIES and seq_of(item.id) > min(inserted) for item in items)


def _reminders(items: Sequence[Item]) -> Iterator[Item]:
    return (item for item in items if item.kind == "reminder" and item.source.startswith(_SOURCE))


def _reminder_behind(items: Sequence[Item], place: int, wanted: str) -> Item | None:
    """Return the reminder of that mode directly behind the item at `place`, if it is visible."""
    following = items[place + 1 :]
    for item in following:
        if item.kind != "reminder":
            return None
        if item.source == f"{_SOURCE}{wanted}" and item.mask is None:
            return item
    return None
