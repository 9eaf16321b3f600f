"""Recorded sessions gone through once more under a profile, by the engine and its real requests, with the strict double as the provider.

As a program it prints the shares of the sessions of a folder, or of those with at most CALLS calls:
`python tests/support/sessions/strict_replay.py FOLDER [WINDOW [CALLS]]`.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from left_out import needless
from strict_session import QUIET, StrictlyAnswered
from workplace import START, work

from pal.replay.recording import RecordedSession, Step, load_all
from pal.replay.simulation import replay_card
from palimpsest.agent.calls import call, end_turn, start_turn
from palimpsest.agent.session import Session
from palimpsest.core.deltas import Delta
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import TURN, ContextStated, ModelReplied, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import MODEL_KINDS, Text, ToolCall, text_of
from palimpsest.core.ports import Sendable
from palimpsest.policies.named import PROFILES, profile
from palimpsest.policies.profile import Profile
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.testing.strict.answers import StrictRequest
from palimpsest.testing.strict.provider import StrictProvider, says, thinks
from palimpsest.wire.models import ModelCard, resized
from palimpsest.wire.request import Tool

APPENDS = "appends only"
_MILLION = 1_000_000


@dataclass(frozen=True)
class StrictShare:
    """What became of the requests of replays. `made` are the thinking blocks that a client which only appends would have sent, in all."""

    requests: int = 0
    edits: int = 0
    made: int = 0
    kept: int = 0
    dropped: int = 0
    dollars: float = 0.0
    refused: Mapping[str, int] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    needless: tuple[str, ...] = ()

    def __add__(self, other: "StrictShare") -> "StrictShare":
        return StrictShare(
            self.requests + other.requests,
            self.edits + other.edits,
            self.made + other.made,
            self.kept + other.kept,
            self.dropped + other.dropped,
            self.dollars + other.dollars,
            Counter(self.refused) + Counter(other.refused),
            self.failed + other.failed,
            self.needless + other.needless,
        )


class StepProvider(StrictlyAnswered):
    """The provider of a replay: a turn gets the reply of the recorded step, thinking first; any other call gets a summary."""

    def __init__(self) -> None:
        super().__init__(StrictProvider(self.scripted, thinks=False))
        self.blocks: list[dict[str, Any]] = []
        self.purpose = TURN
        # The numbers of the records of turns that were answered.
        self.turns: list[int] = []

    def scripted(self, _: StrictRequest) -> list[dict[str, Any]]:
        if self.purpose != TURN:
            return [thinks("so"), says("The work went on as recorded.")]
        self.turns.append(len(self.double.records))
        return self.blocks

    def at(self, purpose: str) -> "StepProvider.Purpose":
        """The provider of the calls for a purpose."""
        return StepProvider.Purpose(self, purpose)

    @dataclass(frozen=True)
    class Purpose:
        provider: "StepProvider"
        purpose: str

        async def stream(self, request: Sendable) -> AsyncGenerator[Delta | ModelReplied, None]:
            self.provider.purpose = self.purpose
            async for piece in self.provider.stream(request):
                yield piece


def reply_blocks(step: Step) -> list[dict[str, Any]]:
    """What the model says in a step: thinking, as every reply of a model that binds it has, then the recorded texts and calls."""
    blocks = [thinks(f"thought {step.number} " * 40)]
    for part in step.reply.parts:
        if isinstance(part, Text) and text_of(part).strip():
            blocks.append(says(text_of(part)))
        elif isinstance(part, ToolCall):
            given = msgspec.json.decode(part.args) if part.form == "json" and part.args.startswith("{") else {"input": part.args}
            name = "".join(letter if letter.isalnum() else "_" for letter in part.tool)[:64]
            blocks.append({"type": "tool_use", "id": call_id(part.call_id), "name": name, "input": given})
    return blocks if len(blocks) > 1 else [*blocks, says("Done.")]


def strict_replay(recording: RecordedSession, kind: Profile, model: ModelCard) -> StrictShare:
    """Go through a recording under a profile.

    What the recorded program edited or restated is left out, and results that came after the request behind their call had been sent.
    """
    provider, clock = StepProvider(), FixedClock(START)
    session = work(kind, model, clock=clock)
    session.environment = replace(session.environment, provider=lambda _, purpose: provider.at(purpose), blobs=MemoryBlobs(recording.blobs))
    names = sorted({block["name"] for step in recording.steps for block in reply_blocks(step) if block["type"] == "tool_use"})
    session.tools = tuple(Tool(name, f"{name}.") for name in names)
    failed: list[str] = []
    for earlier, step in zip((None, *recording.steps), recording.steps, strict=False):
        clock.time = START + max(0, step.at - recording.steps[0].at)
        provider.double.now = (clock.time - START) / 1_000
        provider.blocks = reply_blocks(step)
        calls = {part.call_id for part in earlier.reply.parts if isinstance(part, ToolCall)} if earlier else set()
        asyncio.run(_take(session, step, calls, failed))
    counts, records = provider.double.counts, provider.double.records
    edits = sum(isinstance(event.body, ViewEdited) for event in session.log.events())
    # Each turn before a request made one block, which a client that only appends would send with it.
    made = sum(range(len(provider.turns)))
    kept = sum(records[number].thinking_kept for number in provider.turns)
    in_vain = tuple(needless(provider.double))
    dropped = counts.thinking_dropped
    return StrictShare(counts.requests, edits, made, kept, dropped, counts.dollars, counts.refused, tuple(failed), in_vain)


async def _take(session: Session, step: Step, calls: AbstractSet[str], failed: list[str]) -> None:
    """One recorded call: its inputs, then the request and the reply. `calls` are those that wait for a result."""
    opened = False
    for given in step.inputs:
        body = given.body
        if isinstance(body, ToolReturned):
            if body.result.call_id not in calls:
                continue
            result = msgspec.structs.replace(body.result, call_id=call_id(body.result.call_id))
            body = msgspec.structs.replace(body, result=result)
        elif step.turn and not opened and isinstance(body, UserSaid) and not body.steering:
            opened = True
            await start_turn(session, incoming=1)
        elif step.number and isinstance(body, ContextStated) and body.head is not None:
            # The recorded program changed its system prompt, which would be its own edit of everything.
            continue
        session.log.append(body)
    if not session.log.view.items or session.log.view.items[-1].kind in MODEL_KINDS:
        # The server went on by itself, or the recording is cut; a list may neither be empty nor end with a reply.
        session.log.append(UserSaid((Text("Go on."),)))
    try:
        await call(session)
    except PalimpsestError as error:
        failed.append(f"step {step.number}: {type(error).__name__}: {error.message}")
    if step.ends:
        await end_turn(session)


def call_id(recorded: str) -> str:
    """The id that the double gives a recorded call."""
    return f"toolu_{sha256(recorded.encode()).hexdigest()[:20]}"


def shares(folder: Path, names: Mapping[str, Profile], model: ModelCard, most: int | None = None) -> dict[str, StrictShare]:
    """The shares of all sessions of a folder by profile, or of those with at most `most` calls.

    A profile that never makes room has the window of a million tokens, so that it can do the same work.
    """
    found: dict[str, StrictShare] = {}
    for loaded in load_all([folder]):
        if most is not None and len(loaded.recording.steps) > most:
            continue
        for name, kind in names.items():
            suited = model if makes_room(kind, model) else resized(model, _MILLION)
            found[name] = found.get(name, StrictShare()) + strict_replay(loaded.recording, kind, suited)
    return found


def makes_room(kind: Profile, model: ModelCard) -> bool:
    """Whether a profile folds by itself before the window is full."""
    return bool(kind.policies) and kind.budget(model).compact_at is not None


def every_profile() -> dict[str, Profile]:
    """Our profiles and those of other programs, and a client that only appends."""
    return {APPENDS: QUIET} | {name: profile(name) for name in PROFILES}


def print_shares(found: Mapping[str, StrictShare]) -> None:
    """Print a table of Markdown."""
    print("| profile | requests | refused | thinking kept | edits | dollars |\n|---|---|---|---|---|---|")
    for name, share in found.items():
        refused = f"{sum(share.refused.values()) / share.requests:.1%}" if share.requests else "unknown"
        kept = f"{share.kept / share.made:.1%}" if share.made else "unknown"
        print(f"| {name} | {share.requests:,} | {refused} | {kept} | {share.edits:,} | {share.dollars:.2f} |")


if __name__ == "__main__":
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
    calls = int(sys.argv[3]) if len(sys.argv) > 3 else None
    print_shares(shares(Path(sys.argv[1]), every_profile(), replay_card("claude-opus-5-5", window=size), calls))
