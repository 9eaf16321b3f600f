"""Survival: how much of a folded span a request still shows."""

import msgspec
import pytest
from corpus import CORPUS, WITHOUT

from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.fold_texts import evidence_block
from palimpsest.audit.loss import ShownCount, Survival, survival_of
from palimpsest.audit.visible import readable_text
from palimpsest.core.events import Body, Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.tokens import estimate
from palimpsest.exchange.finding import find_sources
from palimpsest.exchange.formats import FORMATS, format_named
from palimpsest.exchange.importing import import_session
from palimpsest.stores.home import Home


def events(*bodies: Body) -> list[Event]:
    return [Event(seq, seq - 1, seq, "", body) for seq, body in enumerate(bodies)]


def call(call_id: str, tool: str, **args: object) -> ModelReplied:
    return ModelReplied((ToolCall(call_id, tool, msgspec.json.encode(args).decode()),))


def back(call_id: str, text: str, code: int | None = None) -> ToolReturned:
    return ToolReturned(ToolResult(call_id, (Text(text),)), exit=code)


SPAN = events(
    UserSaid((Text("Never push to main. " + "The server is slow. " * 5),)),
    call("1", "Edit", file_path="/repo/src/a.py", old_string="x", new_string="y"),
    back("1", "ok"),
    call("2", "Read", file_path="/repo/docs/b.md"),
    back("2", "line 4711"),
    call("3", "Bash", command="make all"),
    back("3", "", 0),
)


def test_what_shows_in_any_of_the_ways_that_count_survives() -> None:
    texts = ["src/a.py and /repo/docs/b.md", "[0] make all", '(0.0) "Never push to main. The server is slow. T…"', "4711"]
    body = msgspec.json.encode({"messages": [{"role": "user", "content": text} for text in texts]})
    assert survival_of(SPAN, body) == Survival(ShownCount(1, 1), ShownCount(1, 1), ShownCount(1, 1), ShownCount(1, 1), ShownCount(1, 1))


def test_what_does_not_show_is_counted_as_gone() -> None:
    assert survival_of(SPAN, b"{}") == Survival(ShownCount(0, 1), ShownCount(0, 1), ShownCount(0, 1), ShownCount(0, 1), ShownCount(0, 1))


def test_an_opening_without_its_id_is_no_message() -> None:
    assert survival_of(SPAN, "Never push to main. The server is slow. The").messages == ShownCount(0, 1)


def test_a_message_of_several_parts_shows_when_all_of_them_do_or_by_its_id_and_opening() -> None:
    span = events(UserSaid((Text("look at this picture"), Text("and at that one"))))
    assert survival_of(span, "and at that one, look at this picture").messages == ShownCount(1, 1)
    assert survival_of(span, "0.0: look at this picture and at that one").messages == ShownCount(1, 1)
    assert survival_of(span, "look at this picture").messages == ShownCount(0, 1)


def test_only_commands_of_the_last_three_turns_count() -> None:
    turns = events(
        UserSaid((Text("one"),)),
        call("1", "Bash", command="old thing"),
        back("1", "", 0),
        *(UserSaid((Text(word),)) for word in ("two", "three", "four")),
        call("2", "Bash", command="new thing"),
        back("2", "", 0),
    )
    assert survival_of(turns, "new thing").commands == ShownCount(1, 1)
    assert survival_of(turns, "new thing", turns_begin=0).commands == ShownCount(1, 2)


def test_arguments_of_calls_are_read_as_they_travel_within_a_request() -> None:
    inner = msgspec.json.encode({"command": 'echo "hi"\nls'}).decode()
    body = msgspec.json.encode({"input": [{"type": "function_call", "arguments": inner}]})
    span = events(call("1", "Bash", command='echo "hi"\nls'), back("1", "", 0))
    assert survival_of(span, body).commands == ShownCount(1, 1)


def test_shares_are_pooled_by_adding() -> None:
    assert (Survival(read=ShownCount(1, 2)) + Survival(read=ShownCount(2, 2))).read == ShownCount(3, 4)
    assert ShownCount(3, 4).ratio == 0.75
    assert ShownCount().ratio == 1.0


def tail_of(span: list[Event], room: int) -> dict[int, str]:
    """The newest texts and calls by event, as many as fit."""
    texts: dict[int, str] = {}
    for event in reversed(span):
        body = event.body
        parts = body.parts if isinstance(body, ModelReplied) else (body.result,) if isinstance(body, ToolReturned) else ()
        text = "\n".join(readable_text(part) for part in parts)
        room -= estimate(text)
        if room < 0:
            break
        texts[event.seq] = text
    return texts


@pytest.mark.skipif(not CORPUS.is_dir(), reason=WITHOUT)
@pytest.mark.states("PA-14")
def test_of_real_sessions_evidence_messages_and_tail_show_what_the_bars_demand() -> None:
    home = Home.in_memory()
    pooled = Survival()
    for source in find_sources(FORMATS, [CORPUS]).sources:
        import_session(format_named(source.format), source, home.store, home.blobs, home.clock)
    for session in home.store.sessions():
        with home.open(session, write=False) as log:
            span = list(log.reader.run(log.reader.first, log.tip))
        tally = EvidenceProjection()
        for event in span:
            tally.take(event)
        evidence = tally.value()
        said = [part.text for event in span if isinstance(event.body, UserSaid) for part in event.body.parts if isinstance(part, Text)]
        tail = tail_of(span, 15_000)
        # A fold gives commands half of the room for names too, where they need it.
        block = evidence_block(evidence, 5_200, elsewhere=tail.keys())
        pooled += survival_of(span, "\n".join((*said, block, *tail.values())))
    assert pooled.edited.ratio >= 0.99
    assert pooled.read.ratio >= 0.90
    assert pooled.commands.ratio >= 0.95
    assert pooled.messages.ratio == 1.0
