"""Laws of session stores: the same operations get the same answers from every implementation, errors by their class included."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_kinds import STORES

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.ports import LogFile, SessionArchive

# Most operations are about one session: only then do they meet each other.
SESSIONS = ("a", "a", "a", "a", "a", "a.1", "no/id")
LINES = st.lists(st.binary(max_size=10).map(lambda data: data.replace(b"\n", b"").replace(b"\0", b"") + b"\n"), max_size=3).map(b"".join)
OPERATIONS = (
    "create",
    "write",
    "append",
    "sync",
    "close",
    "read",
    "refresh",
    "look",
    "piece",
    "leave",
    "save",
    "load",
    "rewrite",
    "remove",
    "stat",
    "keep",
    "sessions",
)
STEP = st.tuples(st.sampled_from(OPERATIONS), st.sampled_from(SESSIONS), LINES, st.integers(0, 40))
Step = tuple[str, str, bytes, int]


class Driver:
    """One store with the writer and the reader that were last opened of each session."""

    def __init__(self, store: SessionArchive) -> None:
        self.store = store
        self.writers: dict[str, LogFile] = {}
        self.readers: dict[str, LogFile] = {}

    def answer(self, step: Step) -> object:
        """What an operation returns, or the class of its error."""
        name, session, data, number = step
        try:
            return ACTIONS[name](self, session, data, number)
        except PalimpsestError as error:
            return type(error).__name__

    def write(self, session: str, file: LogFile) -> tuple[int, int]:
        self.writers[session] = file
        return file.size, file.torn

    def read(self, session: str) -> tuple[int, int]:
        self.readers[session] = self.store.open(session)
        return self.readers[session].size, self.readers[session].torn


def _on(held: dict[str, LogFile], session: str, act: Callable[[LogFile], object]) -> object:
    return act(held[session]) if session in held else "none is open"


def _look(file: LogFile) -> object:
    return file.size, file.torn, file.read(0, 10_000), b"".join(data for _, data in file.chunks())


def _refreshed(file: LogFile) -> object:
    file.refresh()
    return _look(file)


def _piece(file: LogFile, start: int, length: int) -> object:
    return file.read(start, length), b"".join(data for _, data in file.chunks(start, start + length))


def _remove(driver: Driver, session: str) -> object:
    driver.store.remove(session)
    return "removed"


def _keep(driver: Driver, session: str, data: bytes) -> object:
    """Names of kept results stand for themselves: only where they are kept differs between stores."""
    driver.store.stat(session)
    return driver.store.result_files(session)("result.txt", data).rpartition("/")[2]


ACTIONS: dict[str, Callable[[Driver, str, bytes, int], object]] = {
    "create": lambda driver, session, data, _: driver.write(session, driver.store.create(session, data)),
    "write": lambda driver, session, _, __: driver.write(session, driver.store.open(session, write=True)),
    "append": lambda driver, session, data, _: _on(driver.writers, session, lambda file: (file.append(data), file.size)),
    "sync": lambda driver, session, _, __: _on(driver.writers, session, lambda file: file.sync()),
    "close": lambda driver, session, _, __: _on(driver.writers, session, lambda file: file.close()),
    "read": lambda driver, session, _, __: driver.read(session),
    "refresh": lambda driver, session, _, __: _on(driver.readers, session, _refreshed),
    "look": lambda driver, session, _, __: _on(driver.readers, session, _look),
    "piece": lambda driver, session, data, number: _on(driver.readers, session, lambda file: _piece(file, number, len(data))),
    "leave": lambda driver, session, _, __: _on(driver.readers, session, lambda file: file.close()),
    "save": lambda driver, session, data, _: _on(driver.writers, session, lambda file: file.save_checkpoint(data)),
    "load": lambda driver, session, _, __: _on(driver.readers, session, lambda file: file.load_checkpoint()),
    "rewrite": lambda driver, session, data, _: _on(driver.writers, session, lambda file: (file.rewrite(data) != "", file.size)),
    "remove": lambda driver, session, _, __: _remove(driver, session),
    "stat": lambda driver, session, _, __: driver.store.stat(session).size,
    "keep": lambda driver, session, data, _: _keep(driver, session, data),
    "sessions": lambda driver, _, __, ___: list(driver.store.sessions()),
}


@pytest.mark.parametrize("name", [name for name in STORES if name != "files"])
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=25))
def test_every_store_answers_as_the_one_in_files_does(tmp_path_factory: pytest.TempPathFactory, name: str, steps: list[Step]) -> None:
    files = Driver(STORES["files"](tmp_path_factory.mktemp("files")))
    other = Driver(STORES[name](tmp_path_factory.mktemp("other")))
    for number, step in enumerate((("create", "a", b"first\n", 0), *steps)):
        assert (number, step, other.answer(step)) == (number, step, files.answer(step))
    for driver in (files, other):
        for file in (*driver.writers.values(), *driver.readers.values()):
            file.close()
    assert [(stat.session, stat.size) for stat in sorted(files.store.stats())] == [
        (stat.session, stat.size) for stat in sorted(other.store.stats())
    ]


def test_every_operation_is_driven() -> None:
    assert tuple(ACTIONS) == OPERATIONS


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=25))
def test_nothing_that_is_done_in_an_overlay_touches_the_store_below(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    folder = tmp_path_factory.mktemp("below")
    below = STORES["files"](folder)
    for session in ("a", "b"):
        file = below.create(session, b"first\nsecond\n")
        file.save_checkpoint(b"of both")
        file.close()
    before = _contents(folder)
    driver = Driver(STORES["overlay"](folder))
    for step in steps:
        driver.answer(step)
    assert _contents(folder) == before


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
