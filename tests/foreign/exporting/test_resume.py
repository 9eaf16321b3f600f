import shutil
from pathlib import Path

import msgspec
from corpus import GOLDEN

from palimpsest.core.events import EventRef as Origin
from palimpsest.core.events import SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.exchange.claude.writer import claude_session, write_claude
from palimpsest.exchange.importing import import_session
from palimpsest.exchange.resume import ResumeTarget, claude_target, codex_target
from palimpsest.exchange.transcript import TranscriptSource
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

_PROJECT = GOLDEN / "claude" / "2.1.325" / "projects" / "-repo-project"
_SESSION = "69901b92-81d1-436f-9093-e5364257259e"


def _all_imported(path: Path) -> list[tuple[Log, list[bytes]]]:
    store, blobs = MemorySessions(), MemoryBlobs()
    sources = [source for source in ClaudeFormat().sources(path) if isinstance(source, TranscriptSource)]
    sessions = [import_session(ClaudeFormat(), source, store, blobs, FixedClock(1)).session for source in sources]
    logs = [Log.open(store, session, FixedClock(1)) for session in sessions]
    return [(log, list(write_claude(log, blobs))) for log in logs]


def _imported(path: Path) -> tuple[Log, list[bytes]]:
    (one,) = _all_imported(path)
    return one


def test_a_session_goes_back_to_where_it_came_from(tmp_path: Path) -> None:
    log, lines = _imported(_PROJECT / f"{_SESSION}.jsonl")
    place = claude_target(log, lines, tmp_path, {}, log.opened.cwd)

    path = tmp_path / ".claude" / "projects" / "-repo-project" / f"{_SESSION}.jsonl"
    assert place == ResumeTarget(str(path), f"cd /repo/project && claude --resume {_SESSION}")


def test_a_file_that_was_renamed_gets_its_name_back(tmp_path: Path) -> None:
    shutil.copy(_PROJECT / f"{_SESSION}.jsonl", tmp_path / "my backup.jsonl")
    log, lines = _imported(tmp_path / "my backup.jsonl")

    assert Path(claude_target(log, lines, tmp_path, {}, "/repo/project").path).name == f"{_SESSION}.jsonl"


def test_a_sub_agent_goes_back_beside_the_session_it_worked_for(tmp_path: Path) -> None:
    (file,) = (_PROJECT / _SESSION / "subagents").glob("*.jsonl")
    log, lines = _imported(file)
    place = claude_target(log, lines, tmp_path, {"CLAUDE_CONFIG_DIR": str(tmp_path)}, "/repo/project")

    assert place.path == str(tmp_path / "projects" / "-repo-project" / _SESSION / "subagents" / file.name)
    assert (place.command, place.why) == ("", "Claude Code resumes no sub-agents")


def test_a_sub_agent_in_a_file_that_was_renamed_does_not_take_the_place_of_its_session(tmp_path: Path) -> None:
    session = "0a1b2c3d-0000-4000-8000-000000000001"
    common = {"sessionId": session, "cwd": "/repo", "version": "1.0.108", "timestamp": "2026-01-01T00:00:00.000Z"}
    lines = [
        {**common, "type": "user", "uuid": "u1", "parentUuid": None, "isSidechain": False, "message": {"role": "user", "content": "go"}},
        {**common, "type": "user", "uuid": "u2", "parentUuid": None, "isSidechain": True, "message": {"role": "user", "content": "look"}},
    ]
    file = tmp_path / f"my.backup__{session}.jsonl"
    file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    found = [claude_target(log, lines, tmp_path, {"CLAUDE_CONFIG_DIR": str(tmp_path)}, "/repo") for log, lines in _all_imported(file)]

    project = tmp_path / "projects" / "-repo"
    assert [place.path for place in found] == [str(project / f"{session}.jsonl"), str(project / session / "subagents" / "agent-u2.jsonl")]
    assert [place.command for place in found] == [f"cd /repo && claude --resume {session}", ""]


def test_a_child_of_another_program_is_a_session_that_can_be_resumed(tmp_path: Path) -> None:
    log = Log.create(MemorySessions(), SessionOpened("child", origin="codex", opener=Origin("parent", 3)), FixedClock(0))
    log.append(UserSaid((Text("go"),)))
    place = claude_target(log, write_claude(log, MemoryBlobs()), tmp_path, {}, "/repo")

    assert place.path == str(tmp_path / ".claude" / "projects" / "-repo" / f"{claude_session(log)}.jsonl")
    assert place.command == f"cd /repo && claude --resume {claude_session(log)}"


def test_a_folder_with_spaces_and_quotes_is_written_for_a_shell(tmp_path: Path) -> None:
    log = _opened(SessionOpened("s"), "go")
    claude, codex = (find(log, [], tmp_path, {}, "/my 'own' work_dir") for find in (claude_target, codex_target))

    assert Path(claude.path).parent.name == "-my--own--work-dir"
    assert claude.command.startswith("cd '/my '\"'\"'own'\"'\"' work_dir' && claude --resume ")
    assert Path(codex.path).parent == tmp_path / ".codex" / "sessions" / "1970" / "01" / "01"
    assert codex.command.startswith("cd '/my '\"'\"'own'\"'\"' work_dir' && codex resume ")


def _opened(opened: SessionOpened, *words: str) -> Log:
    log = Log.create(MemorySessions(), opened, FixedClock(0))
    for word in words:
        log.append(UserSaid((Text(word),)))
    return log


def test_a_session_that_the_program_could_not_resume_has_a_reason_instead_of_a_command(tmp_path: Path) -> None:
    silent, agent = _opened(SessionOpened("silent")), _opened(SessionOpened("a", origin="codex", opener=Origin("p", 3)), "go")
    renamed = _opened(SessionOpened("b", origin="codex", meta={"id": "my backup"}), "go")

    assert claude_target(silent, (), tmp_path, {}, "/repo").why == "the user said nothing in it"
    assert codex_target(silent, (), tmp_path, {}, "/repo").why == "the user said nothing in it"
    assert codex_target(agent, (), tmp_path, {}, "/repo").why == "Codex resumes no sub-agents"
    assert codex_target(renamed, (), tmp_path, {}, "/repo").why == "its id there, 'my-backup', is no UUID"
    assert {codex_target(log, (), tmp_path, {}, "/repo").command for log in (silent, agent, renamed)} == {""}


def test_a_session_that_is_installed_for_another_folder_says_how_it_moves(tmp_path: Path) -> None:
    log = _opened(SessionOpened("here"), "go")
    elsewhere = tmp_path / ".claude" / "projects" / "-elsewhere" / f"{claude_session(log)}.jsonl"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.touch()

    assert claude_target(log, (), tmp_path, {}, "/repo") == ResumeTarget(
        str(elsewhere), why="it is installed for another folder; --cwd /repo moves it"
    )
    assert claude_target(log, (), tmp_path, {}, "/repo", moves=True).command == f"cd /repo && claude --resume {claude_session(log)}"
