"""The first run without a key, in a real terminal: every step that is offered works, and holds at once."""

import subprocess
from collections.abc import Callable

import claude_session
from terminal_room import SMALL_WINDOW, Room, say
from wire_server import Said, wire_server

OFFERED = [
    "❯ import sessions of Claude Code, Codex, OpenCode and others",
    "  replay a session under several profiles",
    "  use a model on this machine",
    "  use a key of Anthropic, OpenAI or another provider",
]


def with_a_session_of_claude(here: Room) -> None:
    """A session that Claude Code has left in its folder."""
    lines = (
        claude_session.prompt("u1", None, "Where is the walrus parser?"),
        claude_session.reply("a1", "u1", "m1", claude_session.call("c1", command="ls")),
        claude_session.result("r1", "a1", "c1", "walrus.py"),
        claude_session.reply("a2", "r1", "m2", claude_session.text("It has a tusk.")),
    )
    claude_session.written(here.home / ".claude/projects/-repo", *lines)


def test_sessions_of_another_agent_are_imported_replayed_and_resumed(room: Callable[..., Room]) -> None:
    here = room(("it moved to src",))
    with_a_session_of_claude(here)
    with here.terminal(ready="What first?", rows=50, ANTHROPIC_API_KEY="", ANTHROPIC_BASE_URL="") as screen:
        screen.wait_for(OFFERED[0])
        screen.wait_until_quiet()
        first = screen.lines().index(OFFERED[0])
        assert screen.lines()[first : first + 4] == OFFERED
        assert "· No model can be asked yet: ANTHROPIC_API_KEY is not set; set it, or name" in screen.lines()
        screen.press("enter")
        screen.wait_for("claude         1       7     1      1        1      0      0          0")
        screen.wait_for("· It has a tusk.")
        screen.press("esc")
        screen.wait_for("❯ import sessions")
        screen.press("down", "enter")
        screen.wait_for("Replay which session?")
        screen.press("enter")
        screen.wait_for("folds/100: folds per 100")
        screen.wait_for("❯ replay a session")
    with here.terminal() as screen:
        say(screen, "/resume")
        screen.wait_for("Which session?")
        screen.type("tusk")
        # The word stands in a reply and neither in the title nor in the line about the session.
        screen.wait_for(lambda: "❯ tusk" in screen.lines() and "❯ 01-02 03:04 Where is the walrus parser?" in screen.lines())
        screen.press("enter")
        screen.wait_for("imported from claude-code")
        say(screen, "where is it now?")
        screen.wait_for("it moved to src")
        sent = str(here.model.asked[-1]["messages"])
        assert ("Where is the walrus parser?" in sent, "walrus.py" in sent, "where is it now?" in sent) == (True, True, True)


def test_a_model_of_a_local_server_answers_without_a_restart(room: Callable[..., Room]) -> None:
    here = room(("unused",))
    served = ({"id": "qwen:7b"}, {"id": "large", "max_model_len": 40_960})
    with (
        wire_server(Said("I run here."), models=served) as server,
        here.terminal(ready="What first?", rows=40, ANTHROPIC_API_KEY="", ANTHROPIC_BASE_URL="") as screen,
    ):
        screen.type("machine")
        screen.wait_for("❯ use a model on this machine")
        screen.press("enter")
        screen.wait_for("Which server runs here?")
        # Nothing listens on this port of the loopback, which only root could use.
        screen.type("http://127.0.0.1:1/v1")
        screen.wait_for("❯ the server at http://127.0.0.1:1/v1")
        screen.press("enter")
        screen.wait_for("local: no server answers at http://127.0.0.1:1/v1")
        screen.wait_for("❯ use a model on this machine")
        screen.press("enter")
        screen.wait_for("Which server runs here?")
        screen.type(f"{server.url}/v1")
        screen.wait_for(f"❯ the server at {server.url}/v1")
        screen.press("enter")
        screen.wait_for("  large 40k")
        screen.press("enter")
        screen.wait_for("With how large a context was it started?")
        screen.press("down", "down", "enter")
        screen.wait_for("local/qwen:7b is ready: type a message")
        say(screen, "who are you?")
        screen.wait_for("I run here.")
        screen.wait_for(lambda: "of 32k" in screen.lines()[-1])
        assert [(path, body["model"]) for path, body in server.requests] == [("/v1/chat/completions", "qwen:7b")]
    assert (here.home / "config.toml").read_text() == (
        f'model = "local/qwen:7b"\n[memory]\njobs = "off"\n\n[providers.local]\nbase_url = "{server.url}/v1"\n'
    )
    own = '[cards."local/qwen:7b"]\nlike = "local/qwen:7b"\nwindow = 32768\nreply = 8192\n'
    assert (here.home / "cards.toml").read_text() == f"{SMALL_WINDOW}\n{own}"


def test_a_key_is_never_shown_and_kept_where_only_its_owner_reads_it(room: Callable[..., Room]) -> None:
    here = room(("with the key",))
    # The address is that of the model on the loopback, which wants a key as the real one does.
    with here.terminal(ready="of 200k", ANTHROPIC_API_KEY="") as screen:
        say(screen, "/start secret")
        screen.wait_for("/start takes import, replay, local, key, or nothing for the list")
        say(screen, "/start key")
        screen.wait_for("A key of which provider?")
        screen.press("enter")
        screen.wait_for("Key of anthropic (it is not shown; Enter alone leaves):")
        screen.type("sk-ant-0123456789\r")
        screen.wait_for("so the key of anthropic is in")
        screen.wait_for("claude-sonnet-4-6 is ready: type a message")
        say(screen, "hello")
        screen.wait_for("with the key")
        screen.press("ctrl-d")
        assert screen.wait_for_end() == 0
        assert b"sk-ant" not in screen.raw
    config = here.home / "config.toml"
    assert '[providers.anthropic]\napi_key = "sk-ant-0123456789"\n' in config.read_text()
    assert config.stat().st_mode & 0o777 == 0o600
    found = subprocess.run(["grep", "-rl", "sk-ant-0123456789", str(here.home)], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [str(config)]
    assert here.model.keys == ["sk-ant-0123456789"]
