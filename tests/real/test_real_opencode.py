"""OpenCode itself, from npm, against a scripted model on the loopback: `./run pytest -m real tests/real`."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from desks import run_agent
from npm_programs import run_pal, user_variables
from scripted_api import ScriptedApi, serving

from palimpsest.core.events import ModelReplied, ToolReturned, Usage, UserSaid, UserTyped, ViewEdited
from palimpsest.core.items import Mask, Text, ToolCall, ToolResult
from palimpsest.exchange.opencode.writer import opencode_session
from palimpsest.stores.home import FolderHome

pytestmark = pytest.mark.real


class Desk:
    """A user of OpenCode, with pal plugged in and a scripted model."""

    def __init__(self, program: Path, folder: Path, api: ScriptedApi) -> None:
        self.program, self.api, self.project = program, api, folder / "project"
        config = folder / "home" / ".config" / "opencode" / "opencode.jsonc"
        self.project.mkdir()
        config.parent.mkdir(parents=True)
        options, limits = {"baseURL": f"{api.url}/v1", "apiKey": "scripted"}, {"context": 100_000, "output": 8_000}
        provider = {"anthropic": {"options": options, "models": {"claude-sonnet-4-5": {"limit": limits}}}}
        config.write_text("// mine\n" + json.dumps({"model": "anthropic/claude-sonnet-4-5", "provider": provider}))
        switches = dict.fromkeys(("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH"), "1")
        self.variables = {**user_variables(folder / "home", folder / "pal"), **switches}

    def pal(self, *words: str) -> str:
        return run_pal(self.project, self.variables, *words)

    def opencode(self, *words: str) -> list[dict[str, Any]]:
        """Run a prompt to its end, and return the requests of the agent itself that the model got."""
        before = len(self.api.requests)
        run_agent([str(self.program), "run", *words], self.project, self.variables)
        return [request for request in self.api.requests[before:] if request.get("tools")]


@pytest.fixture
def desk(opencode: Path) -> Iterator[Desk]:
    # An import may still run when OpenCode has ended.
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder, serving() as api:
        made = Desk(opencode, Path(folder), api)
        made.pal("plug", "opencode", "--yes")
        yield made


def test_recall_over_mcp_answers_and_an_idle_session_is_imported(desk: Desk) -> None:
    desk.pal("memory", "add", "The release branch is called stable.")
    desk.api.calls = [("pal_recall", {"query": "what is the release branch called?"})]
    requests = desk.opencode("What is the release branch called?")
    deadline = time.monotonic() + 60
    while not (sessions := json.loads(desk.pal("sessions", "--json"))) and time.monotonic() < deadline:
        pass

    assert "The release branch is called stable." in json.dumps(requests[-1]["messages"][-1])
    assert [session["origin"] for session in sessions] == ["opencode"]


def test_notes_are_in_the_first_request_and_stand_there_in_the_same_words_later(desk: Desk) -> None:
    desk.pal("memory", "add", "The release branch is called stable.")
    desk.api.calls = [("bash", {"command": "echo hello", "description": "Say"})]
    first, second = desk.opencode("Say hello.")

    assert "[project_the_release_branch_is_called_stable]" in json.dumps(first["messages"][0])
    assert without_marks(second["messages"][0]) == without_marks(first["messages"][0])


@pytest.mark.states("MI-11")
def test_after_a_real_compaction_every_later_request_holds_the_same_evidence(desk: Desk) -> None:
    desk.api.calls = [("bash", {"command": "echo hello && exit 3", "description": "Say"})]
    desk.opencode("Keep the flag --fast, whatever happens.")
    filled = len(desk.api.requests) + 1
    desk.api.before_reply = lambda number: setattr(desk.api, "input_tokens", 99_000 if number == filled else 1_000)
    before, after = desk.opencode("--continue", "Second prompt.")
    later = desk.opencode("--continue", "Third prompt.")[-1]
    evidence = [[text for text in texts_of(request) if "[Added by pal after this compaction" in text] for request in (before, after, later)]
    [text] = evidence[1]

    assert "whatever happens" not in json.dumps(after["messages"][:2])
    assert evidence == [[], [text], [text]]
    assert ': "Keep the flag --fast, whatever happens."' in text
    assert ': "Second prompt."' in text
    assert "[3] echo hello && exit 3" in text
    assert "Third prompt." not in text


def test_an_exported_session_goes_on_with_what_its_view_shows(desk: Desk) -> None:
    home = FolderHome(Path(desk.variables["PAL_HOME"]))
    with home.new(cwd=str(desk.project), model="claude-sonnet-4-5") as log:
        log.append(ModelReplied((Text("I am ready.", "assistant"),)))
        log.append(UserSaid((Text("Read a.txt."),)))
        calls = (ToolCall("toolu_1", "read", '{"filePath":"a.txt"}'), ToolCall("toolu_2", "read", "{}"))
        log.append(ModelReplied((Text("I look.", "assistant"), *calls)))
        result = log.append(ToolReturned(ToolResult("toolu_1", (Text("THE-WHOLE-FILE"),))))
        log.append(ToolReturned(ToolResult("toolu_2", (Text("no such file"),), error=True)))
        log.append(ModelReplied((Text("Done.", "assistant"),), usage=Usage(99_000, output=5)))
        log.append(ViewEdited((Mask((f"{result.seq}.0",), "[cleared; recall it]"),), "pal", tokens_before=99_000, tokens_after=100))
        log.append(UserTyped((Text("And b.txt, when you are done."),)))
        session = opencode_session(log)
    desk.pal("export", log.session, "--to", "opencode", "--out", "session.json")
    run_agent([str(desk.program), "import", "session.json"], desk.project, desk.variables)
    [request] = desk.opencode("--session", session, "Continue.")
    blocks = [(message["role"], block) for message in request["messages"] for block in without_marks(message)]

    assert [(role, block.get("text") or block.get("content") or block["input"]) for role, block in blocks] == [
        ("user", "Go on."),
        ("assistant", "I am ready."),
        ("user", "Read a.txt."),
        ("assistant", "I look."),
        ("assistant", {"filePath": "a.txt"}),
        ("assistant", {}),
        ("user", "[cleared; recall it]"),
        ("user", "no such file"),
        ("assistant", "Done."),
        ("user", "And b.txt, when you are done."),
        ("user", "Continue."),
    ]


def texts_of(request: dict[str, Any]) -> list[str]:
    contents = (message["content"] for message in request["messages"])
    return [block.get("text", "") for content in contents for block in (content if isinstance(content, list) else [{"text": content}])]


def without_marks(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in block.items() if key != "cache_control"} for block in message["content"]]
