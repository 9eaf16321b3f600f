"""No text of a session acts on a terminal: whatever a title, a path, a tool, a model, an error, a note or a hook says."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest

from pal.cli.command_line import run_command_line
from pal.cli.main import COMMANDS, cli
from pal.text import escaped_json, plain
from palimpsest.core.events import (
    CallStarted,
    ContextStated,
    EditRefused,
    Failed,
    HookRan,
    JobRan,
    ModelReplied,
    SessionOpened,
    Statement,
    Titled,
    ToolReturned,
    TurnEnded,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Mask, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.stores.home import FolderHome

# Escape sequences of seven and of eight bits, a title of a window, a bell, deletions, and every sign that reorders text.
SIGNS = (
    "\x1b[31m\x1b]0;mine\x07\x9b2J\x90\x08\x7f\x061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c"
)
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
SESSION = "hostile"


def evil(word: str) -> str:
    return f"{word}{SIGNS}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> FolderHome:
    home = FolderHome(tmp_path_factory.mktemp("home"))
    opened = SessionOpened(SESSION, cwd=evil("/project"), origin=evil("origin"), model=evil("model"), profile=evil("profile"))
    with Log.create(home.store, opened, home.clock) as log:
        log.append(Titled(evil("title"), (evil("tag"),), by=evil("titler")))
        log.append(ContextStated(head=(Statement(evil("source"), evil("instructions"), "system"),)))
        log.append(UserSaid((Text(evil("please")),)))
        call = log.append(CallStarted(evil("model"), "anthropic")).seq
        arguments = json.dumps({"file_path": evil("/project/a.py"), "command": evil("run")})
        parts = (Text(evil("answer"), "assistant"), ToolCall(evil("call"), evil("tool"), arguments))
        log.append(ModelReplied(parts, call, Usage(10, 20, 30, 0, 5), model=evil("model")))
        result = ToolReturned(ToolResult(evil("call"), (Text(evil("printed error: ")),), error=True), evil("tool"), paths=(evil("/a.py"),))
        seq = log.append(result).seq
        log.append(HookRan(evil("hook"), evil("moment"), 1, text=evil("said"), failure=evil("failure"), notice=evil("notice")))
        log.append(Failed(evil("what"), evil("error"), evil("message"), by=evil("policy")))
        log.append(JobRan(evil("job"), 3, "failed", evil("why")))
        edit = Mask((f"{seq}.0",), evil("stub"))
        log.append(EditRefused((edit,), evil("policy"), evil("gate"), evil("why")))
        log.append(ViewEdited((edit,), by=evil("policy"), why=evil("why")))
        log.append(TurnEnded())
    return home


def pal(home: FolderHome, *arguments: str) -> str:
    """Everything that a command prints."""
    output, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors), pytest.raises(SystemExit):
        run_command_line(cli, list(arguments), home)
    output.flush()
    return output.buffer.getvalue().decode() + errors.getvalue()


# One line or more for each command; those that start a server, a model or a long measurement have nothing of the session in them.
LINES = {
    "sessions": [[], ["--json"]],
    "show": [[SESSION], [SESSION, "--events"], [SESSION, "--json"]],
    "context": [[SESSION], [SESSION, "--json"]],
    "audit": [[SESSION], [SESSION, "11"], [SESSION, "--refused"], [SESSION, "--json"], [SESSION, "--refused", "--json"]],
    "diff": [[SESSION], [SESSION, "--json"]],
    "jobs": [[SESSION], [SESSION, "--json"]],
    "search": [["printed"], ["printed", "--json"], [evil("nothing")]],
    "hooks": [[SESSION], [SESSION, "--json"]],
    "cards": [[], [evil("card")]],
    "agents": [[SESSION], [evil("agent")], [SESSION, "--json"]],
    "mcp-servers": [[], ["--json"]],
    "why": [[SESSION, "printed"], [SESSION, evil("nothing")], [SESSION, "printed", "--json"]],
    "secrets": [[SESSION], [SESSION, "--json"], [evil("session")]],
    "memory": [["list"], ["show", evil("note")], ["search", evil("words")]],
    "compact": [[SESSION, "--preview"], [SESSION, "--preview", "--json"]],
    "pin": [[SESSION, evil("/a.py")], [SESSION, evil("/b.py"), "--json"]],
    "unpin": [[SESSION, evil("/a.py")]],
    "undo": [[SESSION, "11", "--json"], [SESSION, evil("edit")]],
    "restore": [[SESSION, evil("item")]],
    "rewind": [[SESSION, evil("place")]],
    "fork": [[SESSION, evil("place")], [SESSION]],
    "import": [[evil("/nowhere")]],
    "export": [[SESSION, "--to", "markdown"], [SESSION, "--to", "html"], [SESSION, "--to", evil("form")]],
    "config": [[], [evil("key")]],
    "verify": [[SESSION], [SESSION, "--json"], [evil("session")], [evil("session"), "--json"]],
    "index": [[], ["--json"]],
    "doctor": [[], ["--json"]],
    "delete": [[evil("session")]],
    "replay": [[SESSION, "--profiles", "none", "--card", "claude-sonnet-4-5"], [SESSION, "--profiles", evil("profile")]],
    "completion": [[evil("shell")]],
}
WITHOUT_SESSIONS = {"ask", "chat", "acp", "mcp", "plug", "unplug", "gateway", "wrap", "init", "trust", "demo", "bench", "lab"}


def test_every_command_is_tried_or_named_as_one_that_shows_no_session() -> None:
    assert set(COMMANDS) - set(LINES) <= WITHOUT_SESSIONS


@pytest.mark.parametrize(("command", "arguments"), [(name, each) for name, lines in LINES.items() for each in lines])
def test_no_command_prints_a_sign_that_acts_on_a_terminal(home: FolderHome, command: str, arguments: list[str]) -> None:
    printed = pal(home, command, *arguments)
    assert printed
    assert "Traceback" not in printed
    assert [(found.group(), printed[max(0, found.start() - 30) : found.end() + 10]) for found in ACTS.finditer(printed)] == []


@pytest.mark.parametrize(
    "words",
    [
        ("export", SESSION, "--to", "claude", "--install", "--force"),
        ("export", SESSION, "--to", "codex", "--install", "--force"),
        ("export", SESSION, "--to", "claude"),
        ("export", SESSION, "--to", "opencode"),
        ("export", SESSION, "--to", "messages"),
        ("show", SESSION, "--request", "next"),
        ("show", SESSION),
        ("import", "HOSTILE"),
    ],
    ids=" ".join,
)
def test_no_text_of_a_session_acts_on_a_real_terminal(home: FolderHome, words: tuple[str, ...], tmp_path: Path) -> None:
    """Signs of our own, colours, are allowed there; a title of a window, a bell, a sign of eight bits or one that reorders text is not."""
    hostile = tmp_path / evil("folder").replace("\0", "")
    hostile.mkdir()
    (hostile / "a.jsonl").write_text("no session\n")
    near, far = pty.openpty()
    command = [sys.executable, "-m", "pal.cli", *(str(hostile) if word == "HOSTILE" else word for word in words)]
    variables = {**os.environ, "HOME": str(tmp_path), "PAL_HOME": str(home.folder), "TERM": "xterm-256color"}
    with subprocess.Popen(command, stdin=far, stdout=far, stderr=far, env=variables, start_new_session=True) as process:
        os.close(far)
        data = b""
        with suppress(OSError):
            while chunk := os.read(near, 65_536):
                data += chunk
        process.wait(60)
    os.close(near)
    printed = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", data.decode().replace("\r\n", "\n").replace("\r", ""))

    assert "Traceback" not in printed
    assert printed.strip()
    assert [printed[max(0, found.start() - 30) : found.end() + 10] for found in ACTS.finditer(printed)] == []
    assert "\x1b[31m\x1b]0;" not in data.decode()


def test_escaped_json_has_the_same_value() -> None:
    text = json.dumps({"title": SIGNS}, ensure_ascii=False)
    assert ACTS.search(escaped_json(text)) is None
    assert json.loads(escaped_json(text)) == {"title": SIGNS}


def test_a_plain_text_keeps_its_words_lines_and_tabs() -> None:
    assert plain(f"a\n\tb é 漢{SIGNS}")[:8] == "a\n\tb é 漢"
    assert ACTS.search(plain(SIGNS)) is None
