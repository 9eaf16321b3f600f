"""A list that goes back is sent as what it still shows was sent before: edits of policies are made again, undone ones are not."""

import pytest
from followed_lists import folded, opened
from message_lists import WIRES, Messages, tool_loop, tool_round

from palimpsest.core.events import EditUndone, Rewound, ViewEdited
from palimpsest.core.items import Insert, Mask, Put, Text, ToolResult
from palimpsest.follow.conversation import Conversation
from palimpsest.follow.preparing import end_call
from palimpsest.wire.models import WireName

each_wire = pytest.mark.parametrize("wire", [*WIRES])


def results(conversation: Conversation) -> list[str]:
    return [item.id for item in conversation.session.log.view.items if isinstance(item.content, ToolResult)]


def edit(conversation: Conversation, *edits: Mask | Insert, by: str = "clear_dead") -> int:
    end_call(conversation.session.log)
    return conversation.session.log.append(ViewEdited(edits, by, "dead", "before_call")).seq


def shown(conversation: Conversation) -> list[str | None]:
    return [None if item.mask is None else item.mask.text for item in conversation.session.log.view.items if item.kind == "result"]


def going_on(conversation: Conversation, wire: WireName, count: int = 4) -> tuple[Messages, Messages]:
    """A list of so many rounds that was followed, and another one that goes back to its first half."""
    messages = tool_loop(wire, count)
    for end in range(1, len(messages) + 1):
        conversation.follow(messages[:end])
    conversation.plan(lambda: False)
    kept = messages[: len(messages) - (count // 2) * len(tool_round(wire, 0))]
    return messages, [*kept, {"role": "user", "content": "Another way, please."}]


@each_wire
def test_the_masks_of_what_is_still_shown_stay_when_a_list_goes_back(wire: WireName) -> None:
    with opened(wire) as conversation:
        messages, back = going_on(conversation, wire)
        first, second, third, _ = results(conversation)
        edit(conversation, Mask((first,), "[first]"))
        edit(conversation, Mask((second,), "[second]"), Mask((third,), "[third]"))
        before = list(conversation.follow(messages))
        after = list(conversation.follow(back))
        # A prefix by value of what was sent, and then what is new.
        assert after[:-1] == before[: len(after) - 1]
        assert shown(conversation) == ["[first]", "[second]"]
        again = [each for each in conversation.audit() if not each.undone]
        assert [(each.by, each.price_usd) for each in again] == [("clear_dead", 0.0)]
        assert "made again as in edits" in again[0].why
        # It can be undone as any other edit.
        conversation.undo(again[0])
        assert list(conversation.follow(back)) == back


@each_wire
def test_an_edit_that_was_undone_before_a_list_went_back_stays_undone(wire: WireName) -> None:
    with opened(wire) as conversation:
        messages = tool_loop(wire, 2)
        for end in range(1, len(messages) + 1):
            conversation.follow(messages[:end])
        conversation.plan(lambda: False)
        (first, second) = results(conversation)
        early = edit(conversation, Mask((first,), "[first]"))
        longer = [*messages, *tool_round(wire, 2), *tool_round(wire, 3)]
        for end in range(len(messages) + 1, len(longer) + 1):
            conversation.follow(longer[:end])
        conversation.plan(lambda: False)
        late = edit(conversation, Mask((second,), "[second]"))
        conversation.undo(early)
        conversation.undo(late)
        back = [*longer[: len(messages) + len(tool_round(wire, 2))], {"role": "user", "content": "Another way, please."}]
        assert list(conversation.follow(back)) == back
        assert shown(conversation) == [None, None, None]
        behind = [event.body for event in conversation.session.log.events() if isinstance(event.body, Rewound | EditUndone)]
        assert [type(body) for body in behind] == [Rewound, EditUndone]


@each_wire
def test_a_fold_of_what_is_still_shown_stays_when_a_list_goes_back_and_so_does_what_rests_on_it(wire: WireName) -> None:
    conversation, messages = folded(wire)
    with conversation:
        longer = [*messages, *tool_round(wire, 14)]
        conversation.follow(longer)
        made = next(item.id for item in conversation.session.log.view.items if item.id.count(".") == 2)
        edit(conversation, Insert((Put("user", Text("Mind the tests.")),), before=made), by="reminder")
        before = list(conversation.follow(longer))
        after = list(conversation.follow([*messages, {"role": "user", "content": "Another way, please."}]))
        assert after[:-1] == before[: len(after) - 1]
        assert any("Mind the tests." in str(message) for message in after)
        assert [each.by for each in conversation.audit()] == ["fold", "reminder"]


@each_wire
def test_a_fold_that_also_covers_what_is_gone_is_dropped_when_a_list_goes_back(wire: WireName) -> None:
    conversation, messages = folded(wire)
    with conversation:
        back = [*messages[:3], {"role": "user", "content": "Another way, please."}]
        sent = list(conversation.follow(back))
        assert sent == back
