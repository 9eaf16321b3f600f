"""The statement MI-04: what the owner of a list changes in its past is recorded as the owner's edit, and the next list is still right."""

import json
from copy import deepcopy
from typing import Any

import anthropic.types
import pytest
from followed_lists import SYSTEM, folded, new_events, opened
from message_lists import WIRES, Messages, source_of, tool_loop, tool_round
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from palimpsest.core.errors import BadInput
from palimpsest.core.events import ModelReplied, Rewound, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import text_of
from palimpsest.wire.models import WireName

each_wire = pytest.mark.parametrize("wire", [*WIRES])


@each_wire
@pytest.mark.states("MI-04")
def test_a_shortened_list_is_a_rewind_and_the_next_list_is_right(wire: WireName) -> None:
    messages = tool_loop(wire, 3)
    asked = [*messages, {"role": "user", "content": "Do it in C."}]
    other = [*messages, {"role": "user", "content": "Do it in Rust."}]
    with opened(wire) as conversation:
        conversation.prepare(messages)
        conversation.prepare(asked)
        tip = conversation.session.log.tip
        assert conversation.prepare(other) is other
        assert [type(event.body) for event in new_events(conversation, tip)][:2] == [Rewound, UserSaid]
        assert conversation.prepare(other) is other


@each_wire
@pytest.mark.states("MI-04")
def test_messages_that_the_owner_replaced_by_one_are_its_fold_in_the_audit(wire: WireName) -> None:
    messages = tool_loop(wire, 4)
    count = len(tool_round(wire, 0))
    shorter = [{"role": "user", "content": "Three parts were read."}, *messages[-count:]]
    with opened(wire) as conversation:
        conversation.prepare(messages)
        assert conversation.prepare(shorter) is shorter
        assert [(edit.by, edit.why) for edit in conversation.audit()] == [
            ("owner", f"{len(messages) - count} messages were replaced by 1 in the list")
        ]
        longer = [*shorter, *tool_round(wire, 4)]
        assert conversation.prepare(longer) is longer
        assert [edit.by for edit in conversation.audit()] == ["owner"]


@each_wire
@pytest.mark.states("MI-04")
def test_what_the_owner_changed_in_the_list_is_not_undone_beside_it(wire: WireName) -> None:
    messages = tool_loop(wire, 4)
    shorter = [{"role": "user", "content": "Three parts were read."}, *messages[-len(tool_round(wire, 0)) :]]
    with opened(wire) as conversation:
        conversation.prepare(messages)
        conversation.prepare(shorter)
        [edit] = conversation.audit()
        with pytest.raises(BadInput, match=f"edit {edit.event} was made in the list by its owner: change the list instead"):
            conversation.undo(edit)
        longer = [*shorter, *tool_round(wire, 4)]
        assert conversation.prepare(longer) is longer
        assert (conversation.reason, [each.undone for each in conversation.audit()]) == ("", [False])


@each_wire
@pytest.mark.states("MI-04")
def test_a_message_that_stands_for_all_after_the_first_one_is_the_owners_fold_each_time(wire: WireName) -> None:
    lead: Messages = [] if wire == "anthropic" else [SYSTEM]
    messages = [*lead, *tool_loop(wire, 4)]
    with opened(wire) as conversation:
        conversation.prepare(messages[: len(lead) + 1])
        conversation.prepare(messages)
        shorter = messages[: len(lead) + 1]
        for number, dropped in ((1, len(tool_loop(wire, 4)) - 1), (2, 1 + len(tool_round(wire, 5)))):
            said = {"role": "user", "content": f"{number} parts were read."}
            shorter = [*messages[: len(lead) + 1], said, *tool_round(wire, 4 + number)]
            assert conversation.prepare(shorter) is shorter
            assert conversation.audit()[-1].why == f"{dropped} messages were replaced by 1 in the list"
        assert [(edit.by, edit.undone) for edit in conversation.audit()] == [("owner", False), ("owner", False)]
        bodies = [event.body for event in conversation.session.log.events()]
        assert [body for body in bodies if isinstance(body, Rewound)] == []
        # What the owner folded is still there to be recalled, and the rounds after it are events of their own.
        assert "return value + 2" in conversation.recall("part_2")
        assert len([body for body in bodies if isinstance(body, ToolReturned)]) == 6


@each_wire
@pytest.mark.states("MI-04")
def test_another_message_in_the_place_of_a_reply_is_a_rewind(wire: WireName) -> None:
    messages = tool_loop(wire, 1)[:-1]
    other = [messages[0], {"role": "user", "content": "Wait, in Rust."}]
    with opened(wire) as conversation:
        conversation.prepare(messages[:1])
        conversation.prepare(messages)
        tip = conversation.session.log.tip
        assert conversation.prepare(other) is other
        assert [type(event.body) for event in new_events(conversation, tip)][:2] == [Rewound, UserSaid]


MESSAGE = "Next comes part 1."
# What a loop appends that keeps the objects of its SDK, and how it finds the text in the last of them.
OBJECTS: dict[WireName, tuple[Messages, Any]] = {
    "anthropic": (
        [{"role": "assistant", "content": [anthropic.types.TextBlock(type="text", text=MESSAGE)]}],
        lambda messages: messages[-1]["content"][0],
    ),
    "chat": ([ChatCompletionMessage(role="assistant", content=MESSAGE)], lambda messages: messages[-1]),
    "responses": (
        [
            ResponseOutputMessage(
                id="m",
                type="message",
                role="assistant",
                status="completed",
                content=[ResponseOutputText(type="output_text", text=MESSAGE, annotations=[])],
            )
        ],
        lambda messages: messages[-1].content[0],
    ),
}


@each_wire
@pytest.mark.states("MI-04")
def test_an_object_of_an_sdk_that_is_changed_in_place_is_the_owners_edit(wire: WireName) -> None:
    objects, found = OBJECTS[wire]
    messages = [*tool_loop(wire, 2), *deepcopy(objects)]
    field = "content" if wire == "chat" else "text"
    with opened(wire) as conversation:
        conversation.prepare(messages)
        tip = conversation.session.log.tip
        conversation.prepare(messages)
        assert conversation.session.log.tip == tip
        setattr(found(messages), field, "Part 1 is gone.")
        messages.append({"role": "user", "content": "Go on."})
        assert conversation.prepare(messages) is messages
        assert [text_of(item.content) for item in conversation.session.log.view.items][-2:] == ["Part 1 is gone.", "Go on."]


@pytest.mark.states("MI-04")
def test_a_result_that_the_owner_cleared_is_its_mask_in_the_audit() -> None:
    messages = tool_loop("anthropic", 4)
    with opened("anthropic") as conversation:
        conversation.prepare(messages)
        messages[2]["content"][0]["content"] = "[cleared]"
        assert conversation.prepare(messages) is messages
        assert [(edit.by, edit.why) for edit in conversation.audit()] == [("owner", "1 texts were replaced in the list")]
        assert conversation.prepare(messages) is messages
        assert len(conversation.audit()) == 1


@each_wire
@pytest.mark.states("MI-04")
def test_results_that_the_owner_cleared_while_its_list_grew_are_its_masks_and_only_what_is_new_is_appended(wire: WireName) -> None:
    messages = tool_loop(wire, 4)
    results = [place for place, message in enumerate(messages) if source_of(1) in json.dumps(message).replace("\\n", "\n")]
    with opened(wire) as conversation:
        conversation.prepare(messages)
        tip = conversation.session.log.tip
        grown = json.loads(json.dumps(messages).replace(json.dumps(source_of(1))[1:-1], "[cleared]"))
        grown += tool_round(wire, 4)
        assert [place for place, (one, other) in enumerate(zip(messages, grown, strict=False)) if one != other] == results
        assert conversation.prepare(grown) is grown
        kinds = [type(event.body) for event in new_events(conversation, tip)]
        assert [kind for kind in kinds if kind in (ViewEdited, Rewound, ModelReplied, ToolReturned)] == [
            ViewEdited,
            ModelReplied,
            ToolReturned,
        ]
        assert [edit.by for edit in conversation.audit()] == ["owner"]


@pytest.mark.states("MI-04")
def test_a_result_that_the_owner_clears_where_it_was_folded_leaves_the_fold_as_it_is() -> None:
    conversation, messages = folded("anthropic")
    before = json.dumps(conversation.prepare(messages))
    messages[2]["content"][0]["content"] = "[cleared]"
    assert json.dumps(conversation.prepare(messages)) == before
    assert [(edit.by, edit.undone) for edit in conversation.audit()] == [("fold", False)]


@each_wire
@pytest.mark.states("MI-04")
def test_an_own_fold_is_undone_where_the_owner_changes_what_it_folded(wire: WireName) -> None:
    conversation, _ = folded(wire)
    shorter = [{"role": "user", "content": "All parts were read."}]
    assert conversation.prepare(shorter) is shorter
    assert [(edit.by, edit.undone) for edit in conversation.audit()] == [("fold", True), ("owner", False)]


@each_wire
@pytest.mark.states("MI-04")
def test_an_own_fold_stays_where_the_owner_changes_what_came_after_it(wire: WireName) -> None:
    conversation, messages = folded(wire)
    first, last = conversation.prepare(messages), tool_round(wire, 15, 5)
    said = {"role": "user", "content": "Part 14 was read."}
    conversation.prepare([*messages, *tool_round(wire, 14, 5), *last])
    assert conversation.prepare([*messages, said, *last]) == [*first, said, *last]
    assert [(edit.by, edit.undone) for edit in conversation.audit()] == [("fold", False), ("owner", False)]
