import shutil
from pathlib import Path

from corpus import GOLDEN

from palimpsest.core.events import SessionOpened
from palimpsest.core.log import Log
from palimpsest.foreign.claude import ClaudeFormat
from palimpsest.foreign.claude_writer import write_claude
from palimpsest.foreign.importing import import_session
from palimpsest.foreign.places import Place, claude_place, codex_place
from palimpsest.foreign.transcript import Source
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemoryShelf

_PROJECT = GOLDEN / "claude" / "2.1.325" / "projects" / "-repo-project"
_SESSION = "69901b92-81d1-436f-9093-e5364257259e"


def _imported(path: Path) -> tuple[Log, list[bytes]]:
    (source,) = ClaudeFormat().sources(path)
    assert isinstance(source, Source)
    shelf, blobs = MemoryShelf(), MemoryBlobs()
    log = Log.open(shelf, import_session(ClaudeFormat(), source, shelf, blobs, FixedClock(1)).session, FixedClock(1))
    return log, list(write_claude(log, blobs))


def test_a_session_goes_back_to_where_it_came_from(tmp_path: Path) -> None:
    log, lines = _imported(_PROJECT / f"{_SESSION}.jsonl")
    place = claude_place(log, lines, tmp_path, {}, log.opened.cwd)

    path = tmp_path / ".claude" / "projects" / "-repo-project" / f"{_SESSION}.jsonl"
    assert place == Place(str(path), f"cd /repo/project && claude --resume {_SESSION}")


def test_a_file_that_was_renamed_gets_its_name_back(tmp_path: Path) -> None:
    shutil.copy(_PROJECT / f"{_SESSION}.jsonl", tmp_path / "my backup.jsonl")
    log, lines = _imported(tmp_path / "my backup.jsonl")

    assert Path(claude_place(log, lines, tmp_path, {}, "/repo/project").path).name == f"{_SESSION}.jsonl"


def test_a_sub_agent_goes_back_beside_the_session_it_worked_for(tmp_path: Path) -> None:
    (file,) = (_PROJECT / _SESSION / "subagents").glob("*.jsonl")
    log, lines = _imported(file)
    place = claude_place(log, lines, tmp_path, {"CLAUDE_CONFIG_DIR": str(tmp_path)}, "/repo/project")

    assert place.path == str(tmp_path / "projects" / "-repo-project" / _SESSION / "subagents" / file.name)
    assert place.command.endswith(_SESSION)


def test_a_folder_with_spaces_and_quotes_is_written_for_a_shell(tmp_path: Path) -> None:
    log = Log.create(MemoryShelf(), SessionOpened("s"), FixedClock(0))
    claude, codex = (find(log, [], tmp_path, {}, "/my 'own' work_dir") for find in (claude_place, codex_place))

    assert Path(claude.path).parent.name == "-my--own--work-dir"
    assert claude.command.startswith("cd '/my '\"'\"'own'\"'\"' work_dir' && claude --resume ")
    assert Path(codex.path).parent == tmp_path / ".codex" / "sessions" / "1970" / "01" / "01"
    assert codex.command.startswith("cd '/my '\"'\"'own'\"'\"' work_dir' && codex resume ")
