"""Compaction by the provider against the strict double: what it signs goes back as it was, and the thinking behind it stays valid."""

import asyncio
import random
from itertools import count

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from left_out import needless
from strict_session import strict_session, turn
from workplace import say

from palimpsest.agent.calls import compact
from palimpsest.agent.session import Session
from palimpsest.core.errors import BadInput
from palimpsest.core.events import CallStarted, UserSaid, ViewEdited
from palimpsest.core.items import Image, Text, text_of
from palimpsest.core.undo import undo
from palimpsest.policies.named import profile
from palimpsest.policies.provider_compact import NAME
from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks

SUMMARY = "They looked at both folders."


def compactions(session: Session) -> list[int]:
    """The events of the compactions that hold."""
    undone = session.log.reader.undone_edits(session.log.path)
    found = [event for event in session.log.events() if isinstance(event.body, ViewEdited) and event.body.by == NAME]
    return [event.seq for event in found if event.seq not in undone]


def withheld(session: Session) -> tuple[str, ...]:
    """The thinking that the newest request left out."""
    starts = [event.body for event in session.log.events() if isinstance(event.body, CallStarted)]
    return starts[-1].withheld


@pytest.mark.states("PV-41", "PV-42", "PV-44")
def test_the_thinking_behind_a_compaction_is_sent_and_accepted_also_behind_a_second_one() -> None:
    looks = ([thinks("look"), calls("ls", path="a")], [thinks("again"), calls("cat", path="b")], [thinks("done"), says("Both.")])
    double = StrictProvider([*looks * 4], thinks=False, summary=SUMMARY)
    session = strict_session(double, profile=profile("provider"))
    say(session, "look at both " + "and more " * 400)
    for _ in range(2):
        turn(session)
        turn(session)
        asyncio.run(compact(session))
        assert len(compactions(session)) == 1 + bool(compactions(session)[1:])
        turn(session)
        assert withheld(session) == ()
        sent = double.records[-1].thinking_sent
        assert sent == 1, "the reply whose request was compacted still has its thinking"
        say(session, "and on " * 400)
    assert dict(double.counts.refused) == {}
    assert needless(double) == []
    assert double.counts.thinking_dropped == 0
    [block] = [item for item in session.log.view.items if item.kind == "summary"]
    assert block is session.log.view.items[0]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(219, "provider", ["turn", "turn", "pin", "compact", "compact"])
@given(
    st.integers(0, 2**32),
    st.sampled_from(("provider", "provider@compaction.trigger=900")),
    st.lists(st.sampled_from(("turn", "turn", "turn", "compact", "undo", "resume", "fork", "tools", "pin")), max_size=14),
)
@pytest.mark.states("PV-42", "PV-44", "PV-45", "PV-47")
def test_no_request_is_refused_whatever_is_compacted_and_undone(seed: int, name: str, steps: list[str]) -> None:
    chance, numbers = random.Random(seed), count()

    def reply(_: object) -> list[dict[str, object]]:
        said = f"{next(numbers)} " + "words " * 60
        blocks = [chance.choice((thinks(f"t{chance.random()}"), says(said))) for _ in range(chance.randint(1, 3))]
        return [*blocks, calls("ls", path=str(chance.random()))] if chance.random() < 0.5 else [*blocks, says(f"So {next(numbers)}.")]

    double = StrictProvider(reply, thinks=False, summary=SUMMARY)
    session = strict_session(double, profile=profile(name))
    say(session, "begin")
    for number, step in enumerate((*steps, "turn")):
        match step:
            case "turn":
                if session.log.view.items[-1].kind not in ("user", "result"):
                    say(session, f"go on {number} " + "words " * 60)
                turn(session)
            case "compact":
                asyncio.run(compact(session))
            case "undo" if compactions(session):
                try:
                    undo(session.log, chance.choice(compactions(session)))
                except BadInput:
                    continue
            case "resume":
                session.close()
                session = Session.resume(session.log.session, session.profile, session.card, session.environment, session.tools)
            case "fork":
                session = session.fork(f"fork-{number}")
            case "pin":
                session.pin(ids=(chance.choice(session.log.view.items).id,))
            case "tools":
                session.tools = session.tools[::-1]
            case _:
                continue
    assert dict(double.counts.refused) == {}
    assert needless(double) == []


@pytest.mark.states("PV-47")
def test_pins_stay_behind_the_block_and_the_reason_says_which_media_are_gone() -> None:
    double = StrictProvider([[says("I see.")], [says("More.")]], thinks=False, summary=SUMMARY)
    session = strict_session(double, profile=profile("provider"))
    pixel = session.environment.blobs.put(b"GIF89a\x01\x00\x01\x00\x00\x00\x00;")
    session.log.append(UserSaid((Text("what is this? " + "look closely " * 200), Image("image/gif", pixel))))
    turn(session)
    say(session, "never touch a.py")
    [pinned] = [item.id for item in session.log.view.items if text_of(item.content) == "never touch a.py"]
    session.pin(ids=(pinned,))
    turn(session)
    asyncio.run(compact(session))
    [edit] = [event.body for event in session.log.events() if isinstance(event.body, ViewEdited)]
    assert (edit.by, "1 image no longer shown" in edit.why) == (NAME, True)
    assert [item.id for item in session.log.view.items][1:2] == [pinned]
    say(session, "go on")
    turn(session)
    assert dict(double.counts.refused) == {}
    assert needless(double) == []
