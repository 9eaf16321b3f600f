from palimpsest.core.deltas import CallDelta, TextDelta, ThinkingDelta, deltas_of
from palimpsest.core.items import Content, Opaque, Text, Thinking, ToolCall

PARTS: tuple[Content, ...] = (
    Thinking("Two files."),
    Thinking("", form="sealed"),
    Text("Reading", role="assistant"),
    Opaque("openai", "gpt-5.5", "{}", "[search]"),
    ToolCall("c1", "read", '{"a":1}'),
    ToolCall("c2", "todo", ""),
)


def test_a_complete_reply_has_one_delta_for_a_part_and_two_for_a_call() -> None:
    assert list(deltas_of(PARTS)) == [
        ThinkingDelta("Two files."),
        TextDelta("Reading"),
        CallDelta("c1", "read", ""),
        CallDelta("c1", "read", '{"a":1}'),
        CallDelta("c2", "todo", ""),
    ]


def test_deltas_are_split_into_fragments_of_the_given_size() -> None:
    assert list(deltas_of(PARTS, 4)) == [
        ThinkingDelta("Two "),
        ThinkingDelta("file"),
        ThinkingDelta("s."),
        TextDelta("Read"),
        TextDelta("ing"),
        CallDelta("c1", "read", ""),
        CallDelta("c1", "read", '{"a"'),
        CallDelta("c1", "read", ":1}"),
        CallDelta("c2", "todo", ""),
    ]
