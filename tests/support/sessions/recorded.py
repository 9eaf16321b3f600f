"""Small recordings whose every word and every second is known."""

from generated import generate

from pal.replay.recording import LoadedSession, RecordedSession, load_log, recording_of
from palimpsest.core.events import Body, CallStarted, ModelReplied, SessionOpened, ToolReturned, TurnEnded, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Content, Fold, Put, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

SECOND = 1_000
NOTHING = Usage()


def log_of(*timed: tuple[int, Body], session: str = "recorded", model: str = "claude-sonnet-4-5") -> Log:
    """A log of bodies, each with the second at which it happened."""
    log = Log.create(MemorySessions(), SessionOpened(session, cwd="/repo", model=model), FixedClock(0))
    for at, body in timed:
        log.append(body, at=at * SECOND, foreign=True)
    return log


def recorded(*timed: tuple[int, Body]) -> RecordedSession:
    """The recording of such a log."""
    return recording_of(log_of(*timed), MemoryBlobs())


def said(at: int, text: str) -> list[tuple[int, Body]]:
    """The user says something."""
    return [(at, UserSaid((Text(text),)))]


def replied(at: int, *parts: Content, usage: Usage = NOTHING) -> list[tuple[int, Body]]:
    """The model replies a second after it was called."""
    return [(at, CallStarted("claude-sonnet-4-5", "anthropic")), (at + 1, ModelReplied(parts, usage=usage, model="claude-sonnet-4-5"))]


def used(at: int, call_id: str, tool: str, args: str, output: str, *, error: bool = False) -> list[tuple[int, Body]]:
    """The model calls a tool, and two seconds later its result is there."""
    result = ToolResult(call_id, (Text(output),), error=error)
    return [*replied(at, ToolCall(call_id, tool, args)), (at + 2, ToolReturned(result, tool))]


def ended(at: int, text: str = "Done.") -> list[tuple[int, Body]]:
    """The model says something and the turn is over."""
    return [*replied(at, Text(text, "assistant")), (at + 1, TurnEnded())]


def synthetic_session(seed: int, events: int) -> RecordedSession:
    """A generated session that nobody ever folded."""
    log = Log.create(MemorySessions(), SessionOpened(f"made{seed}", model="claude-sonnet-4-5"), FixedClock(1_700_000_000_000, 2_000))
    log.extend(list(generate(seed, events, fold_at=None)))
    return recording_of(log, MemoryBlobs())


def read_part(at: int, number: int, extra: str = "") -> list[tuple[int, Body]]:
    """The model reads one of many files."""
    body = f"def settle_basket_{number}(cursor):\n    return ledger_of_part_{number}\n" + "# more\n" * 400
    return used(at, f"r{at}", "Read", f'{{"file_path": "/repo/src/part_{number}.py"{extra}}}', body)


def edit_part(at: int, number: int) -> list[tuple[int, Body]]:
    """The model edits a line of such a file."""
    args = f'{{"file_path": "/repo/src/part_{number}.py", "old_string": "return ledger_of_part_{number}", "new_string": "return None"}}'
    return used(at, f"e{at}", "Edit", args, "ok")


def compacted(at: int) -> list[tuple[int, Body]]:
    """The program compacts."""
    return [(at, ViewEdited((Fold("1.0", "9.0", (Put("summary", Text("Parts were read.")),)),), "claude-code"))]


def compacted_session(after: list[tuple[int, Body]]) -> LoadedSession:
    """Forty calls that read a file each, a compaction, and twenty calls of which the first ones are given."""
    timed = said(0, "Read all parts.")
    for number in range(40):
        timed += read_part(10 * number + 1, number)
    timed += compacted(500)
    timed += after
    for number in range(20 - len(after) // 3):
        timed += used(700 + 10 * number, f"b{number}", "Bash", '{"command": "true"}', "")
    return load_log(log_of(*timed, *ended(999)), MemoryBlobs(), "made.jsonl", "claude")
