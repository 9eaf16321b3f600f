"""Fragments as messages of user and assistant in turn, each call answered in the message after it."""

from typing import TypeAlias

from palimpsest.wire.fragments import Fragment, Place

Message: TypeAlias = tuple[bool, list[Fragment]]
"""Whether the model says it, and what is said: results of the calls before it first, in the order of the calls."""


def alternate(fragments: list[Fragment]) -> list[Message]:
    """Messages of both sides in turn. Thoughts open their message; those that nothing follows are left out."""
    user, result, thinking, call = Place.USER, Place.RESULT, Place.THINKING, Place.CALL
    answers = {fragment.wire_id: fragment for fragment in fragments if fragment.place == result}
    messages: list[Message] = []
    blocks: list[Fragment] = []
    calls: list[Fragment] = []
    thoughts: list[Fragment] = []
    said: bool | None = None
    for fragment in fragments:
        place = fragment.place
        if place > result:
            if place == thinking:
                thoughts.append(fragment)
                continue
            if said is not True:
                said = True
                blocks = []
                messages.append((True, blocks))
            if thoughts:
                _place_thoughts(blocks, thoughts)
                thoughts = []
            blocks.append(fragment)
            if place == call:
                calls.append(fragment)
        elif place == user or (place == result and calls):
            if said is not False:
                said = False
                thoughts = []
                blocks = [answers[each.wire_id] for each in calls]
                calls = []
                messages.append((False, blocks))
            if place == user:
                blocks.append(fragment)
    if calls:
        messages.append((False, [answers[each.wire_id] for each in calls]))
    return messages


def _place_thoughts(blocks: list[Fragment], thoughts: list[Fragment]) -> None:
    if blocks and blocks[0].place != Place.THINKING:
        blocks[0:0] = thoughts
    else:
        blocks.extend(thoughts)
