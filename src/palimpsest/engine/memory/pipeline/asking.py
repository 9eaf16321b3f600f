"""Answers the requests of the pipeline outside of any session, and estimates before a run what they will cost."""

from collections.abc import Callable, Mapping

from msgspec import Raw, Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput, PalimpsestError, ProviderError
from palimpsest.core.events import Usage
from palimpsest.core.items import text_of
from palimpsest.core.policy import Answer, Ask, AskTogether, Want
from palimpsest.core.ports import Provider
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, estimate, family_of
from palimpsest.core.view import View
from palimpsest.engine.calls.plans import answered_together, offered_tools, schema_refused, side_request_view
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
from palimpsest.wire.request import NULL, Params, resolved_params

# Tokens of the prompt beside the session: instructions and the list of notes.
_PROMPT_TOKENS = 2_000


class RunEstimate(Struct, frozen=True):
    """What a run will use at most: requests, tokens, and US dollars by the prices of its model, if they are known."""

    calls: int = 0
    read: int = 0
    written: int = 0
    usd: float | None = 0.0


class DirectAnswers:
    """Answers `Ask` with one model, or with that of its name; other wants are refused. `tell` gets lines for the user."""

    def __init__(
        self,
        card: ModelCard,
        provider: Provider,
        tell: Callable[[str], None],
        others: Mapping[str, tuple[ModelCard, Provider]] | None = None,
    ) -> None:
        self._default = (card, provider)
        self._others = others or {}
        self._tell = tell

    async def __call__(self, want: Want) -> Answer:
        """Return the reply to a request. Raises `BadInput` for another want, and the `PalimpsestError` of a failed call."""
        if isinstance(want, AskTogether):
            return await answered_together(want, self)
        if not isinstance(want, Ask):
            raise BadInput(f"the pipeline asks models only, not {type(want).__name__}", where="memory")
        card, provider = self._others.get(want.model, self._default)
        view, tools = side_request_view(View(), want, card), offered_tools(want)
        params = replace(Params(parallel=False), effort=want.effort, schema=Raw(want.schema.encode()) if want.schema else NULL)
        shown = "\n".join((want.prompt, *(text_of(item.content) for item in want.items)))
        limited = with_reply_limit(params, card, estimate(shown), want.reply)
        try:
            return await whole_reply(provider, encode(view, card, tools, resolved_params(limited, card)))
        except ProviderError as error:
            if not want.schema or not error.refuses_form:
                raise
            self._tell(f"{error.message}; {schema_refused(card.name)}")
        return await whole_reply(provider, encode(view, card, tools, resolved_params(replace(limited, schema=NULL), card)))


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
