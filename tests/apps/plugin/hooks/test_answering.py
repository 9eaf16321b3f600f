"""What hooks print: bounded JSON for the model, a few lines before a compaction, or nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from claude_session import call, prompt, reply, result, text, written
from corpus import WITHOUT, corpus, golden
from opencode_session import Talk

from pal.plugin.hooks import LIMIT, Agent, HookAnswer, HookInput, answer, hook_input
from palimpsest.memory.notebook import memories_of
from palimpsest.memory.writing import NewNote, add_note
from palimpsest.stores.home import FolderHome
from palimpsest.stores.memory_config import MemoryConfig

GOLDEN = [*golden("claude/*/projects/**/*.jsonl"), *golden("codex/*/sessions/**/*.jsonl")]
CORPUS = corpus("*/*")


def said(home: Path, limit: int = LIMIT, agent: Agent = "claude", /, **fields: Any) -> HookAnswer:
    given = hook_input(json.dumps(fields).encode())
    assert given is not None
    return answer(given, FolderHome(home), agent, MemoryConfig, limit)


def after_compaction(home: Path, transcript: Path, limit: int = LIMIT) -> HookAnswer:
    return said(
        home, limit, session_id="s1", transcript_path=str(transcript), cwd=str(home), hook_event_name="SessionStart", source="compact"
    )


def context(found: HookAnswer, event: str) -> str:
    """The text for the model, if what is printed is the JSON that the agents read, and within the limit."""
    if not found.text:
        return ""
    assert len(found.text) <= LIMIT
    value = json.loads(found.text)
    assert list(value) == ["hookSpecificOutput"]
    assert value["hookSpecificOutput"]["hookEventName"] == event
    return str(value["hookSpecificOutput"]["additionalContext"])


def test_after_a_compaction_the_model_sees_what_the_transcript_proves(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("u1", None, 'Rename "old" to "new", and keep the CLI flag --fast.'),
        reply("a1", "u1", "m1", call("c1", "Edit", file_path="/repo/cli.py", old_string="old", new_string="new")),
        result("r1", "a1", "c1", "ok"),
        reply("a2", "r1", "m2", call("c2", "Bash", command="npm run build")),
        result("r2", "a2", "c2", "Error: Exit code 2", toolUseResult="Error: Exit code 2"),
        reply("a3", "r2", "m3", text("It fails.")),
    )
    found = context(after_compaction(tmp_path, path), "SessionStart")

    assert found.splitlines()[0].startswith("[Added by pal after this compaction")
    assert "session, claude-s1, is found" in found
    assert found.splitlines()[1:] == [
        "Edited:",
        "- /repo/cli.py",
        "Commands, newest first, with exit codes:",
        "- [2] npm run build",
        "Open errors:",
        "- [2] Error: Exit code 2 | npm run build",
        "Messages of the user, verbatim:",
        '- 2026-01-02 03:04: Rename "old" to "new", and keep the CLI flag --fast.',
    ]


def test_after_a_compaction_of_opencode_the_model_sees_what_the_session_proves_before_its_summary_was_asked_for(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("Keep the flag --fast.")
    state = {"status": "completed", "input": {"command": "make", "description": "Build"}, "output": "no rule", "metadata": {"exit": 2}}
    talk.assistant({"type": "tool", "callID": "c1", "tool": "bash", "state": state})
    asked = talk.user({"type": "compaction", "auto": True})
    talk.assistant("What was done.", summary=True, parentID=asked)
    talk.user("Now the tests.")
    fields = {"session_id": "ses_test", "transcript_path": str(talk.database(tmp_path)), "hook_event_name": "SessionStart"}
    found = context(said(tmp_path, LIMIT, "opencode", source="compact", before=asked, **fields), "SessionStart")

    assert "session, opencode-ses_test, is found" in found.splitlines()[0]
    assert found.splitlines()[1:] == [
        "Commands, newest first, with exit codes:",
        "- [2] make",
        "Open errors:",
        "- [2] no rule | make",
        "Messages of the user, verbatim:",
        "- 2025-10-09 08:53: Keep the flag --fast.",
    ]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name[-20:])
@pytest.mark.states("MI-10")
def test_for_real_transcripts_whole_cut_and_damaged_the_hook_prints_valid_json_within_its_limit(path: Path, tmp_path: Path) -> None:
    _check_every_state_of(path, tmp_path)


@pytest.mark.long
@pytest.mark.skipif(not CORPUS, reason=WITHOUT)
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name[-24:])
@pytest.mark.states("MI-10")
def test_for_every_file_of_the_corpus(path: Path, tmp_path: Path) -> None:
    _check_every_state_of(path, tmp_path)


def _check_every_state_of(path: Path, folder: Path) -> None:
    data = path.read_bytes()[:6_000_000]
    half = len(data) // 2
    states = {"whole": data, "cut": data[:half], "headless": data[half:], "holed": data[:half] + b"\x00\xff{]" * 500 + data[half + 2_000 :]}
    for name, state in states.items():
        copy = folder / name / path.name
        copy.parent.mkdir()
        copy.write_bytes(state)
        for limit in (LIMIT, 1_000):
            found = after_compaction(folder / "home", copy, limit)
            assert found.background == ""
            assert len(found.text) <= limit
            assert context(found, "SessionStart") or not found.text


def test_texts_that_need_many_escapes_stay_within_the_limit_too(tmp_path: Path) -> None:
    said = '"\\\n\t' * 300 + "é\u2028🙂"
    path = written(tmp_path, *(prompt(f"u{number}", f"u{number - 1}" if number else None, said) for number in range(30)))

    assert len(after_compaction(tmp_path, path).text) > LIMIT // 3
    assert context(after_compaction(tmp_path, path), "SessionStart")


def test_notes_are_shown_at_the_start_and_at_prompts_that_they_bear_on_once(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    memories = memories_of(FolderHome(home), project)
    assert memories is not None
    add_note(memories.project, NewNote(kind="project", text="The staging database is restored every Monday."), "2026-05-28T20:26:40+00:00")
    common: dict[str, Any] = {"session_id": "s1", "cwd": str(project)}
    asked = {**common, "hook_event_name": "UserPromptSubmit", "prompt": "When is the staging database restored?"}
    start = context(said(home, **common, hook_event_name="SessionStart", source="startup"), "SessionStart")

    assert "[project_the_staging_database_is_restored_every_monday]" in start
    assert "every Monday" in context(said(home, **asked), "UserPromptSubmit")
    assert said(home, **asked) == HookAnswer()
    assert said(home, **{**asked, "prompt": "Rename the parser."}) == HookAnswer()
    said(home, **common, hook_event_name="SessionStart", source="clear")
    assert "every Monday" in context(said(home, **asked), "UserPromptSubmit")


@pytest.mark.parametrize(
    ("event", "fields", "background"),
    [
        ("Stop", {"stop_hook_active": False}, "read"),
        ("SessionEnd", {"reason": "other"}, "import"),
        ("SessionStart", {"source": "resume"}, "read"),
        ("SessionStart", {"source": "startup"}, ""),
        ("SessionStart", {"source": "clear"}, ""),
        ("SessionStart", {"source": "compact"}, ""),
        ("SessionStart", {"source": "compact", "transcript_path": "/no/such/file.jsonl"}, ""),
        ("SessionStart", {"source": "compact", "transcript_path": None}, ""),
        ("UserPromptSubmit", {"prompt": "hello"}, ""),
        ("PostToolUse", {"tool_name": "Bash", "tool_response": {"stdout": "x"}}, ""),
        ("PreToolUse", {"tool_name": "Bash"}, ""),
        ("SomethingNew", {}, ""),
    ],
)
def test_where_nothing_is_to_be_said_nothing_is_printed(event: str, fields: dict[str, Any], background: str, tmp_path: Path) -> None:
    found = said(tmp_path / "home", **{"session_id": "s1", "cwd": str(tmp_path), "hook_event_name": event, **fields})

    assert found == HookAnswer("", background)  # type: ignore[arg-type]
    assert not (tmp_path / "home").exists()


def test_before_a_compaction_the_summary_is_asked_for_what_no_program_can_list_and_nothing_blocks_it(tmp_path: Path) -> None:
    given = HookInput(hook_event_name="PreCompact", session_id="s1", cwd=str(tmp_path))
    found = answer(given, FolderHome(tmp_path), "claude", MemoryConfig)

    assert found.background == "import"
    assert len(found.text) < 1_000
    assert not found.text.startswith("{")
    assert answer(given, FolderHome(tmp_path), "codex", MemoryConfig) == HookAnswer("", "import")


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{", b'{"source": 7}', b"\xff\xfe", b'{"prompt": null}'])
def test_input_that_is_not_of_the_known_shape_is_no_input(data: bytes) -> None:
    assert hook_input(data) is None
