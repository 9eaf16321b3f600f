"""Anthropic's context editing clears all tool results but the newest, once the input has reached its trigger."""

from workplace import offline, reply, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.events import ViewEdited
from palimpsest.core.items import Item, Mask, Text, ToolCall, ToolResult
from palimpsest.core.view import shown
from palimpsest.peers.clearing import CLEARED
from palimpsest.policies.named import profile
from palimpsest.wire.encode import encode


def at_work(**settings: str) -> Session:
    session = work(profile("context-editing", {f"clear_tool_uses.{name}": value for name, value in settings.items()}))
    say(session, "go on")
    return session


def cleared(session: Session, uses: int, tokens: int = 10_000, tool: str = "Bash") -> list[tuple[str, ...]]:
    """Use a tool so many times, each with a result of three characters a token; what is cleared before each next call."""
    found: list[tuple[str, ...]] = []
    started = sum(isinstance(item.content, ToolCall) for item in session.log.view.items)
    for number in range(started, started + uses):
        use(session, f"c{number}", tool, "{}", "x" * (3 * tokens))
        ran = offline(session, run_policies(session, "before_call"))
        found.append(tuple(_call_id(session, name) for event in ran.edited for name in _masked(event.body)))
    return found


def _masked(body: object) -> tuple[str, ...]:
    return tuple(name for edit in body.edits if isinstance(edit, Mask) for name in edit.ids) if isinstance(body, ViewEdited) else ()


def _call_id(session: Session, item_id: str) -> str:
    content = _item(session, item_id).content
    assert isinstance(content, ToolCall | ToolResult)
    return f"{type(content).__name__} {content.call_id}"


def _item(session: Session, item_id: str) -> Item:
    return next(item for item in session.log.view.items if item.id == item_id)


def test_nothing_is_cleared_below_the_trigger() -> None:
    assert cleared(at_work(), 9) == [()] * 9


def test_from_the_trigger_on_all_but_three_are_cleared_and_then_one_more_with_every_call() -> None:
    first, *later = cleared(at_work(), 13)[9:]
    assert first == tuple(f"ToolResult c{number}" for number in range(7))
    assert later == [("ToolResult c7",), ("ToolResult c8",), ("ToolResult c9",)]


def test_what_is_cleared_sticks_until_what_is_left_reaches_the_trigger_again() -> None:
    found = cleared(at_work(sticky="on", clear_at_least="20000"), 20)
    assert [(number, len(names)) for number, names in enumerate(found) if names] == [(9, 7), (19, 10)]


def test_nothing_is_cleared_that_frees_too_little() -> None:
    assert cleared(at_work(trigger="30000", clear_at_least="20000"), 5, 14_000)[3:] == [(), ("ToolResult c0", "ToolResult c1")]


def test_results_of_excluded_tools_stay() -> None:
    session = at_work(trigger="30000", keep="1", exclude_tools="Read+Grep")
    assert cleared(session, 2, tool="Read") == [(), ()]
    assert cleared(session, 3) == [(), ("ToolResult c2",), ("ToolResult c3",)]


def test_the_inputs_of_the_calls_are_cleared_if_that_is_set_and_requests_stay_well_formed() -> None:
    session = at_work(trigger="30000", clear_tool_inputs="on")
    names = cleared(session, 4)[3]
    reply(session, Text("done", "assistant"))
    call, result = session.log.view.items[1:3]

    assert names == ("ToolCall c0", "ToolResult c0")
    assert shown(call) == ToolCall("c0", "Bash", '{"note":"[Old tool result content cleared]"}')
    assert shown(result) == ToolResult("c0", (Text(CLEARED),))
    assert b'"input":{"note":"[Old tool result content cleared]"}' in encode(session.log.view, session.card).body
