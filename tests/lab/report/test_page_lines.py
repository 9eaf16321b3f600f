from palimpsest.core.events import CallStarted, ModelReplied, SessionOpened, ToolReturned, TurnEnded, Usage, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log.log import Log
from palimpsest.lab.outcome import HiddenEvent, Outcome, ReplayedEdit, ReplayedSession, Reread
from palimpsest.lab.report.losses import hidden_events, with_hidden_events
from palimpsest.lab.simulation.recording import RecordedSession, recording_of
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemorySessions

MODEL = "claude-sonnet-4-5"


def recorded() -> RecordedSession:
    log = Log.create(MemorySessions(), SessionOpened("s", model=MODEL), FixedClock(1_000, 1_000))
    log.append(UserSaid((Text("What is in\na.py?"),)))
    for reply in ((Text("I look.", "assistant"), ToolCall("c1", "read", '{"path":"a.py"}')), (Text("A number.", "assistant"),)):
        call = log.append(CallStarted(MODEL, "anthropic"))
        log.append(ModelReplied(reply, call.seq, Usage(), "end_turn", MODEL))
        if len(reply) > 1:
            log.append(ToolReturned(ToolResult("c1", (Text("timeout = 10\n" * 40),)), "read", paths=("a.py",)))
    log.append(TurnEnded())
    return recording_of(log, MemoryBlobs())


def outcome(*hides: int, needs: int = 4) -> Outcome:
    return Outcome(
        "codex",
        edits=(ReplayedEdit(1, 0, 9, "fold", "handoff", hides=hides),),
        rereads=(Reread(1, 0, ("a.py",), needs, 200),) if needs else (),
    )


def test_every_hidden_event_has_a_line_that_says_what_it_is_and_how_it_begins() -> None:
    found = list(hidden_events(recorded(), [outcome(1, 3)]))

    assert [(line.event, line.kind, line.name, line.text[:20]) for line in found] == [
        (1, "user_said", "", "What is in a.py?"),
        (3, "model_replied", "read a.py", "I look."),
        (4, "tool_returned", "read a.py", "timeout = 10 timeout"),
    ]
    assert found[2].tokens > found[1].tokens > 0


def test_events_that_no_profile_hid_have_no_line() -> None:
    assert list(hidden_events(recorded(), [outcome(needs=0)])) == []
    assert [line.event for line in hidden_events(recorded(), [outcome(6, needs=0), outcome(1, needs=0)])] == [1, 6]


def test_lines_are_added_to_what_was_found_and_nothing_else_changes() -> None:
    found = ReplayedSession("s", "home", "pal", 8, profiles={"codex": outcome(1, needs=0)})
    line = HiddenEvent(1, "user_said", "", "What is in a.py?", next(iter(hidden_events(recorded(), [outcome(1, needs=0)]))).tokens)

    assert with_hidden_events(found, recorded()) == ReplayedSession(
        "s", "home", "pal", 8, profiles={"codex": outcome(1, needs=0)}, lines=(line,)
    )
