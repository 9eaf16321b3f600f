"""Runs a continuation test: sends each request as often as asked, one after another, and compares each reply."""

from collections.abc import Callable
from dataclasses import dataclass

from palimpsest.core.errors import PalimpsestError, ProviderError
from palimpsest.core.items import Text, Value
from palimpsest.core.ports import Provider
from palimpsest.engine.calls.sending import whole_reply
from palimpsest.lab.continuation.requests import ContinuationRequest
from palimpsest.lab.continuation.scoring import ComparedCall, compare
from palimpsest.lab.simulation.recording import Step
from palimpsest.wire.encode import encode
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.models.prices import Tariff
from palimpsest.wire.request import Params, Tool

_SHOWN_CHARACTERS = 300


class Continuation(Value, frozen=True):
    """One reply: its tool calls compared with the recording, the beginning of its text, its cost, or why the request failed."""

    profile: str
    calls: tuple[ComparedCall, ...] = ()
    text: str = ""
    usd: float | None = 0.0
    failed: str = ""


@dataclass(frozen=True, slots=True)
class ContinuationRun:
    """What a run sends: requests by profile, each `samples` times, with replies of at most `reply` tokens.

    `derived` means that the tools were derived from recorded calls; `step` is the recorded call of the place.
    """

    card: ModelCard
    requests: tuple[ContinuationRequest, ...]
    tools: tuple[Tool, ...]
    derived: bool
    steps: tuple[Step, ...]
    step: int
    samples: int
    reply: int
    fetch: Fetch


async def continued(run: ContinuationRun, provider: Provider, collect: Callable[[Continuation], None]) -> None:
    """Send all requests, and pass each result to `collect` when it arrives. An error of one request does not end the run."""
    for _ in range(run.samples):
        for request in run.requests:
            collect(await _one(run, request, provider))


async def _one(run: ContinuationRun, request: ContinuationRequest, provider: Provider) -> Continuation:
    params = Params(max_tokens=min(run.reply, run.card.reply))
    try:
        reply = await whole_reply(provider, encode(request.view, run.card, run.tools, params, run.fetch))
    except ProviderError as error:
        return Continuation(request.profile, failed=error.message)
    except PalimpsestError as error:
        return Continuation(request.profile, failed=f"the request cannot be built: {error.message}")
    text = " ".join(part.text for part in reply.parts if isinstance(part, Text))
    calls = compare(reply, request.view, run.steps, run.step)
    tariff = Tariff.of(run.card) if reply.usage.prompt else None
    return Continuation(request.profile, calls, text[:_SHOWN_CHARACTERS], None if tariff is None else tariff.bill(reply.usage).total)
