import msgspec
import pytest
from histories import Step, new_log, steps, tell
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.events import Body, ModelReplied, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Content, Image, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.lines import encode_body, has_declared_types

ANYTHING = st.sampled_from(["word", "", None, 7, 1.5, True, b"bytes", ("tuple",), "user", "json", "whole"])


def strange_contents() -> st.SearchStrategy[Content]:
    text = st.builds(Text, ANYTHING, ANYTHING, ANYTHING, ANYTHING)
    call = st.builds(ToolCall, ANYTHING, ANYTHING, ANYTHING, ANYTHING, ANYTHING, ANYTHING)
    thought = st.builds(Thinking, ANYTHING, st.none(), ANYTHING, ANYTHING)
    result = st.builds(ToolResult, ANYTHING, st.tuples(text), ANYTHING, ANYTHING, ANYTHING, ANYTHING)
    return st.one_of(text, call, thought, result)


def is_readable(body: Body) -> bool:
    try:
        msgspec.json.decode(encode_body(body), type=type(body))
    except (msgspec.MsgspecError, UnicodeError, TypeError):
        return False
    return True


@given(st.lists(strange_contents(), max_size=3), st.one_of(st.none(), st.just(3), ANYTHING), ANYTHING, ANYTHING)
def test_a_body_with_declared_types_can_be_decoded(parts: list[Content], call: int | None, stop: str, number: int) -> None:
    results = [part for part in parts if isinstance(part, ToolResult)]
    bodies: list[Body] = [
        ModelReplied(tuple(parts), call, Usage(number), stop),
        ModelReplied(tuple(parts), call, Usage(), provider_stop=stop),
        UserSaid(tuple(parts)),  # type: ignore[arg-type]  # strange on purpose
        *(ToolReturned(result, stop) for result in results),
    ]
    for body in bodies:
        assert not has_declared_types(body) or is_readable(body)


@given(steps)
def test_ordinary_large_bodies_pass_the_fast_check(history: list[Step]) -> None:
    bodies = [event.body for event in tell(new_log(), history).events()]
    assert all(has_declared_types(body) for body in bodies if isinstance(body, ModelReplied | ToolReturned | UserSaid))


@pytest.mark.parametrize(
    "body",
    [UserSaid((Image("image/png", blob="x"),)), ModelReplied((Text(None),)), ToolReturned(ToolResult("c", (Text("x", "tool"),)))],  # type: ignore[arg-type]  # wrong on purpose
)
def test_other_contents_and_wrong_types_fail_the_fast_check(body: Body) -> None:
    assert not has_declared_types(body)


@pytest.mark.parametrize(
    ("raw", "valid"),
    [
        (b'{"key":"a","line":[1,{"x":null}]}', True),
        (b'{"key":', False),
        (b'1,"steering":7', False),
        (b'{"a":"\n"}', False),
        (b"", False),
    ],
)
def test_foreign_json_must_be_one_valid_value(raw: bytes, valid: bool) -> None:
    body = UserSaid((Text("word"),), foreign=msgspec.Raw(raw))
    assert has_declared_types(body) == valid
    assert not valid or is_readable(body)
