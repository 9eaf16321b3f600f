"""Sessions under the profiles of Claude Code, and conversations of any length in them."""

import json
from collections.abc import Mapping
from typing import Any

from workplace import START, reply, say, use

from palimpsest.agent.session import Environment, Session, inline, nothing_to_look_at
from palimpsest.core.events import Event, SessionOpened, Usage, ViewEdited
from palimpsest.core.items import Text, text_of
from palimpsest.core.plans import Look
from palimpsest.core.ports import Sendable
from palimpsest.policies.named import profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.stores.sessions import MemoryResultFiles
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Tool

MEASURED = "claude-code-2.1.325"
SONNET = card("claude-sonnet-4-5")
SUMMARY = "<analysis>\nfirst this, then that\n</analysis>\n\n<summary>\n1. Primary Request and Intent: a parser\n</summary>"


class World:
    """Files and facts that can be looked at."""

    def __init__(self, files: Mapping[str, str] | None = None, facts: Mapping[str, str] | None = None) -> None:
        self.files = dict(files or {})
        self.facts = dict(facts or {})

    def __call__(self, want: Look) -> str | None:
        return (self.files if want.what == "file" else self.facts).get(want.name)


def claude(
    name: str = "claude-code",
    settings: Mapping[str, str] | None = None,
    *,
    model: ModelCard = SONNET,
    clock: FixedClock | None = None,
    world: World | None = None,
    opened: SessionOpened | None = None,
    tools: tuple[Tool, ...] = (),
) -> Session:
    """A new session, with a place for result files."""
    around = Environment(
        MemorySessions(),
        MemoryBlobs(),
        clock or FixedClock(START, 1_000),
        keep=MemoryResultFiles(),
        transcript="/logs/s.jsonl",
        look=world or nothing_to_look_at,
        offload=inline,
        retries=NO_RETRIES,
    )
    return Session.create(opened or SessionOpened("s", cwd="/repo"), profile(name, settings), model, around, tools)


def fill(session: Session, used: int, rounds: int = 3) -> Session:
    """Rounds with a Read each, after which the provider reports that many tokens; nothing comes after the last reply."""
    say(session, "build a parser")
    for number in range(rounds - 1):
        use(session, f"c{number}", "Read", json.dumps({"file_path": f"/repo/{number}.py"}), f"line {number}\n" * 300)
    reply(session, Text("Read them all.", "assistant"), usage=Usage(input=used - 100, output=100))
    return session


def edits(session: Session) -> list[ViewEdited]:
    """All edits of a session, in order."""
    return [event.body for event in session.log.events() if isinstance(event.body, ViewEdited)]


def texts(session: Session) -> list[str]:
    """What shows, item by item."""
    return [item.mask.text if item.mask else text_of(item.content) for item in session.log.view.items]


def body_of(request: Sendable) -> dict[str, Any]:
    """A request as JSON, without its cache breakpoints."""
    decoded: dict[str, Any] = _unmarked(json.loads(request.body))
    return decoded


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(each) for key, each in value.items() if key != "cache_control"}
    return [_unmarked(each) for each in value] if isinstance(value, list) else value


def bodies(events: tuple[Event, ...]) -> list[object]:
    """What events say."""
    return [event.body for event in events]
