import pytest

from pal_lab.cost.tuning import StatisticsCollector
from palimpsest.core.events import Body, ContextStated, Event, ModelReplied, SessionOpened, Statement, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult

MINUTE = 60_000


def _events(*stamped: tuple[int, Body]) -> list[Event]:
    return [Event(seq, seq - 1, at, "", body) for seq, (at, body) in enumerate(((0, SessionOpened("s")), *stamped))]


def _read(number: int, path: str) -> ModelReplied:
    return ModelReplied((ToolCall(f"c{number}", "Read", f'{{"file_path": "{path}"}}'),))


def _gave(number: int, text: str, tool: str = "Read", code: int | None = None) -> ToolReturned:
    return ToolReturned(ToolResult(f"c{number}", (Text(text),), error=bool(code)), tool, code)


LONG = "the first_name stands here\n" * 60
WORK = _events(
    (0, ContextStated(head=(Statement("base", "You write code."),))),
    (0, UserSaid((Text("Look at a.py"),))),
    (5_000, _read(1, "src/a.py")),
    (6_000, _gave(1, LONG)),
    (16_000, _read(2, "src/a.py")),
    (17_000, _gave(2, "short")),
    (27_000, ModelReplied((Text("first_name is wrong", "assistant"), ToolCall("c3", "Bash", '{"command": "make"}')))),
    (28_000, _gave(3, "Exit code 2", "Bash", 2)),
    (38_000, ModelReplied((Text("It fails.", "assistant"),))),
    (38_000 + 10 * MINUTE, UserSaid((Text("再试一次"),))),
    (39_000 + 10 * MINUTE, ModelReplied((Text("I try.", "assistant"), ToolCall("c4", "Edit", '{"file_path": "src/a.py"}')))),
    (39_500 + 10 * MINUTE, _gave(4, "changed", "Edit")),
)


def test_the_shape_of_a_session_is_counted() -> None:
    tally = StatisticsCollector()
    tally.take(WORK)
    shape = tally.statistics()

    assert shape.sessions == 1
    some = {
        "replies a turn, mean": 2.5,
        "replies with several calls %": 0.0,
        "user messages in Chinese %": 50.0,
        "user away, minutes, mean": 10.0,
        "user away over 5 minutes %": 100.0,
        "between calls, seconds, median": 10.0,
        "read, of all calls %": 50.0,
        "command, of all calls %": 25.0,
        "edit, of all calls %": 25.0,
        "commands that fail %": 100.0,
        "edits that fail %": 0.0,
        "reads of a file read before %": 50.0,
        "edits of a file read or edited before %": 100.0,
        "results named later %": 100.0,
        "last named after, calls, mean": 4.0,
        "replies whose calls name what last stood 10 calls back %": 0.0,
    }
    assert {name: shape.figures[name] for name in some} == some
    assert sum(value for name, value in shape.figures.items() if name.startswith("tokens, ")) == pytest.approx(100, abs=0.1)


def test_sessions_are_counted_together() -> None:
    tally = StatisticsCollector()
    tally.take(WORK)
    tally.take(_events((0, UserSaid((Text("Hi there"),))), (1, ModelReplied((Text("Hello", "assistant"),)))))
    shape = tally.statistics()
    assert (shape.sessions, shape.figures["replies a turn, median"], shape.figures["user messages in Chinese %"]) == (2, 1.0, 33.3)


def test_no_session_has_a_shape_too() -> None:
    assert StatisticsCollector().statistics().figures["commands that fail %"] == 0.0


def test_a_call_reaches_back_to_where_its_names_last_stood() -> None:
    chat = [(1_000 * turn, ModelReplied((Text("Well.", "assistant"),))) for turn in range(2, 44)]
    ask = ModelReplied((ToolCall("c9", "Grep", '{"pattern": "first_name"}'), ToolCall("c8", "Grep", '{"pattern": "nobody_said"}')))
    tally = StatisticsCollector()
    tally.take(_events((0, _read(1, "a.py")), (1_000, _gave(1, LONG)), *chat, (50_000, ask)))
    figures = tally.statistics().figures
    reached = [figures[f"replies whose calls name what last stood {far} calls back %"] for far in (10, 40, 100)]
    assert reached == [pytest.approx(100 / 44, abs=0.01), pytest.approx(100 / 44, abs=0.01), 0.0]
