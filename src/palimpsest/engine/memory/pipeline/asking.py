"""Answers the requests of the pipeline outside of any session, and estimates before a run what they will cost."""

from msgspec import Raw, Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Usage
from palimpsest.core.policy import Answer, Ask, Want
from palimpsest.core.ports import Provider
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, estimate, family_of
from palimpsest.core.view import View
from palimpsest.engine.calls.plans import side_request_view
from palimpsest.engine.calls.sending import whole_reply, with_reply_limit
from palimpsest.engine.memory.pipeline.due_sessions import session_events
from palimpsest.engine.memory.pipeline.places import PipelinePlaces
from palimpsest.engine.memory.pipeline.run import RunPlan
from palimpsest.memory.pipeline.phase_one import MOST_WRITTEN as MOST_OF_SESSION
from palimpsest.memory.pipeline.phase_one import session_schema
from palimpsest.memory.pipeline.phase_two import MOST_READ, MOST_WRITTEN
from palimpsest.memory.pipeline.transcript import input_limit, read_session
from palimpsest.memory.reading import line_of_source
from palimpsest.wire.encode import encode
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.models.prices import Tariff
from palimpsest.wire.request import Params, resolved_params

# Tokens of the prompt beside the session: instructions and the list of notes.
_PROMPT_TOKENS = 2_000


class RunEstimate(Struct, frozen=True):
    """What a run will use at most: requests, tokens, and US dollars by the prices of its model, if they are known."""

    calls: int = 0
    read: int = 0
    written: int = 0
    usd: float | None = 0.0


class DirectAnswers:
    """Answers `Ask` with one model; other wants are refused."""

    def __init__(self, card: ModelCard, provider: Provider) -> None:
        self._card = card
        self._provider = provider

    async def __call__(self, want: Want) -> Answer:
        """Return the reply to a request. Raises `BadInput` for another want, and the `PalimpsestError` of a failed call."""
        if not isinstance(want, Ask):
            raise BadInput(f"the pipeline asks models only, not {type(want).__name__}", where="memory")
        card = self._card
        view = side_request_view(View(), want, card)
        params = replace(Params(parallel=False), schema=Raw(want.schema.encode())) if want.schema else Params(parallel=False)
        limited = with_reply_limit(params, card, estimate(want.prompt), want.reply)
        return await whole_reply(self._provider, encode(view, card, (), resolved_params(limited, card)))


def estimated(places: PipelinePlaces, plan: RunPlan, card: ModelCard) -> RunEstimate:
    """Return what a plan will use at most. Sessions that cannot be read cost nothing."""
    factor, limit = FAMILY_FACTORS[family_of(card.name)], input_limit(card.window)
    read = calls = 0
    for due in plan.sessions:
        try:
            reading = read_session(due.session, session_events(places, due.session), places.forgotten_events())
        except PalimpsestError:
            continue
        if reading.first:
            shown = estimate("\n".join(map(line_of_source, reading.sources)))
            read += int((min(limit, shown + _PROMPT_TOKENS) + estimate(session_schema())) * factor)
            calls += 1
    written = calls * MOST_OF_SESSION
    scopes = {places.scope_of(due.cwd) for due in plan.sessions} | set(plan.scopes)
    read += int(len(scopes) * MOST_READ * factor)
    written += len(scopes) * MOST_WRITTEN
    tariff = Tariff.of(card)
    usd = None if tariff is None else tariff.bill(Usage(input=read, output=written)).total
    return RunEstimate(calls + len(scopes), read, written, usd)
