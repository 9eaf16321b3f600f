"""Times in the JSON of every command are ISO 8601: no number in it can be a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pal_runs import BEGAN, SMALL, Pal, edited, long

from pal.cli.main import COMMANDS
from palimpsest.core.events import EventRef, HookRan, JobRan, SessionOpened
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock

# Milliseconds and seconds from 2001 to 2100.
_TIMES = (range(10**12, 41 * 10**11), range(10**9, 41 * 10**8))
# Commands that print no JSON of a session: they serve, open a terminal, call a model, or measure.
_WITHOUT = {"chat", "ask", "acp", "mcp", "unplug", "gateway", "wrap", "bench", "demo", "lab", "replay"}
_WORDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "mcp-servers": ((),),
    "agents": ((SMALL,),),
    "sessions": (("--all",),),
    "show": ((SMALL,),),
    "context": ((SMALL,),),
    "audit": ((SMALL,), (SMALL, "--refused")),
    "diff": ((SMALL,),),
    "jobs": ((SMALL,),),
    "search": (("timeout",), ("timeout", "--sessions"), ("timeout", "--files")),
    "why": ((SMALL, "timeout"),),
    "hooks": ((), (SMALL,)),
    "cards": ((),),
    "memory": (("list",), ("show", "project_server"), ("why", "project_server"), ("search", "server"), ("status",), ("export",)),
    "pin": ((SMALL, "2.0"),),
    "unpin": ((SMALL, "2.0"),),
    "restore": ((SMALL, "6.0"),),
    "undo": ((SMALL, "--yes", "--dry-run"),),
    "compact": (("20310402-090000-bbbb", "--no-model", "--preview"),),
    "rewind": ((SMALL, "13"),),
    "fork": ((SMALL,),),
    "export": ((SMALL, "--to", "markdown"),),
    "import": (("--dry-run", str(Path(__file__).parents[3] / "golden" / "foreign" / "aider")),),
    "init": ((),),
    "config": ((),),
    "trust": ((),),
    "verify": ((SMALL,),),
    "index": ((),),
    "doctor": ((),),
    "completion": (("bash",),),
    "delete": (("child", "--yes"),),
}


def numbers(value: Any, place: str = "") -> Iterator[tuple[str, int | float]]:
    match value:
        case dict():
            for name, each in value.items():
                yield from numbers(each, f"{place}.{name}")
        case list():
            for each in value:
                yield from numbers(each, f"{place}[]")
        case bool():
            return
        case int() | float():
            yield place, value
        case _:
            return


def test_every_command_is_tried(pal: Pal) -> None:
    assert set(_WORDS) | _WITHOUT >= set(COMMANDS) - {"secrets", "plug", "gateway"}


@pytest.fixture
def busy(pal: Pal) -> Pal:
    """A home with a session in which jobs and hooks ran, one of a sub-agent, a long one, and a note."""
    edited(pal.home)
    long(pal.home, events=300)
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN + 70_000, 1_000), write=True) as log:
        log.append(JobRan("titles", 9, took_ms=40))
        log.append(HookRan("lint", "after_tool", took_ms=3))
    Log.create(pal.home.store, SessionOpened("child", opener=EventRef(SMALL, 4)), FixedClock(BEGAN)).close()
    pal("memory", "add", "The server is alpha.", "--about", "server", "--cwd", str(pal.home.folder))
    return pal


def test_no_number_in_the_json_of_any_command_is_a_time(busy: Pal) -> None:
    found: list[tuple[str, str, int | float]] = []
    printed = 0
    for command, lines in _WORDS.items():
        for words in lines:
            where = ("--cwd", str(busy.home.folder)) if command == "memory" and words[0] != "status" else ()
            result = busy(command, *words, *where, "--json")
            assert result.exit_code in (0, 1), (command, words, result.output)
            value = msgspec.json.decode(result.stdout)
            printed += bool(value)
            found += [
                (f"pal {command}", place, number)
                for place, number in numbers(value)
                if any(first <= number < last for first, last in ((times.start, times.stop) for times in _TIMES))
            ]
    assert found == []
    assert printed >= 25
