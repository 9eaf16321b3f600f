"""The files of a task graph: one JSON file for each task, log files for the output of its commands, and a lock."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec import field as json_field

from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.tools.files.confined import opened_file, opened_folder
from palimpsest.tools.tool import ToolError, one_line

TaskStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
LARGEST_TASK: Final = 200_000
"""Bytes of one task file."""
MOST_TASKS: Final = 2_000
MOST_BYTES: Final = 20_000_000
"""Bytes of all task files together, which are read before each turn."""
LOCK_SECONDS: Final = 10.0
_POLL: Final = 0.02
_TASK: Final = lazy_pattern(r"task_([0-9]{1,9})\.json")
_OF_TASK: Final = lazy_pattern(r"task_([0-9]{1,9})[._].*")
_LOG: Final = lazy_pattern(r"task_[0-9]{1,9}_[\w-]+\.log")


class Task(Struct, frozen=True):
    """One task. `blocked_by` are the tasks that must be completed before it can start, `blocks` those that wait for it."""

    id: int
    subject: str
    description: str = ""
    status: TaskStatus = "pending"
    blocked_by: tuple[int, ...] = json_field(name="blockedBy", default=())
    blocks: tuple[int, ...] = ()
    owner: str = ""


class Damage(NamedTuple):
    """A task file that cannot be read, and why."""

    name: str
    why: str


class LogName(NamedTuple):
    """A file with the output of a command, and its size in bytes."""

    name: str
    size: int


_tasks = msgspec.json.Decoder(Task)


class TaskFiles(Struct):
    """The tasks of a folder. `write` replaces the content of a file atomically, so that a crash leaves each file whole.

    The folder lies in one of the `roots`, by default in the one above it, and no link on the way there is followed: a command may put one
    in its place at any time.
    Reading needs no lock; changes are made within `locked`, so that two processes cannot both change what they read.
    """

    folder: Path
    write: Callable[[Path, bytes], None]
    roots: tuple[Path, ...] = ()
    highest: int = 0
    damaged: list[Damage] = field(default_factory=list)

    def load(self) -> dict[int, Task]:
        """All tasks by id. Files that cannot be read are listed in `damaged` and skipped; they are never changed."""
        self.damaged.clear()
        found: dict[int, Task] = {}
        room = MOST_BYTES
        for path in sorted(self._listed()):
            match = _TASK.fullmatch(path.name)
            if match is None:
                continue
            if len(found) >= MOST_TASKS:
                self.damaged.append(Damage(path.name, f"only {MOST_TASKS:,} tasks are read"))
                continue
            if room <= 0:
                self.damaged.append(Damage(path.name, f"only {MOST_BYTES:,} bytes of tasks are read"))
                continue
            try:
                data = self._content(path)
                room -= len(data)
                found[int(match[1])] = _task(data, int(match[1]))
            except (OSError, ValueError, RecursionError) as error:
                self.damaged.append(Damage(path.name, one_line(str(error))))
        return found

    def _listed(self) -> list[Path]:
        try:
            with self._opened() as folder:
                return [self.folder / name for name in os.listdir(folder)]  # noqa: PTH208  # of a descriptor
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ToolError(f"the tasks cannot be listed: {error.strerror or error}", where=str(self.folder)) from error

    def _opened(self, *, create: bool = False) -> AbstractContextManager[int]:
        return opened_folder(self._roots, self.folder, create=create)

    @property
    def _roots(self) -> tuple[Path, ...]:
        return self.roots or (self.folder.parent,)

    def next_id(self) -> int:
        """The number of a new task: one above every number that a file of the folder ever had in this session, damaged ones included."""
        numbers = [int(match[1]) for path in self._listed() if (match := _OF_TASK.fullmatch(path.name)) is not None]
        self.highest = max((self.highest, *numbers)) + 1
        return self.highest

    def save(self, task: Task) -> None:
        """Replace the file of a task; fields that a user added to it stay.

        Raises `ToolError` if it would be too large, `StoreError` if it cannot be written.
        """
        path = self.folder / f"task_{task.id}.json"
        try:
            fields = {**msgspec.json.decode(self._content(path), type=dict[str, object]), **msgspec.to_builtins(task)}
        except FileNotFoundError:
            fields = msgspec.to_builtins(task)
        data = msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"
        if len(data) > LARGEST_TASK:
            raise ToolError(f"task {task.id} would have {len(data):,} bytes; at most {LARGEST_TASK:,} are kept")
        self.write(path, data)

    def _content(self, path: Path) -> bytes:
        """The bytes of a task file. Raises `OSError` if it cannot be read, `ValueError` if it is too large or no regular file."""
        if path.is_symlink():
            # A link could make the next change replace a file of another folder.
            raise ValueError("it is a symbolic link")
        with opened_file(self._roots, path) as file:
            data = file.read(LARGEST_TASK + 1)
        if len(data) > LARGEST_TASK:
            raise ValueError(f"it has more than {LARGEST_TASK:,} bytes")
        return data

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the folder, which is created if it is missing. Raises `ToolError` after `LOCK_SECONDS`."""
        try:
            with self._opened(create=True) as folder:
                handle = os.open(".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        except OSError as error:
            raise ToolError(f"the tasks cannot be locked: {error.strerror or error}", where=str(self.folder)) from error
        try:
            _lock(handle)
            yield
        finally:
            os.close(handle)

    def add_log(self, task: int, text: str) -> LogName:
        """Store the output of a command of a task in a new log file."""
        number = 1
        with self.locked():
            while (path := self.folder / f"task_{task}_{number}.log").exists():
                number += 1
            data = text.encode("utf-8", "replace")
            self.write(path, data)
        return LogName(path.name, len(data))

    @contextmanager
    def opened_log(self, name: str) -> Iterator[IO[bytes]]:
        """One of the log files, to be read. Raises `ToolError` if it cannot be, such as a link that took its place."""
        try:
            with opened_file(self._roots, self.folder / name) as file:
                yield file
        except OSError as error:
            raise ToolError(f"{name} cannot be read: {error.strerror or error}", where=name) from error

    def logs(self, task: int) -> tuple[LogName, ...]:
        """The log files of a task, by name."""
        paths = [path for path in self._listed() if path.name.startswith(f"task_{task}_") and _LOG.fullmatch(path.name)]
        return tuple(LogName(path.name, path.stat().st_size) for path in sorted(paths) if path.is_file() and not path.is_symlink())


def _task(data: bytes, number: int) -> Task:
    task = _tasks.decode(data)
    if task.id != number:
        raise ValueError(f"it holds task {task.id}")
    return task


def _lock(handle: int) -> None:
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= end:
                raise ToolError(f"another process has held the lock of the tasks for {LOCK_SECONDS:.0f} s; try again later") from error
            time.sleep(_POLL)
        else:
            return
