"""The profiles in the real loop: a session crosses its trigger, and the requests after it are those of the profile."""

import asyncio
from dataclasses import dataclass

import pytest
from loops import calls, tool
from msgspec.structs import replace

from palimpsest.agent.agent import Agent
from palimpsest.core.errors import PromptTooLong
from palimpsest.core.events import CallStarted, ModelReplied, ViewEdited
from palimpsest.core.items import Fold, Mask
from palimpsest.core.ports import Provider
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.wires import check_request

SUMMARY = "<summary>\n## Goal\nCount the words of all parts.\n</summary>"
PROMPT = "count the words of every part"
ROUNDS = 25


@dataclass(frozen=True)
class Crossing:
    """What a session left that crossed the trigger of its profile."""

    folds: tuple[tuple[str, str], ...]
    masks: int
    purposes: frozenset[str]
    turns: tuple[bytes, ...]
    sides: tuple[bytes, ...]
    after_fold: bytes


def cross(profile: str, model: str) -> Crossing:
    """A session of 25 rounds with results of about 6,000 tokens each, in a window of 60,000 tokens."""
    small = replace(card(model), window=60_000, reply=8_000)
    rounds = 0

    async def part(args: str) -> str:
        return "\n".join(f"line {number} of part {args} has some words" for number in range(900))

    def next_reply(_: object) -> str | ModelReplied:
        nonlocal rounds
        rounds += 1
        return calls((f"c{rounds}", "part", f'{{"number":{rounds}}}')) if rounds < ROUNDS else "done"

    turn, side = Scripted(*[next_reply] * 60), Scripted(*[SUMMARY] * 60)

    def provider(_: ModelCard, purpose: str) -> Provider:
        return turn if purpose == "turn" else side

    async def work() -> Crossing:
        async with Agent(small, tools=(tool("part", part),), provider=provider, profile=profile) as agent:
            assert (await agent.ask(PROMPT)).text == "done"
            bodies = [event.body for event in agent.session.log.events()]
        edited = [body for body in bodies if isinstance(body, ViewEdited)]
        first = next((place for place, body in enumerate(bodies) if body in edited and _folds(body)), len(bodies))
        sent = sum(isinstance(body, CallStarted) and body.purpose == "turn" for body in bodies[:first])
        return Crossing(
            tuple((body.by, body.moment) for body in edited if _folds(body)),
            sum(any(isinstance(edit, Mask) for edit in body.edits) for body in edited),
            frozenset(body.purpose for body in bodies if isinstance(body, CallStarted)),
            tuple(request.body for request in turn.requests),
            tuple(request.body for request in side.requests),
            turn.requests[min(sent, len(turn.requests) - 1)].body,
        )

    crossed = asyncio.run(work())
    wire = small.wire
    assert [check_request(wire, body) for body in (*crossed.turns, *crossed.sides)] == [()] * len((*crossed.turns, *crossed.sides))
    return crossed


def _folds(body: object) -> bool:
    return isinstance(body, ViewEdited) and any(isinstance(edit, Fold) for edit in body.edits)


def test_palimpsest_clears_and_folds_without_a_model_and_keeps_the_words_of_the_user() -> None:
    crossed = cross("palimpsest", "claude-sonnet-4-6")
    assert crossed.sides == ()
    assert crossed.masks > 0
    assert all(PROMPT.encode() in body for body in crossed.turns)
    assert max(map(len, crossed.turns)) < 60_000 * 4


@pytest.mark.parametrize(
    ("profile", "model", "policy"),
    [
        ("claude-code", "claude-sonnet-4-6", "summarize"),
        ("claude-code-2.1.325", "claude-sonnet-4-6", "summarize"),
        ("codex", "openai-compatible/qwen3-coder", "handoff"),
        ("codex-0.166", "openai-compatible/qwen3-coder", "handoff"),
        ("opencode", "claude-sonnet-4-6", "anchor"),
        ("opencode-1.18", "claude-sonnet-4-6", "anchor"),
    ],
)
def test_a_profile_with_a_summary_asks_for_it_at_its_trigger_and_goes_on_from_it(profile: str, model: str, policy: str) -> None:
    crossed = cross(profile, model)
    assert crossed.folds
    assert {by for by, _ in crossed.folds} == {policy}
    assert len(crossed.purposes) == 2
    assert b"Count the words of all parts." in crossed.after_fold
    assert len(crossed.after_fold) < max(map(len, crossed.turns)) / 2
    # The request for the summary shows the conversation that it replaces.
    assert b"line 40 of part" in crossed.sides[0]


def test_classroom_masks_old_results_before_each_call() -> None:
    crossed = cross("classroom", "claude-sonnet-4-6")
    assert crossed.masks >= ROUNDS - 5
    assert crossed.sides == ()
    assert crossed.turns[-1].count(b"line 899 of part") <= 3


def test_none_edits_nothing_and_says_when_the_window_is_full() -> None:
    with pytest.raises(PromptTooLong, match="prompt is too long"):
        cross("none", "claude-sonnet-4-6")
