"""A fold keeps what it keeps with unique ids, whatever ids a provider gives its calls."""

from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st
from legacy_logs import recorded
from workplace import START, offline, reply, say, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.core.events import Body, CallStarted, Event, ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult, text_of
from palimpsest.policies.named import PROFILES, profile
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.wire.models import card

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


@every_case("name", sorted(set(PROFILES) - {"none"}))
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
    replies = (event.body for event in careless.log.events() if isinstance(event.body, ModelReplied))
    # The recorded ids are unique; another provider may have sent just these, and their letters count as tokens.
    recorded_ids = [part.call_id for body in replies for part in body.parts if isinstance(part, ToolCall)]
    unique = folded("palimpsest", [(call_id, lines) for call_id, (_, lines) in zip(recorded_ids, reads, strict=True)])
    assert shown(careless) == shown(unique)


Round = list[tuple[str, int]]


def of_0_1_0(name: str, rounds: list[Round]) -> Session:
    """A log of 0.1.0 with some rounds of reads, in which ids are as the provider gave them, resumed and folded."""
    model = card("claude-sonnet-4-5")
    told: list[Body] = [UserSaid((Text("read all of it, and change nothing in src/f1.py"),))]
    for number, reads in enumerate(rounds):
        calls = [ToolCall(call_id, "Read", f'{{"file_path":"src/f{number}_{place}.py"}}') for place, (call_id, _) in enumerate(reads)]
        told += [CallStarted(model.name, model.wire), ModelReplied((Text(f"I read f{number}.", "assistant"), *calls))]
        for place, (call_id, lines) in enumerate(reads):
            told.append(ToolReturned(ToolResult(call_id, (Text(f"value_{number}_{place} = {number}\n" * lines),)), tool="Read"))
    told += [CallStarted(model.name, model.wire), ModelReplied((Text("I have read value_1_0 in src/f1_0.py.", "assistant"),))]
    store = recorded(*told, opened=SessionOpened("s", cwd="/repo", model=model.name, profile=name))
    session = Session.resume("s", profile(name), model, Environment(store, MemoryBlobs(), FixedClock(START, 1_000), offload=inline))
    offline(session, run_policies(session, "asked"))
    return session


def renamed(rounds: list[Round]) -> list[Round]:
    """The same rounds with unique ids, as long as the others, for their letters count."""
    return [[(f"{number:03}_{place:02}", lines) for place, (_, lines) in enumerate(reads)] for number, reads in enumerate(rounds)]


@every_case("name", sorted(set(PROFILES) - {"none"}))
@every_case("rounds", [[[("call_0", 120)]] * 18, [[("call_0", 120)] * 3] * 6])
def test_a_log_of_0_1_0_with_one_id_folds_to_what_it_folds_to_with_unique_ids(name: str, rounds: list[Round]) -> None:
    careless, unique = of_0_1_0(name, rounds), of_0_1_0(name, renamed(rounds))
    assert shown(careless) == shown(unique)
    assert careless.derived.evidence.value() == unique.derived.evidence.value()
    assert careless.derived.uses.value() == unique.derived.uses.value()


@settings(max_examples=25)
@given(st.lists(st.lists(st.tuples(st.sampled_from(("call_0", "call_1")), st.integers(1, 150)), min_size=1, max_size=3), max_size=10))
def test_a_log_of_0_1_0_with_repeated_ids_folds_to_what_it_folds_to_with_unique_ids(rounds: list[Round]) -> None:
    careless, unique = of_0_1_0("palimpsest", rounds), of_0_1_0("palimpsest", renamed(rounds))
    assert shown(careless) == shown(unique)
    assert careless.derived.evidence.value() == unique.derived.evidence.value()
    assert careless.derived.uses.value() == unique.derived.uses.value()
