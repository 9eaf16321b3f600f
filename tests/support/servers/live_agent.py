"""`pal -p` as a process under a profile, its model on the loopback: every request that it sends is kept whole."""

import json
import os
import re
from pathlib import Path
from typing import Any

from started_pal import run_pal
from streaming_model import Call, Part, Spent, model_streaming

MODEL = "claude-sonnet-4-5"


class LiveAgent:
    """One session of the real agent in a project of its own, in a fresh home; each turn is a process that resumes it."""

    def __init__(self, folder: Path, profile: str, model: str = MODEL, **environment: str) -> None:
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        self._home = folder
        self._profile = profile
        self._model = model
        self._environment = environment
        self._started = False
        self.betas: list[str | None] = []
        self.tools_tokens = 0
        self.counted: list[Any] = []
        self.sent: list[Any] = []
        self.errors = ""

    def turn(self, prompt: str, *replies: tuple[Part, ...], mode: str = "auto", code: int = 0) -> list[Any]:
        """Work on a prompt, and return the bodies of the requests, without marks of the cache and ids of what is hidden."""
        with model_streaming(*replies) as model:
            model.tools_tokens = self.tools_tokens
            words = ["--profile", self._profile, "--model", self._model, "--mode", mode, *(["-c"] if self._started else []), "-p", prompt]
            done = run_pal(words, cwd=self.project, env=self._variables() | model.environment | self._environment)
        assert done.returncode == code, done.stderr
        self._started = True
        self.betas = model.betas
        self.counted += model.counted
        self.sent, self.errors = model.asked, done.stderr
        return [unmarked(asked) for asked in model.asked]

    def pal(self, *words: str) -> str:
        """Run a command of `pal` beside the turns, and return what it prints."""
        done = run_pal(words, cwd=self.project, env=self._variables())
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _variables(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self._home), "PAL_HOME": str(self._home / "home"), "PAL_SANDBOX": "off"}


def using(tool: str, *, tokens: int = 1_000, **args: Any) -> tuple[Part, ...]:
    """A reply that calls a tool, and reports that its request had so many tokens."""
    return (Call(tool, args), Spent(new=tokens))


# How ours says, in the texts of any system, what `recall` gives back; tests/live/test_hidden_is_one_call_away.py follows it.
_WAY_BACK = re.compile(r"(?: |\n\n)\[(?:id [\d.]+|What this hides is kept word for word: recall id [\d.]+)\]")


def unmarked(value: Any) -> Any:
    """A request as the imitated system sends it: without marks of the cache, which move, and without ids of what is hidden."""
    if isinstance(value, str):
        return _WAY_BACK.sub("", value)
    if isinstance(value, list):
        return [unmarked(each) for each in value]
    if isinstance(value, dict):
        return {name: unmarked(each) for name, each in value.items() if name != "cache_control"}
    return value


def results(request: Any) -> list[str]:
    """The texts of the tool results of a request, in order."""
    blocks = [block for message in request["messages"] for block in _blocks(message)]
    return [text_of(block["content"]) for block in blocks if block["type"] == "tool_result"]


def with_results(request: Any, texts: dict[int, str]) -> Any:
    """The messages of a request with other texts in some of its results, by their place."""
    messages = json.loads(json.dumps(request["messages"]))
    found = [block for message in messages for block in _blocks(message) if block["type"] == "tool_result"]
    for place, text in texts.items():
        found[place]["content"] = text if isinstance(found[place]["content"], str) else [{"type": "text", "text": text}]
    return messages


def texts(request: Any) -> list[tuple[str, str]]:
    """Role and text of each text block of a request, in order."""
    return [(message["role"], block["text"]) for message in request["messages"] for block in _blocks(message) if block["type"] == "text"]


def _blocks(message: Any) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def text_of(content: Any) -> str:
    """The text of a result."""
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


TASKS = "# Tasks\n[ ] 2 Test it"
TODOS = "# Todo list\n[x] look\n[>] write\n1/2 done"


def folded_in_a_turn(agent: LiveAgent, tokens: int, *replies: tuple[Part, ...]) -> tuple[Any, Any]:
    """The request after a fold in the middle of a turn that changed tasks and todo list, and the first of the next turn.

    `tokens` is the size of the last request before the fold, and `replies` what the model answers from then on.
    """
    (agent.project / "big.txt").write_text("word " * 16_000)
    first: dict[str, Any] = {"items": [{"id": "1", "text": "look", "status": "in_progress"}, {"id": "2", "text": "write"}]}
    later: dict[str, Any] = {
        "items": [{"id": "1", "text": "look", "status": "completed"}, {"id": "2", "text": "write", "status": "in_progress"}]
    }
    agent.turn("plan", using("task_create", subject="Ship it"), using("task_create", subject="Test it"), ("ok",))
    requests = agent.turn(
        "go",
        using("todo", **first),
        using("task_update", id=1, status="completed"),
        using("todo", **later),
        *[using("bash", command=f"cat big.txt # {number}", tokens=tokens if number == 2 else 1_000) for number in range(3)],
        *replies,
    )
    return requests[-1], agent.turn("on", ("fine",))[0]


def stated_work(request: Any) -> list[str]:
    """What a request states of open work, wherever and in whatever frame."""
    everything = [text for _, text in texts(request)] + results(request)
    return [text for text in everything if any(word in text for word in ("Ship it", "Test it", "look", "[>]", "Open tasks"))]
