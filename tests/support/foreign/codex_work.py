"""Sessions under the profiles that imitate Codex: stated context, turns with tools, and what shows."""

from collections.abc import Mapping

import msgspec
from workplace import NOTHING, START, reply, say, use

from palimpsest.agent.session import Environment, Session, inline
from palimpsest.audit.fold_texts import EVIDENCE_TITLE
from palimpsest.core.events import ContextStated, Event, SessionOpened, Statement, Usage
from palimpsest.core.items import Text, text_of
from palimpsest.policies.limits import prompt
from palimpsest.policies.named import profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.models import CARDS, ModelCard, card
from palimpsest.wire.request import Tool

BOTH = ("codex", "codex-0.166")
SONNET = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
# The same wire as the real one, from somebody who cannot compact by himself.
OTHER = msgspec.structs.replace(card("gpt-5.5"), name="other", provider="elsewhere", family="", window=200_000, input_limit=None)
SMALL = msgspec.structs.replace(OTHER, name="small", window=100_000)
CONTEXT = ("<permissions instructions>ask first</permissions instructions>", "# AGENTS.md instructions for /repo", "<environment_context>")
PREFIX = prompt("handoff_prefix")
SHELL = Tool("shell", "runs a command")
FULL = Usage(input=250_000)
NO_SETTINGS: Mapping[str, str] = {}


def codex_session(name: str = "codex", model: ModelCard = OTHER, settings: Mapping[str, str] = NO_SETTINGS) -> Session:
    """A new session; settings have the names of the original."""
    around = Environment(
        MemorySessions(), MemoryBlobs(), FixedClock(START, 1_000), cards=(*CARDS, OTHER, SMALL), offload=inline, retries=NO_RETRIES
    )
    return Session.create(SessionOpened("s", cwd="/repo"), profile(name, settings), model, around, (SHELL,))


def state(session: Session) -> Event:
    """The whole context is stated: one developer message, one in the user's role."""
    permissions, agents, environment = CONTEXT
    developer = Statement("permissions", permissions, "developer")
    return session.log.append(ContextStated((developer, Statement("agents_md", agents), Statement("environment", environment))))


def turn(session: Session, text: str, number: int, *, usage: Usage = NOTHING, size: int = 4_000) -> None:
    """The user asks, the model runs a command and answers."""
    say(session, text)
    use(session, f"c{number}", "shell", '{"command":["ls"]}', "x" * size)
    reply(session, Text(f"done {number}", "assistant"), usage=usage)


def shows(session: Session) -> list[str]:
    """The items in view, in a word each; a summary without the words that introduce it and what the log proves beside it."""
    return [text_of(item.content).removeprefix(f"{PREFIX}\n").partition(f"\n\n{EVIDENCE_TITLE}\n")[0] for item in session.log.view.items]
