from every_case import every_case
from side_calls import side_reply

from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    Event,
    EventRef,
    ModelReplied,
    ModelSwitched,
    NoteForgotten,
    NoteSaved,
    NotesTaken,
    Recalled,
    SessionOpened,
    Statement,
    Titled,
    ToolReturned,
    TurnEnded,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Fold, Image, Insert, Keep, Mask, Put, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import SessionRow
from palimpsest.core.spending import Ledger, Spending
from palimpsest.stores.index_units import SearchUnit, SessionRowBuilder, search_units


@every_case(
    ("body", "units"),
    [
        (
            UserSaid((Text("fix it"), Image("image/png", "ab"))),
            [SearchUnit("7.0", "user", "fix it"), SearchUnit("7.1", "user", "[image image/png]")],
        ),
        (UserSaid((Text("stop"),), steering=True), [SearchUnit("7.0", "steering", "stop")]),
        (
            ModelReplied((Thinking("hm"), Text("", "assistant"), Text("done", "assistant"), ToolCall("c1", "bash", '{"command":"ls"}'))),
            [
                SearchUnit("7.0", "thinking", "hm"),
                SearchUnit("7.2", "assistant", "done"),
                SearchUnit("7.3", "call", 'bash {"command":"ls"}'),
            ],
        ),
        (ToolReturned(ToolResult("c1", (Text("a"), Text("b")))), [SearchUnit("7.0", "result", "a\nb")]),
        (ContextStated((Statement("git", "on main"),), (Statement("base", "You are"),)), [SearchUnit("7.1", "context", "on main")]),
        (
            ViewEdited((Mask(("1.0",), "gone"), Fold("1.0", "3.0", (Keep("1.0"), Put("summary", Text("what was done"))))), "fold"),
            [SearchUnit("7.1.1", "summary", "what was done")],
        ),
        (ViewEdited((Insert((Put("reminder", Text("look")),)),), "remind"), [SearchUnit("7.0.0", "reminder", "look")]),
        (NotesTaken("we use uv", 5), [SearchUnit("", "note", "we use uv")]),
        (NoteSaved("project", "tooling", 1, "d", reason="said so"), [SearchUnit("", "note", "tooling said so")]),
        (NoteForgotten("project", "tooling", 1, reason="no more"), [SearchUnit("", "note", "tooling no more")]),
        (Recalled("uv", ("n1",), parts=(Text("we use uv"),)), [SearchUnit("7.0", "recalled", "we use uv")]),
        (Titled("Fix the parser", ("bug",)), [SearchUnit("", "title", "Fix the parser bug")]),
        (TurnEnded(), []),
    ],
)
def test_an_event_gives_its_readable_pieces(body: Body, units: list[SearchUnit]) -> None:
    assert list(search_units(Event(7, 6, 0, "", body))) == units


BODIES: tuple[Body, ...] = (
    SessionOpened("one", "/home/me", "claude-code", "palimpsest", "model-a", EventRef("zero", 3, "ab"), EventRef("up", 9)),
    UserSaid((Text("\nfix the parser\nplease"),)),
    ModelReplied((), usage=Usage(10, 100, 20, 0, 5)),
    UserSaid((Text("no"),), steering=True),
    ModelSwitched("model-b"),
    ModelReplied((), usage=Usage(1, output=1)),
    ModelReplied((), usage=Usage(2, output=2)),
    side_reply("title", "model-a", Usage(input=7)),
    UserSaid((Text("thanks"),)),
)


LEDGER = Ledger(
    (
        Spending("model-a", "turn", 1, Usage(10, 100, 20, 0, 5)),
        Spending("model-b", "turn", 2, Usage(3, output=3)),
        Spending("model-a", "title", 1, Usage(7)),
    ),
    model="model-b",
)


def test_a_session_is_counted_in_one_go_or_in_two() -> None:
    events = [Event(seq, seq - 1, 1_000 + seq, "", body) for seq, body in enumerate(BODIES)]
    expected = SessionRow(
        "one",
        "one.jsonl",
        "fix the parser",
        "claude-code",
        "/home/me",
        "model-b",
        "palimpsest",
        created=1_000,
        updated=1_008,
        events=9,
        turns=2,
        tokens=148,
        context=None,
        ledger=LEDGER,
        base=EventRef("zero", 3, "ab"),
        opener=EventRef("up", 9),
    )
    for cut in range(len(events) + 1):
        first = SessionRowBuilder(SessionRow("one", "one.jsonl"))
        for event in events[:cut]:
            first.add(event)
        second = SessionRowBuilder(first.row)
        for event in events[cut:]:
            second.add(event)
        assert second.row == expected


def test_a_given_title_wins_over_what_was_said_first() -> None:
    builder = SessionRowBuilder(SessionRow("one"))
    builder.add(Event(0, -1, 0, "", UserSaid((Text("x" * 100),))))
    said = builder.row.title
    builder.add(Event(1, 0, 0, "", Titled("Parser")))
    assert (said, builder.row.title) == ("x" * 79 + "…", "Parser")


def test_the_context_is_known_only_while_nothing_came_after_a_report_and_the_model_is_that_of_the_last_call() -> None:
    builder = SessionRowBuilder(SessionRow("one"))
    bodies: tuple[Body, ...] = (
        SessionOpened("one"),
        ModelSwitched("model-a"),
        UserSaid((Text("hello"),)),
        CallStarted("model-b", "anthropic"),
        ModelReplied((Text("hi", "assistant"),), usage=Usage(90, output=10)),
        TurnEnded(),
        ViewEdited((Mask(("2.0",)),), by="test", tokens_after=70),
        ViewEdited((Mask(("4.0",)),), by="test"),
    )
    found = []
    for seq, body in enumerate(bodies):
        builder.add(Event(seq, seq - 1, 0, "", body))
        found.append((builder.row.context, builder.row.model))
    assert found == [
        (0, ""),
        (0, "model-a"),
        (None, "model-a"),
        (None, "model-b"),
        (100, "model-b"),
        (100, "model-b"),
        (70, "model-b"),
        (None, "model-b"),
    ]
