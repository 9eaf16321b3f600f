"""Random work on a small project: turns and a user change files, and a model of contents says what a rewind must leave."""

import base64
import json
import os
import random
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from palimpsest.core.events import ModelReplied
from palimpsest.core.items import ToolCall


class Value(NamedTuple):
    """A file (`file`, `program`) with its content, or a `link` with its target."""

    kind: str
    data: bytes


State = dict[str, Value]
LINES = 12
NAMES = (
    "a.py",
    "b.py",
    "src/c.py",
    "src/d.py",
    "src/deep/e.py",
    "docs",
    "notes.txt",
    "we ird\n'name.txt",
    "caf\udce9.txt",
    "bin.dat",
    "out.log",
)


@dataclass
class Work:
    """Alternating changes of the user and of turns; `states` has the state before and after each turn, and at the end."""

    changes: list[tuple[str, dict[str, Value | None]]] = field(default_factory=list)
    before: list[State] = field(default_factory=list)
    after: list[State] = field(default_factory=list)
    now: State = field(default_factory=dict)


def lines_of(rng: random.Random, old: bytes | None, first: int) -> bytes:
    """Twelve lines of which three are new; the others are those of the old content, if it has twelve."""
    lines = old.split(b"\n")[:LINES] if old is not None and old.count(b"\n") == LINES else [b"line %d" % n for n in range(LINES)]
    for number in range(first, first + 3):
        lines[number] = b"%d: %d" % (number, rng.randrange(10**9))
    return b"\n".join(lines) + b"\n"


def change(rng: random.Random, state: State, who: str) -> dict[str, Value | None]:
    """One change of a few files that fits the state."""
    path = rng.choice(NAMES)
    old = state.get(path)
    taken = [name for name in state if name.startswith(f"{path}/")]
    above = [name for name in state if path.startswith(f"{name}/")]
    kind = rng.choice(("lines", "lines", "lines", "contested", "delete", "program", "binary", "link", "folder"))
    clear: dict[str, Value | None] = dict.fromkeys((*taken, *above))
    if old is not None and kind == "delete":
        return {path: None}
    if kind == "program" and old is not None and old.kind != "link":
        return {path: Value("file" if old.kind == "program" else "program", old.data)}
    if kind == "binary":
        return clear | {path: Value("file", b"\0\xff" + rng.randbytes(20))}
    if kind == "link":
        return clear | {path: Value("link", rng.choice((b"a.py", b"/etc/hostname", b"../outside", b"nowhere")))}
    if kind == "folder" and old is not None:
        return {path: None, f"{path}/inner.txt": Value("file", lines_of(rng, None, 0))}
    first = 9 if who == "user" and kind == "lines" else 0
    text = None if old is None or old.kind == "link" else old.data
    return clear | {path: Value(old.kind if old is not None and old.kind != "link" else "file", lines_of(rng, text, first))}


def applied(state: State, changes: dict[str, Value | None]) -> State:
    """The state after some changes."""
    new = {path: value for path, value in state.items() if changes.get(path, value) is not None}
    return new | {path: value for path, value in changes.items() if value is not None}


def random_work(seed: int) -> Work:
    """Work of two or three turns, with changes of the user before, between and after them."""
    rng = random.Random(seed)
    work = Work()

    def do(who: str, count: int) -> None:
        for _ in range(count):
            changes = change(rng, work.now, "user" if who == "user" else "turn")
            work.changes.append((who, changes))
            work.now = applied(work.now, changes)

    do("user", 5)
    for _ in range(rng.randint(2, 3)):
        work.before.append(work.now)
        work.changes.append(("turn", {}))
        for _ in range(rng.randint(1, 2)):
            do(rng.choice(("tool", "shell")), 1)
        work.after.append(work.now)
        do("user", rng.randint(0, 2))
    return work


def expected(work: Work, turn: int) -> tuple[State, set[str]]:
    """The state after taking back the turns from number `turn` on, and the files that stay because of a conflict."""
    wanted: dict[str, Value | None] = {}
    conflicts: set[str] = set()
    for before, after in reversed(list(zip(work.before[turn:], work.after[turn:], strict=True))):
        for path in before.keys() | after.keys():
            old, new = before.get(path), after.get(path)
            # Ignored files are in no snapshot.
            if old == new or path in conflicts or ".log" in path:
                continue
            present = wanted.get(path, work.now.get(path))
            found = taken_back(old, new, present)
            if found is False:
                conflicts.add(path)
            elif found is not True:
                wanted[path] = found
    while True:
        state = applied(work.now, {path: value for path, value in wanted.items() if path not in conflicts})
        blocked = {
            path
            for path, value in wanted.items()
            if value is not None
            and path not in conflicts
            and any(one.startswith(f"{path}/") or path.startswith(f"{one}/") for one in state)
        }
        if not blocked:
            return state, conflicts
        conflicts |= blocked


def taken_back(old: Value | None, new: Value | None, present: Value | None) -> Value | bool | None:
    """The file without the change from `old` to `new`; true if it is so already, false if the user changed the same."""
    if present == old:
        return True
    if present == new:
        return old
    if old is None or new is None or present is None or "link" in (old.kind, new.kind, present.kind):
        return False
    kind = old.kind if present.kind == new.kind else present.kind
    if new.data in (old.data, present.data) or old.data == present.data:
        return Value(kind, old.data if new.data == present.data else present.data)
    values = (old, new, present)
    if any(value.data.count(b"\n") != LINES for value in values):
        return False
    lines = []
    for was, became, now in zip(*(value.data.split(b"\n") for value in values), strict=True):
        if was != became and now not in (was, became):
            return False
        lines.append(was if was != became else now)
    return Value(kind, b"\n".join(lines))


def call_of(number: int, who: str, changes: dict[str, Value | None], state: State) -> list[ToolCall]:
    """Tool calls that make a change: by file tools where they can, else by a command."""
    [(path, value)] = list(changes.items())[-1:]
    plain = len(changes) == 1 and value is not None and value.kind != "link" and b"\0" not in value.data and path.isprintable()
    old = state.get(path)
    if who == "tool" and plain and value is not None and (old is None or (old.kind == value.kind and b"\0" not in old.data)):
        read = [ToolCall(f"r{number}", "read", json.dumps({"path": path}))] if old is not None else []
        return [*read, ToolCall(f"w{number}", "write", json.dumps({"path": path, "content": value.data.decode()}))]
    words = [f"rm -rf {quoted(path)}" for path in changes]
    for path, value in changes.items():
        if value is not None:
            words += [f"mkdir -p {quoted(path.rpartition('/')[0] or '.')}"]
            if value.kind == "link":
                words.append(f"ln -s {quoted(os.fsdecode(value.data))} {quoted(path)}")
            else:
                words.append(f"echo {base64.b64encode(value.data).decode()} | base64 -d > {quoted(path)}")
                words += [f"chmod +x {quoted(path)}"] if value.kind == "program" else []
    return [ToolCall(f"b{number}", "bash", json.dumps({"command": " && ".join(words)}))]


def quoted(path: str) -> str:
    """A path as a word of bash, in letters that JSON can carry."""
    if path.isprintable() and path.isascii():
        return shlex.quote(path)
    return "$'" + "".join(f"\\x{byte:02x}" for byte in os.fsencode(path)) + "'"


def replies(work: Work) -> list[list[ModelReplied | str]]:
    """For each turn what the model says: its calls, and that it is done."""
    turns: list[list[ModelReplied | str]] = []
    state: State = {}
    for number, (who, changes) in enumerate(work.changes):
        if who == "turn":
            turns.append(["done"])
        elif who != "user":
            turns[-1].insert(-1, ModelReplied(tuple(call_of(number, who, changes, state))))
        state = applied(state, changes)
    return turns


def put(root: Path, changes: dict[str, Value | None]) -> None:
    """Make a change as a user does."""
    for path in changes:
        place = root / path
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        elif os.path.lexists(place):
            place.unlink()
    for path, value in changes.items():
        if value is not None:
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if value.kind == "link":
                place.symlink_to(os.fsdecode(value.data))
            else:
                place.write_bytes(value.data)
                place.chmod(0o755 if value.kind == "program" else 0o644)


def state_of(root: Path, *, without: tuple[str, ...] = (".git", ".gitignore")) -> State:
    """All files and links of a folder."""
    found: State = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in without]
        for name in (*names, *(each for each in folders if (Path(folder) / each).is_symlink())):
            place = Path(folder) / name
            path = str(place.relative_to(root))
            if name in without:
                continue
            if place.is_symlink():
                found[path] = Value("link", os.fsencode(place.readlink()))
            else:
                found[path] = Value("program" if os.access(place, os.X_OK) and place.stat().st_mode & 0o100 else "file", place.read_bytes())
    return found
