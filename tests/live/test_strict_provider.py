"""Long sessions of models that bind thinking, against the strict double: `pal -p`, a followed client, a gateway that watches."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsBase
from bound_client import BoundClient, working_model
from left_out import needless
from official_types import accept
from running_gateway import gateway_running

from palimpsest.adapters.anthropic import followed
from palimpsest.stores.home import Home
from palimpsest.testing.strict.answers import StrictRequest
from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks

MODEL = "claude-opus-5-5"
SMALL = {"PAL_COMPACT_AT": "20000"}
CALLS = 15


def printing(request: StrictRequest) -> Any:
    """The next reply by the list alone: so many commands with a long output after each message of the user, then a text."""
    if not request.body.get("tools"):
        return "They ran commands that print numbers."
    made = sum(message["role"] == "assistant" for message in request.messages)
    since = next(number for number, message in enumerate(reversed(request.messages)) if is_said(message)) // 2
    if since >= CALLS:
        return [thinks(f"thought {made} " * 30), says(f"All of turn {made} ran.")]
    return [thinks(f"thought {made} " * 30), says("Next."), calls("bash", command=f"printf '%06000d' {made}")]


def is_said(message: Any) -> bool:
    content = message["content"]
    return message["role"] == "user" and (isinstance(content, str) or all(block["type"] != "tool_result" for block in content))


class StrictAgent:
    """`pal` as a process in a folder of its own, whose provider is the strict double."""

    def __init__(self, folder: Path, provider: StrictProvider, profile: str) -> None:
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        own = {"HOME": str(folder), "PAL_HOME": str(folder / "home"), "PAL_SANDBOX": "off", "PAL_OFFLINE": "", "PAL_PROFILE": profile}
        self.environment = {**os.environ, **own, **SMALL, "ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "key"}

    def __call__(self, *words: str) -> str:
        """Run a command of `pal`, and return what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "pal.cli", *words],
            check=False,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.mark.states("PV-11", "PV-12", "PV-90", "PV-91")
@pytest.mark.parametrize("profile", ["palimpsest", "classroom"])
def test_an_agent_that_edits_undoes_resumes_and_switches_is_never_refused(tmp_path: Path, profile: str) -> None:
    with StrictProvider(printing) as provider:
        pal = StrictAgent(tmp_path, provider, profile)
        pal("-p", "run them all", "--mode", "auto", "--model", MODEL)
        pal("undo", "last", "--yes")
        pal("-p", "once more", "--mode", "auto", "-c")
        pal("-p", "and with another model", "--mode", "auto", "-c", "--model", "claude-sonnet-5-5")
        assert "ran." in pal("-p", "and back", "--mode", "auto", "-c", "--model", MODEL)
        counts = provider.counts
        assert (counts.requests, counts.refused) == (4 * (CALLS + 1), {})
        for body in provider.bodies:
            accept(MessageCreateParamsBase, body)
        # Edits took thinking away, what was produced behind them went back, and nothing was sent in vain.
        assert 0 < counts.thinking_kept < sum(range(4 * (CALLS + 1)))
        assert counts.thinking_dropped == 0
        assert needless(provider) == []


@pytest.mark.states("PV-11", "PV-91")
def test_a_followed_client_whose_list_is_folded_is_never_refused() -> None:
    script = [[thinks(f"thought {number} " * 30), calls("Read", file_path=f"src/part_{number}.py")] for number in range(30)]
    with StrictProvider([*script, "Done."]) as provider:
        client: Any = followed(anthropic.Anthropic(api_key="k", base_url=provider.url, max_retries=0), settings=SMALL)
        messages: list[Any] = [{"role": "user", "content": "Read all parts."}]
        tools = [{"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}]
        while len(messages) < 61:
            reply = client.messages.create(model=MODEL, max_tokens=4_096, messages=messages, tools=tools, system="You fix bugs.")
            messages.append({"role": "assistant", "content": reply.content})
            used = [block.id for block in reply.content if block.type == "tool_use"]
            messages.append(
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": each, "content": "x = 1\n" * 500} for each in used]}
            )
        assert provider.counts.refused == {}
        assert 0 < provider.counts.thinking_kept < sum(range(30))
        assert needless(provider) == []


@pytest.mark.states("PV-16", "PV-91")
def test_a_gateway_that_watches_changes_nothing_that_thinking_is_bound_to(tmp_path: Path) -> None:
    with StrictProvider(working_model) as direct, StrictProvider(working_model) as behind:
        with gateway_running(Home.at(tmp_path), "watch", behind.url) as gateway:
            for url in (direct.url, gateway.url):
                client = BoundClient(url)
                for turn in range(4):
                    client.say(f"Turn {turn}.")
                assert client.refused == []
        assert behind.counts == direct.counts
        assert behind.counts.thinking_kept == sum(range(behind.counts.requests))
