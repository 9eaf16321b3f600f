from pathlib import Path

import msgspec
import pytest
from corpus import CORPUS, WITHOUT
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from recorded import synthetic_session

from pal.replay.outcome import Purpose
from pal.replay.recording import LoadedSession, RecordedSession, RecordingIndex, Step, load_foreign
from pal.replay.simulation import BlockLayout, CacheSimulator, Simulation
from palimpsest.core.events import CallStarted, ModelReplied, Usage
from palimpsest.core.items import Cover, Item, Text, ToolCall, ToolResult
from palimpsest.core.plans import complete
from palimpsest.core.view import View
from palimpsest.exchange.finding import find_sources
from palimpsest.exchange.formats import FORMATS
from palimpsest.policies.named import PROFILES, profile
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card
from palimpsest.wire.request import Params

SONNET = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
HEAD = (Item("1.0", "context", Text("system", "system")),)
SIZES = {"1.0": 2_000, "2.0": 500, "3.0": 100, "4.0": 3_000, "5.0": 50, "6.0": 700}
CALL = ToolCall("c", "Bash", "{}")
ITEMS = (
    Item("2.0", "user", Text("do it")),
    Item("3.0", "call", CALL),
    Item("4.0", "result", ToolResult("c", (Text("much"),))),
    Item("5.0", "assistant", Text("done", "assistant")),
    Item("6.0", "user", Text("again")),
)


def _weigh(item: Item) -> int:
    return 20 if item.mask is not None else SIZES[item.id]


def test_what_was_sent_before_is_read_and_the_rest_is_written() -> None:
    simulator = CacheSimulator(SONNET, _weigh)

    assert simulator.turn(View(HEAD, ITEMS[:1]), Params(), 0) == Usage(0, 0, 2_500)
    assert simulator.turn(View(HEAD, ITEMS[:3]), Params(), 1_000) == Usage(0, 2_500, 3_100)
    assert simulator.turn(View(HEAD, ITEMS), Params(), 2_000) == Usage(0, 5_600, 750)


def test_an_hour_costs_more_and_lasts_longer() -> None:
    short, long = CacheSimulator(SONNET, _weigh), CacheSimulator(SONNET, _weigh)
    hour = Params(ttl="1h")
    short.turn(View(HEAD, ITEMS[:1]), Params(), 0)
    long.turn(View(HEAD, ITEMS[:1]), hour, 0)

    assert short.turn(View(HEAD, ITEMS[:3]), Params(), 300_000) == Usage(0, 0, 5_600)
    assert long.turn(View(HEAD, ITEMS[:3]), hour, 300_000) == Usage(0, 2_500, 0, 3_100)
    # Each request has a lifetime of its own.
    assert long.turn(View(HEAD, ITEMS), Params(), 600_000) == Usage(0, 5_600, 750)


def test_a_mask_breaks_what_stands_behind_it() -> None:
    simulator = CacheSimulator(SONNET, _weigh)
    simulator.turn(View(HEAD, ITEMS[:1]), Params(), 0)
    simulator.turn(View(HEAD, ITEMS[:3]), Params(), 1_000)
    masked = (*ITEMS[:2], replace(ITEMS[2], mask=Cover("[gone]")), *ITEMS[3:])

    assert simulator.turn(View(HEAD, masked), Params(), 2_000) == Usage(0, 2_500, 870)
    # A cached cover leaves the bytes as they are, so that the prefix still matches.
    cached = (*ITEMS[:2], replace(ITEMS[2], mask=Cover("", "cached")), *ITEMS[3:])
    assert CacheSimulator(SONNET, _weigh).size(View(HEAD, cached)) == 2_000 + 500 + 100 + 20 + 50 + 700


def test_an_automatic_cache_reads_in_whole_steps_and_takes_no_marks() -> None:
    simulator = CacheSimulator(GPT, _weigh)
    simulator.turn(View(HEAD, ITEMS[:1]), Params(), 0)
    second = simulator.turn(View(HEAD, ITEMS[:3]), Params(), 1_000)

    assert simulator.breakpoints(View(HEAD, ITEMS[:3]), Params()) == ()
    assert second.cache_read == 2_500 // 128 * 128
    assert second.prompt == 5_600


def test_a_summary_reads_what_the_conversation_left_in_the_cache() -> None:
    simulator = CacheSimulator(SONNET, _weigh)
    simulator.turn(View(HEAD, ITEMS[:3]), Params(), 0)
    question = Item("6.0", "user", Text("again"))

    assert simulator.aside(View(HEAD, (*ITEMS[:3], question)), Params(), 1_000) == Usage(0, 5_600, 700)
    assert simulator.aside(View(items=(question,)), Params(), 1_000) == Usage(700)


@every_case("name", PROFILES)
def test_marks_stand_where_the_wire_would_put_them(name: str) -> None:
    assert _same_marks(synthetic_session(2, 400), name) > 25


@pytest.mark.skipif(not CORPUS.is_dir(), reason=WITHOUT)
def test_marks_of_a_real_session_stand_where_the_wire_would_put_them() -> None:
    source = next(iter(find_sources(FORMATS, [_smallest(CORPUS / "claude-code")]).sources))
    taken = load_foreign(source)
    assert isinstance(taken, LoadedSession)
    for name in ("palimpsest", "claude-code-2.1.325", "opencode-1.18"):
        assert _same_marks(taken.recording, name) == len(taken.recording.steps)


def _smallest(folder: Path) -> Path:
    return min(folder.iterdir(), key=lambda path: path.stat().st_size)


def _same_marks(recording: RecordedSession, name: str) -> int:
    """Walk a recording as a replay does and compare the breakpoints of each request with those that encoding it gives."""
    simulation = Simulation(recording, RecordingIndex(recording.steps), profile(name), SONNET, "5m")
    session = simulation.session
    for step in recording.steps:
        simulation.environment.clock.time = step.at
        for inputs in step.inputs:
            session.log.append(inputs.body)
        encoded: list[tuple[str, ...]] = []

        def answer(view: View, step: Step = step, encoded: list[tuple[str, ...]] = encoded) -> tuple[ModelReplied, int, Purpose]:
            call = session.log.event(session.log.tip).body
            assert isinstance(call, CallStarted)
            params = msgspec.json.decode(call.params, type=Params)
            encoded.append(encode(view, SONNET, (), params, session.environment.blobs.get).breakpoints)
            return step.reply, step.output, "turn"

        simulation.answer = answer
        complete(simulation.call())
        call = session.log.view.call
        assert call is not None
        assert [call.breakpoints] == encoded
    return len(recording.steps)


@given(st.lists(st.tuples(st.lists(st.sampled_from(range(8)), max_size=8, unique=True), st.sampled_from((None, "", "[gone]"))), max_size=6))
def test_a_layout_that_followed_edits_is_the_one_made_at_once(views: list[tuple[list[int], str | None]]) -> None:
    contents = (Text("u"), Text("a", "assistant"), CALL, ToolResult("c"))
    plain = [Item(f"{number}.0", "user", contents[number % 4]) for number in range(8)]
    followed = BlockLayout(lambda item: len(item.id))
    for places, text in views:
        cover = None if text is None else Cover(text)
        items = tuple(replace(plain[place], mask=cover) if place % 3 == 0 and cover is not None else plain[place] for place in places)
        followed.update(HEAD, items)
        anew = BlockLayout(lambda item: len(item.id))
        anew.update(HEAD, items)
        assert (followed.blocks, followed.messages, followed.starts, followed.fragments) == (
            anew.blocks,
            anew.messages,
            anew.starts,
            anew.fragments,
        )
