"""The session store of the Claude Agent SDK keeps entries by value, in files that the importer reads."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palimpsest.adapters.agent_sdk import ClaudeSessionStore
from palimpsest.core.errors import BadInput, BadLog

MAIN = {"project_key": "-srv-shop", "session_id": "0b5e3a52-5d0e-4b8e-9f46-0d2f53d1e001"}
SUB = {**MAIN, "subpath": "subagents/agent-1"}


@pytest.mark.states("PV-80")
def test_entries_come_back_by_value_once_each_also_to_another_process(tmp_path: Path) -> None:
    first, title = {"type": "user", "uuid": "a", "n": 1.5, "text": "é\ud83d 深\n"}, {"type": "custom-title", "title": "t"}

    async def kept() -> list[Any]:
        store, other = ClaudeSessionStore(tmp_path), ClaudeSessionStore(tmp_path)
        await store.append(MAIN, [first, title])
        await other.append(MAIN, [first, title, {"type": "user", "uuid": "b"}, {"type": "user", "uuid": "b"}])
        await store.append(MAIN, [{"type": "user", "uuid": "b"}])
        await store.append(SUB, [{"type": "user", "uuid": "a"}])
        loaded = [await store.load(MAIN), await other.load(SUB), await store.load({**MAIN, "session_id": "none"})]
        return [*loaded, await store.list_subkeys(MAIN)]

    expected = [first, title, title, {"type": "user", "uuid": "b"}]
    assert asyncio.run(kept()) == [expected, [{"type": "user", "uuid": "a"}], None, ["subagents/agent-1"]]
    files = sorted(path for path in tmp_path.rglob("*.jsonl"))
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600, 0o600]


@pytest.mark.states("PV-80")
def test_a_key_cannot_name_a_file_elsewhere_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    store = ClaudeSessionStore(tmp_path / "store")
    for bad in (
        {**MAIN, "session_id": "../../x"},
        {**MAIN, "session_id": ""},
        {**MAIN, "project_key": ".."},
        {**MAIN, "project_key": "a/b"},
        {**MAIN, "subpath": "../../../x"},
        {**MAIN, "subpath": ""},
        {**MAIN, "subpath": "/etc/x"},
    ):
        with pytest.raises(BadInput, match="is not a name"):
            asyncio.run(store.append(bad, [{"type": "x"}]))
        with pytest.raises(BadInput, match="is not a name"):
            asyncio.run(store.delete(bad))
    assert list(tmp_path.iterdir()) == []

    asyncio.run(store.append(MAIN, [{"type": "x"}]))
    (file,) = tmp_path.rglob("*.jsonl")
    file.write_bytes(file.read_bytes() + b"[1]\n")
    with pytest.raises(BadLog, match="line 2 is not a JSON object"):
        asyncio.run(store.load(MAIN))


@pytest.mark.states("PV-80")
def test_what_the_sdk_stored_is_imported_as_a_session_of_claude_code(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[1] / "golden" / "foreign" / "claude"
    transcript = next(path for path in sorted(recorded.rglob("*.jsonl")) if "subagents" not in path.parts)
    lines = [msgspec.json.decode(line) for line in transcript.read_bytes().splitlines() if line]
    store = ClaudeSessionStore(tmp_path / "sdk")
    key = {"project_key": transcript.parent.name, "session_id": transcript.stem}
    for start in range(0, len(lines), 5):
        asyncio.run(store.append(key, lines[start : start + 5]))

    assert asyncio.run(store.load(key)) == lines
    (kept,) = (tmp_path / "sdk" / "projects").rglob("*.jsonl")
    assert imported(tmp_path / "one", kept) == imported(tmp_path / "two", transcript) != []


def imported(home: Path, transcript: Path) -> list[Any]:
    """The bodies of the events of a transcript, imported by `pal` into a home."""

    def pal(*words: str) -> bytes:
        command, variables = [sys.executable, "-m", "pal.cli", *words], {**os.environ, "PAL_HOME": str(home)}
        return subprocess.run(command, env=variables, cwd=home, capture_output=True, check=True, timeout=120).stdout

    home.mkdir()
    pal("import", str(transcript))
    return [event["body"] for event in msgspec.json.decode(pal("show", "last", "--json"))["events"]]
