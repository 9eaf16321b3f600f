"""A session records, resumes, forks, undoes, pins and switches, and its derived state follows its events."""

import asyncio

import pytest
from msgspec import Raw
from workplace import START, answered_by, offline, reply, say, use, work

from palimpsest.agent.calls import call
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.core.budget import Budget
from palimpsest.core.errors import BadInput, CallOpen
from palimpsest.core.events import (
    ModelReplied,
    ModelSwitched,
    Pinned,
    ProfileChanged,
    Rewound,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
    UserTyped,
    ViewEdited,
)
from palimpsest.core.items import Mask, Text, ToolCall, text_of
from palimpsest.core.log import CHECKPOINT_EVERY
from palimpsest.core.plans import EventSpan, Save, save, span
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.providers.scripted import Scripted, StalledReply
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemoryFile, MemorySessions
from palimpsest.wire.models import card
from palimpsest.wire.request import Tool

PLAIN = Profile("plain", (), lambda card: Budget(card.window, card.reply, block_at=card.window))
PATHS = b'{"type":"object","properties":{"path":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"}}}'
DECLARED = (
    Tool("mcp__desk__swap_words", schema=Raw(PATHS)),
    Tool("mcp__desk__peek", schema=Raw(b'{"type":"object","properties":{"path":{"type":"string"}}}')),
    Tool("mcp__desk__go", schema=Raw(b'{"type":"object","properties":{"cmd":{"type":"string"}}}')),
)
SMALL = Profile("small", (), lambda _: Budget(400, block_at=400))


def worked(profile: Profile = PLAIN) -> Session:
    session = work(profile)
    say(session, "look at a.py")
    use(session, "c1", "Read", '{"file_path":"a.py"}', "line\n" * 400)
    reply(session, Text("It says line.", "assistant"))
    return session


def resumed_session(session: Session, profile: Profile = PLAIN) -> Session:
    session.close()
    return Session.resume("s", profile, session.card, session.environment)


def test_a_session_knows_its_profile_and_model_from_its_first_event() -> None:
    session = work(PLAIN, "gpt-5.5", "mine")
    assert session.log.opened == SessionOpened("mine", cwd="/repo", profile="plain", model="gpt-5.5")


def snapshots(session: Session) -> list[bytes]:
    derived = session.derived
    return [each.snapshot() for each in (derived.metering, derived.evidence, derived.uses, derived.cache, derived.rent)]


def test_a_resumed_session_has_the_same_view_and_the_same_derived_state() -> None:
    session = worked()
    view, kept = session.log.view, snapshots(session)
    resumed = resumed_session(session)
    assert resumed.log.view == view
    assert snapshots(resumed) == kept


@pytest.mark.parametrize("more", [0, 1, 2, 3, 4])
def test_no_event_is_missing_from_the_evidence_after_an_automatic_checkpoint_and_a_resume(more: int) -> None:
    session = work(PLAIN)
    say(session, "read them all")
    files = [f"f{number}.py" for number in range((CHECKPOINT_EVERY + 12) // 3)]
    for number, name in enumerate(files):
        use(session, f"c{number}", "Read", f'{{"file_path":"{name}"}}', f"value_{number} = 1\n" * 300)
    for number in range(more):
        say(session, f"and never touch part {number}")
        # An event loop syncs in a thread, and leaves the checkpoint there.
        session.log.sync()
    session.log.sync()
    lines = session.environment.store.open("s")
    assert lines.load_checkpoint() is not None
    live = snapshots(session)
    # The process ends without closing the session.
    assert isinstance(lines, MemoryFile)
    lines._file.writer = None
    resumed = Session.resume("s", PLAIN, session.card, session.environment)
    assert list(resumed.derived.evidence.value().read) == files
    assert len(resumed.derived.evidence.value().user_messages) == 1 + more
    assert snapshots(resumed) == live


def test_input_typed_during_a_call_is_queued_and_counted_when_it_enters_the_view() -> None:
    async def steered() -> Session:
        stalled = StalledReply(ModelReplied((Text("Working.", "assistant"),), usage=Usage(input=40_000, output=2_000)), after=1)
        session = answered_by(work(PLAIN), Scripted(stalled))
        say(session, "go")
        task = asyncio.create_task(call(session))
        await stalled.reached.wait()
        typed = session.log.append(UserTyped((Text("use tabs " * 1_000),)))
        with pytest.raises(CallOpen):
            session.log.append(UserSaid((Text("use tabs " * 1_000),), typed=typed.seq, steering=True))
        assert (session.log.inbox, session.log.view.ids) == ((typed.seq,), ("1.0",))
        stalled.released.set()
        await task
        return session

    session = asyncio.run(steered())
    (typed,) = session.log.inbox
    before = session.used
    assert before == 42_000
    session.log.append(UserSaid((Text("use tabs " * 1_000),), typed=typed, steering=True))
    steering = session.log.view.items[-1]
    assert (session.log.inbox, steering.kind) == ((), "steering")
    assert session.used == before + session.counter.item(steering) > before + 1_000


def test_resuming_with_another_model_or_profile_records_the_change_once() -> None:
    session = worked()
    session.close()
    for number in range(2):
        resumed = Session.resume("s", SMALL, card("gpt-5.5"), session.environment)
        assert (resumed.log.view.profile, resumed.log.view.model, resumed.log.tip) == ("small", "gpt-5.5", 8)
        bodies = [resumed.log.event(seq).body for seq in (7, 8)]
        assert bodies == [ProfileChanged("small", "plain"), ModelSwitched("gpt-5.5", "claude-sonnet-4-5")], number
        resumed.close()


def test_a_call_that_a_crash_left_open_is_answered_when_the_session_is_resumed() -> None:
    session = work(PLAIN)
    say(session, "run it")
    reply(session, ToolCall("c1", "Bash", '{"command":"make"}'))
    resumed = resumed_session(session)
    last = resumed.log.event(resumed.log.tip).body
    assert isinstance(last, ToolReturned)
    assert last.result.call_id == "c1"
    assert last.result.error


def test_a_rewind_removes_later_events_from_the_derived_state() -> None:
    session = worked()
    session.log.append(Rewound(1))
    fresh = work(PLAIN)
    say(fresh, "look at a.py")
    assert snapshots(session) == snapshots(fresh)


def test_an_edit_is_undone_and_the_items_show_again() -> None:
    session = worked()
    edited = session.log.append(ViewEdited((Mask(("4.0",), "gone"),), by="test"))
    session.undo(edited.seq)
    assert [item.mask for item in session.log.view.items] == [None] * 4


def test_an_undo_after_which_the_view_would_not_fit_is_refused_with_the_numbers() -> None:
    session = worked(SMALL)
    edited = session.log.append(ViewEdited((Mask(("4.0",), "gone"),), by="test"))
    with pytest.raises(BadInput, match=r"without edit \d+ the view has [\d,]+ tokens and 400 fit"):
        session.undo(edited.seq)


def test_items_and_files_are_pinned_and_unpinned() -> None:
    session = worked()
    assert session.pin(ids=("4.0",), paths=("a.py",)).body == Pinned(("4.0",), ("a.py",))
    assert session.log.view.pins == {"4.0", "a.py"}
    session.pin(paths=("a.py",), on=False)
    assert session.log.view.pins == {"4.0"}
    with pytest.raises(BadInput, match=r"there is no item 9\.9"):
        session.pin(ids=("9.9",))


def test_a_fork_continues_from_an_event_and_leaves_the_first_session_unchanged() -> None:
    session = worked()
    fork = session.fork("t", 1)
    say(fork, "something else")
    assert [text_of(item.content) for item in fork.log.view.items] == ["look at a.py", "something else"]
    assert len(session.log.view.items) == 4


def test_switching_the_model_changes_the_budget_and_is_recorded() -> None:
    session = worked()
    assert session.switch(card("gpt-5.2")).body == ModelSwitched("gpt-5.2", "claude-sonnet-4-5")
    assert (session.card.name, session.budget.window) == ("gpt-5.2", 272_000)


def test_a_plan_gets_blobs_kept_and_events_of_the_log() -> None:
    session = worked()
    address = offline(session, save(Save(b"whole")))
    assert session.environment.blobs.get(address) == b"whole"
    assert [event.seq for event in offline(session, span(EventSpan(1, 2)))] == [1, 2]


def at_a_desk(tools: tuple[Tool, ...]) -> Session:
    """A session with the given tools, whose names are uninformative."""
    around = Environment(MemorySessions(), MemoryBlobs(), FixedClock(START, 1_000), offload=inline, retries=NO_RETRIES)
    session = Session.create(SessionOpened("desk", cwd="/repo"), profile("palimpsest"), card("claude-sonnet-4-5"), around, tools)
    say(session, "rename it")
    use(session, "c1", "mcp__desk__peek", '{"path":"src/a.py"}', "def old_name(): ...\n" * 300)
    use(session, "c2", "mcp__desk__swap_words", '{"path":"src/a.py","old_str":"old_name","new_str":"new_name"}', "done\n" * 300)
    use(session, "c3", "mcp__desk__go", '{"cmd":"make test"}', "3 passed\n" * 300, exit_code=0)
    return session


def test_tool_declarations_give_edited_paths_supersession_and_commands() -> None:
    session = at_a_desk(DECLARED)
    evidence = session.derived.evidence.value()
    assert evidence.edited == ("src/a.py",)
    assert evidence.read == ()
    assert [(ran.command, ran.exit) for ran in evidence.commands] == [("make test", 0)]
    first, second, third = session.derived.uses.value().values()
    assert (first.kind, first.superseded) == ("read", 2)
    assert (second.kind, second.superseded) == ("acknowledgement", None)
    assert third.kind == "other"


def test_tool_declarations_count_after_a_resume_and_a_rewind() -> None:
    session = at_a_desk(DECLARED)
    session.close()
    resumed = Session.resume("desk", session.profile, session.card, session.environment, DECLARED)
    assert resumed.derived.evidence.value() == session.derived.evidence.value()
    use(resumed, "c4", "mcp__desk__swap_words", '{"path":"src/b.py","old_str":"a","new_str":"b"}', "done")
    assert list(resumed.derived.evidence.value().edited) == ["src/a.py", "src/b.py"]
    resumed.log.append(Rewound(resumed.log.tip - 3))
    assert list(resumed.derived.evidence.value().edited) == ["src/a.py"]


def test_without_a_declaration_an_uninformative_tool_name_proves_no_edit() -> None:
    assert at_a_desk(()).derived.evidence.value().edited == ()
