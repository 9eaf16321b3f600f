"""A process that is killed at any step of a change of notes leaves the old or the new notes, and the next one completes it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.index_text import index_of
from palimpsest.memory.note import Note
from palimpsest.memory.notebook import Notebook
from palimpsest.memory.store import NoteFolder
from palimpsest.stores.in_memory import FixedClock

CLOCK = FixedClock(1_780_000_000_000)
OLD = Note(
    name="user_city",
    kind="user",
    about="lives in Xanadu",
    backstory="said once",
    when="2026-05-01T10:00:00Z",
    evidence=("s1:1",),
    trust="stated",
    body="The user lives in Xanadu.\n",
    by="extract",
)
NEW = replace(
    OLD, name="user_city_2", about="lives in Ulm", body="The user lives in Ulm.\n", evidence=("s2:1",), supersedes=("user_city@1",)
)
KEPT = replace(OLD, name="user_tea", about="drinks tea", body="The user drinks tea.\n", evidence=("s1:2",))
HELD = replace(OLD, name="project_page", kind="project", trust="quarantined", about="a page says so", body="The page says so.\n")
NOTHING = AcceptedChange()
# For n = 1, 2, … (or in larger steps): changes a copy of the folder in a process that kills itself at its n-th step, until one ends.
PROGRAM = """
import os, shutil, signal, sys
from pathlib import Path
import msgspec
from palimpsest.memory.notebook import Notebook
from palimpsest.memory.changes import AcceptedChange
from palimpsest.stores.in_memory import FixedClock
from palimpsest.memory.store import NoteFolder
start, out, what, change = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], msgspec.json.decode(sys.argv[4], type=AcceptedChange)
STEPS = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "shutil.rmtree", "subprocess.Popen"}
clock = FixedClock(1_780_000_000_000)
every = int(sys.argv[5])
number, made = 1 - every, 0
while True:
    number += every
    made += 1
    folder = out / f"{number:04}"
    shutil.copytree(start, folder)
    child = os.fork()
    if not child:
        left = number
        def count(event, arguments):
            global left
            if event in STEPS or event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        book = Notebook(NoteFolder(folder, "user", clock), clock)
        if what == "apply":
            book.apply(change, "extract")
        elif what == "undo":
            book.undo("user_city")
        elif what == "promote":
            book.promote("project_page")
        else:
            book.forget("user_city")
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
print(made)
"""


def notebook(folder: Path) -> Notebook:
    return Notebook(NoteFolder(folder, "user", CLOCK), CLOCK)


def killed(start: Path, what: str, change: AcceptedChange = NOTHING, path: str = "/nowhere", every: int = 1) -> list[Path]:
    """The folders of processes that were killed at their first step, `every` steps later, and so on; the last one finished."""
    out = start.parent / what
    out.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PATH": path}
    command = [sys.executable, "-c", PROGRAM, str(start), str(out), what, msgspec.json.encode(change).decode(), str(every)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    folders = sorted(out.iterdir())
    assert int(done.stdout) == len(folders)
    return folders


def in_agreement(folder: Path) -> Notebook:
    """The notebook of a folder after the next process has looked at it; no file is half, and the index is that of the notes."""
    book = notebook(folder)
    book.pick_up_edits()
    assert book.notes().problems == ()
    assert (folder / "MEMORY.md").read_text() == index_of(book.notes().active.values()).text
    assert book.pick_up_edits() == ()
    return book


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A folder with two notes, and one in quarantine."""
    notebook(tmp_path / "start").apply(AcceptedChange((OLD, KEPT, HELD), reason="added"), "extract")
    return tmp_path / "start"


@pytest.mark.states("ME-52")
def test_a_crash_at_any_step_of_a_correction_leaves_the_old_or_the_new_note(start: Path) -> None:
    change = AcceptedChange((NEW,), (replace(OLD, status="superseded", superseded_by="user_city_2@1"),), "corrected")
    folders = killed(start, "apply", change)
    assert len(folders) > 8
    seen = []
    for folder in folders:
        before = set(notebook(folder).notes().active)
        book = in_agreement(folder)
        assert set(book.notes().active) == before
        seen.append(sorted(before - {"user_tea"}))
        authors = {event.body.by for event in book.history()[1:] if hasattr(event.body, "by")}
        assert authors <= {"extract", "consolidate"}
        if before == {"user_city_2", "user_tea"}:
            book.undo("user_city")
            assert set(book.notes().active) == {"user_city", "user_tea"}
    assert [names for place, names in enumerate(seen) if names != seen[place - 1]] == [["user_city"], ["user_city_2"]]


@pytest.mark.states("ME-52")
def test_a_crash_at_any_step_of_an_undo_leaves_one_of_the_two_notes(start: Path) -> None:
    change = AcceptedChange((NEW,), (replace(OLD, status="superseded", superseded_by="user_city_2@1"),), "corrected")
    notebook(start).apply(change, "extract")
    for folder in killed(start, "undo"):
        names = set(in_agreement(folder).notes().active) - {"user_tea"}
        assert names in ({"user_city"}, {"user_city_2"})


@pytest.mark.states("ME-52")
def test_a_crash_at_any_step_of_a_promotion_leaves_the_note_in_one_place(start: Path) -> None:
    for folder in killed(start, "promote"):
        notes = in_agreement(folder).notes()
        assert ("project_page" in notes.active) + ("project_page" in notes.quarantine) == 1


@pytest.mark.parametrize(
    ("path", "every"),
    [
        pytest.param("/nowhere", 4, id="every fourth step"),
        pytest.param("/nowhere", 1, id="without git", marks=pytest.mark.long),
        pytest.param(os.environ["PATH"], 1, id="with git", marks=pytest.mark.long),
    ],
)
@pytest.mark.states("ME-09", "ME-52")
def test_a_crash_at_any_step_of_forgetting_is_completed_by_the_next_change(start: Path, path: str, every: int) -> None:
    (start / "SUMMARY.md").write_text("v1\nLives in Xanadu.\nDrinks tea.\n")
    folders = killed(start, "forget", path=path, every=every)
    assert len(folders) > 20 / every
    outcomes = []
    for folder in folders:
        begun = (folder / ".forgetting").exists() or (folder / "tombstones.jsonl").exists()
        assert ("user_city" in notebook(folder).notes().active) is not begun
        book = in_agreement(folder)
        outcomes.append("user_city" in book.notes().active)
        if begun:
            assert [each for each in folder.rglob("*") if each.is_file() and b"Xanadu" in each.read_bytes()] == []
            assert [each for each in folder.iterdir() if each.name.startswith((".forg", ".rewr"))] == []
            assert len((folder / "tombstones.jsonl").read_bytes().splitlines()) == 1
            assert book.forgotten()("user_city") > 0
            assert (folder / "SUMMARY.md").read_text() == "v1\nDrinks tea.\n"
        shutil.rmtree(folder)
    assert (outcomes[0], outcomes[-1]) == (True, False)
    assert outcomes == sorted(outcomes, reverse=True)
