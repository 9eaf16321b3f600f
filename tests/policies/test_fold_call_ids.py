"""A fold keeps what it keeps with unique ids, whatever ids a provider gives its calls."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workplace import offline, reply, say, work

from palimpsest.core.events import Event, ModelReplied, ToolReturned
from palimpsest.core.items import Text, ToolCall, ToolResult, text_of
from palimpsest.engine.policies import run_policies
from palimpsest.engine.session import Session
from palimpsest.profiles.named import PROFILES, profile

IDS = ("", "call_0", "call_1", "other")


def read(session: Session, call_id: str, number: int, lines: int) -> Event:
    """The model reads a file; the result comes under the id that was recorded, as the engine hands it to the tool."""
    asked = reply(session, ToolCall(call_id, "Read", f'{{"file_path":"src/f{number}.py"}}'))
    assert isinstance(asked.body, ModelReplied)
    (call,) = (part for part in asked.body.parts if isinstance(part, ToolCall))
    text = f"value_{number} = {number}\n" * lines
    return session.log.append(ToolReturned(ToolResult(call.call_id, (Text(text),)), tool="Read"))


def folded(name: str, reads: list[tuple[str, int]]) -> Session:
    session = work(profile(name))
    say(session, "read all of it, and change nothing in src/f1.py")
    for number, (call_id, lines) in enumerate(reads):
        read(session, call_id, number, lines)
    reply(session, Text("I have read all files.", "assistant"))
    offline(session, run_policies(session, "asked"))
    return session


def shown(session: Session) -> list[tuple[str, str, str]]:
    return [(item.id, item.kind, text_of(item.content)) for item in session.log.view.items]


@pytest.mark.parametrize("name", sorted(set(PROFILES) - {"none"}))
def test_eighteen_reads_with_one_id_fold_to_what_they_fold_to_with_unique_ids(name: str) -> None:
    careless = folded(name, [("call_0", 120)] * 18)
    unique = folded(name, [(f"toolu_{number}", 120) for number in range(18)])
    assert shown(careless) == shown(unique)
    # Some profiles count the ids themselves, which differ in length.
    assert abs(careless.used - unique.used) <= 18
    assert careless.derived.evidence.value() == unique.derived.evidence.value()


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(IDS), st.integers(1, 150)), min_size=1, max_size=14))
def test_a_fold_keeps_with_repeated_and_missing_ids_what_it_keeps_with_unique_ones(reads: list[tuple[str, int]]) -> None:
    careless = folded("palimpsest", reads)
    unique = folded("palimpsest", [(f"toolu_{number}", lines) for number, (_, lines) in enumerate(reads)])
    assert shown(careless) == shown(unique)
