"""Days as the real programs recorded them: where a program compacted, a session under its profile does, at the same reported sizes."""

from pathlib import Path

import pytest
from live_agent import LiveAgent
from live_agent import using as calling
from live_codex import LiveCodex
from live_codex import using as calling_function
from streaming_model import Spent
from wire_server import Said

from palimpsest.core.events import ModelReplied, UserSaid, ViewEdited
from palimpsest.core.items import Fold
from palimpsest.core.log import Log
from palimpsest.stores.home import FolderHome

# A line is a prompt: the thousands of tokens that each reply reported, `+` if it called a tool, and `fold` where the program compacted,
# perhaps before the prompt took its place. What OpenCode asks by itself after it compacted at the end of a turn is left out.
CLAUDE = """22+ 22.5+ 22.6+ 22.7
23+ 23.1
24+ 24.5
25
40+ 41
172
fold 30+ 30.1
31
172
fold 30
30
30"""
# The same prompts as an older version answered them, which compacts earlier.
CLAUDE_EARLIER = CLAUDE.replace("172", "160")
CODEX = """20+ 20.1
185+ fold 15
186
fold prompt 15
15"""
OPENCODE = """12+ 12.5+ 12.6
13+ 13
14+ 14.1
14.2+ 14.3
15
190+ fold 9
9.5"""
OPENCODE_TWICE = """20+ 20.1
190+ fold 15
191 fold
15"""


def recorded(day: str) -> list[str]:
    """The prompts, replies and folds of a day."""
    lines = [line.split() if "prompt" in line else ["prompt", *line.split()] for line in day.splitlines()]
    return [word if word in {"prompt", "fold"} else "reply" for words in lines for word in words]


def lived(folder: Path) -> list[str]:
    """The same of the only session of a home."""
    home = FolderHome(folder)
    (name,) = home.store.sessions()
    found: list[str] = []
    with Log.open(home.store, name, home.clock) as log:
        for event in log.events():
            match event.body:
                case UserSaid():
                    found.append("prompt")
                case ModelReplied(purpose="turn"):
                    found.append("reply")
                case ViewEdited(edits=edits) if any(isinstance(edit, Fold) for edit in edits):
                    found.append("fold")
                case _:
                    pass
    return found


def tokens(word: str) -> int:
    return round(float(word.rstrip("+")) * 1_000)


@pytest.mark.parametrize(
    ("profile", "day"),
    [("claude-code-2.1.325", CLAUDE), ("claude-code", CLAUDE_EARLIER), ("opencode-1.18", OPENCODE), ("opencode-1.18", OPENCODE_TWICE)],
    ids=["claude-code", "claude-code-earlier", "opencode", "opencode-twice"],
)
def test_a_recorded_day_of_claude_code_or_opencode_is_folded_where_the_program_did(tmp_path: Path, profile: str, day: str) -> None:
    agent = LiveAgent(tmp_path, profile)
    (agent.project / "a.txt").write_text("word " * 2_000)
    for number, line in enumerate(day.splitlines()):
        replies = [
            ("<summary>All is well.</summary>",)
            if word == "fold"
            else calling("bash", tokens=tokens(word), command=f"cat a.txt # {number}.{place}")
            if word.endswith("+")
            else ("ok", Spent(tokens(word)))
            for place, word in enumerate(line.replace("prompt", "").split())
        ]
        agent.turn(f"prompt {number}", *replies)
    assert lived(tmp_path / "home") == recorded(day)


def test_a_recorded_day_of_codex_is_folded_where_the_program_did(tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, "codex-0.166", model="small")
    (agent.project / "a.txt").write_text("word " * 2_000)
    for number, line in enumerate(CODEX.splitlines()):
        replies = [
            Said("All is well.", prompt=181_000)
            if word == "fold"
            else calling_function("exec_command", prompt=tokens(word), cmd=f"cat a.txt # {number}.{place}")
            if word.endswith("+")
            else Said("ok", prompt=tokens(word))
            for place, word in enumerate(line.replace("prompt", "").split())
        ]
        agent.turn(f"prompt {number}", *replies)
    assert lived(agent.home) == recorded(CODEX)
