from recorded import ended, recorded, said, used

from pal.replay.recording import RecordedSession
from pal_lab.cost.continuation import ComparedCall, compare
from palimpsest.core.events import ModelReplied, SessionOpened, ViewEdited
from palimpsest.core.items import Mask, ToolCall
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.stores.in_memory import FixedClock, MemorySessions

RECORDING: RecordedSession = recorded(
    *said(0, "Mend the parser."),
    *used(1, "c0", "Read", '{"file_path": "/repo/src/parser.py"}', "def parse(): ..."),
    *used(2, "c1", "Read", '{"file_path": "/repo/src/lexer.py"}', "def lex(): ..."),
    *used(3, "c2", "Bash", '{"command": "pytest -q tests"}', "1 failed"),
    *ended(9),
)


def _view_before_the_command(*hidden: str) -> View:
    """The view of the recording before its third call, with these results masked."""
    with Log.create(MemorySessions(), SessionOpened("s"), FixedClock(1)) as log:
        for step in RECORDING.steps[:3]:
            for each in step.inputs:
                log.append(each.body)
            if step.number < 2:
                log.append(step.reply)
        if hidden:
            log.append(ViewEdited((Mask(hidden, "[cleared]"),), "test"))
        return log.view


def _reply(*calls: tuple[str, str]) -> ModelReplied:
    return ModelReplied(tuple(ToolCall(f"m{place}", tool, args) for place, (tool, args) in enumerate(calls)))


def _compared(view: View, *calls: tuple[str, str], number: int = 2) -> tuple[ComparedCall, ...]:
    return compare(_reply(*calls), view, RECORDING.steps, number)


def test_a_call_of_the_recorded_reply_is_the_same_whatever_its_spaces() -> None:
    assert _compared(_view_before_the_command(), ("Bash", '{"command": "pytest  -q tests"}')) == (
        ComparedCall("Bash", "pytest -q tests", "same"),
    )


def test_a_call_that_the_recording_makes_later_is_later() -> None:
    assert _compared(_view_before_the_command(), ("Bash", '{"command": "pytest -q tests"}'), number=1) == (
        ComparedCall("Bash", "pytest -q tests", "later"),
    )


def test_reading_a_file_again_counts_only_if_its_result_is_hidden() -> None:
    view = _view_before_the_command()
    result = next(item.id for item in view.items if item.kind == "result")
    read = ("Read", '{"file_path": "src/parser.py"}')

    assert _compared(view, read) == (ComparedCall("Read", "src/parser.py", "other"),)
    assert _compared(_view_before_the_command(result), read) == (ComparedCall("Read", "src/parser.py", "again"),)


def test_what_the_recording_never_did_is_other_and_a_reply_without_calls_has_nothing_to_compare() -> None:
    assert _compared(_view_before_the_command(), ("Write", '{"file_path": "new.py", "content": "x"}')) == (
        ComparedCall("Write", "new.py", "other"),
    )
    assert _compared(_view_before_the_command()) == ()
