"""`/cost`: what a session cost, by model, turn, sub-agent and edit of the context."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.apps.shown_text import dollars, plain, short
from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom, SlashCommand, agent_of, table
from palimpsest.apps.terminal.screen.tool_titles import one_line
from palimpsest.core.edits import Fold, Mask
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ModelReplied, Usage, UserSaid, ViewEdited
from palimpsest.core.events.calls import TURN
from palimpsest.core.format.texts import cost_text, counted
from palimpsest.core.items import Text
from palimpsest.core.log.log import Log
from palimpsest.core.projections.ledger import LedgerProjection
from palimpsest.core.tokens.spending import Spending, total_of
from palimpsest.engine.agent import Agent
from palimpsest.engine.loop.limits import NOTHING, price_book
from palimpsest.wire.models.prices import PriceBook, total_usd

_TURNS: Final = "turns"
_NEWEST: Final = 5
_MOST_TURNS: Final = 500


class PaidCall(Struct, frozen=True):
    """A reply of a model: its model, its purpose, its usage in tokens and its price in US dollars, if that is known."""

    model: str
    purpose: str
    usage: Usage
    usd: float | None

    @property
    def line(self) -> str:
        """The call in one line."""
        return f"{self.model or 'unknown model'} {self.purpose}: {_tokens(self.usage)}, {cost_text(self.usd)}"


class TurnCost(Struct, frozen=True):
    """What a turn cost: the event and text of its message, and its calls in order."""

    seq: int
    text: str
    calls: tuple[PaidCall, ...] = ()

    @property
    def usd(self) -> float | None:
        """US dollars of all its calls; `None` if they are not known."""
        return total_usd(call.usd for call in self.calls)


class EditSavings(Struct, frozen=True):
    """What the edits of the context did to the costs: how many hold, what they cost once, and what they saved so far, in US dollars.

    Dollars are `None` if those of one edit are not known.
    """

    edits: int = 0
    cost_usd: float | None = 0.0
    saved_usd: float | None = 0.0


async def _cost(room: CommandRoom, argument: str) -> None:
    """Show what the session cost, or walk its turns; Enter shows the calls of one."""
    agent = agent_of(room)
    if argument not in ("", _TURNS):
        raise BadInput(f"/cost takes {_TURNS}, or nothing for the whole session")
    turns = turn_costs(agent.session.log, price_book(agent.session))
    if not argument:
        for line in cost_lines(agent, turns):
            room.notice(line)
        return
    rows = [Row(str(turn.seq), _turn_line(turn), "\n".join(call.line for call in turn.calls)) for turn in reversed(turns[-_MOST_TURNS:])]
    known, at = {str(turn.seq): turn for turn in turns}, ""
    while (chosen := await room.walk("What each turn cost, newest first", rows, {}, at)) is not None:
        at = chosen.row.value
        for call in known[at].calls:
            room.notice(call.line)


def cost_lines(agent: Agent, turns: tuple[TurnCost, ...]) -> Iterator[str]:
    """Yield the lines of `/cost`: models with their purposes, sub-agents, edits, the sum, and the newest turns."""
    session, below = agent.session, agent.children_spent()
    book, groups = price_book(session), dict[tuple[str, str], list[Spending]]()
    for spending in session.log.ledger.spendings:
        groups.setdefault((spending.model, spending.purpose), []).append(spending)
    for (model, purpose), group in groups.items():
        calls, usage = counted(sum(each.calls for each in group), "call"), total_of(each.usage for each in group)
        estimated = sum(each.estimated for each in group)
        broken = f" ({estimated:,} broken off, and therefore estimated)" if estimated else ""
        yield f"{model or 'unknown model'} {purpose}: {calls}{broken}, {_tokens(usage)}, {cost_text(book.usd(group))}"
    spent = agent.spent_by_child()
    for child in session.log.children:
        yield f"sub-agent {plain(child.nickname)} ({plain(child.role)}, {child.status}): {cost_text(spent[child.session].usd)}"
    if below != NOTHING:
        yield f"sub-agents together: {cost_text(below.usd)}"
    saved = edit_savings(session.log)
    if saved.edits:
        yield savings_text(saved)
    yield f"together {cost_text(agent.cost_usd())}"
    for turn in turns[-_NEWEST:]:
        yield _turn_line(turn)
    if len(turns) > _NEWEST:
        yield f"/cost {_TURNS} walks all {counted(len(turns), 'turn')}"


def savings_text(saved: EditSavings) -> str:
    """What edits of the context cost and saved, in words."""
    if saved.cost_usd is None:
        once = cost_text(None)
    else:
        once = f"cost {dollars(saved.cost_usd)} once" if saved.cost_usd >= 0 else f"saved {dollars(-saved.cost_usd)} at once"
    if saved.saved_usd is None:
        so_far = "savings unknown"
    else:
        so_far = f"{'saved' if saved.saved_usd >= 0 else 'added'} about {dollars(abs(saved.saved_usd))} so far"
    return f"{counted(saved.edits, 'edit')} of the context: {once}, {so_far}"


def turn_costs(log: Log, book: PriceBook) -> tuple[TurnCost, ...]:
    """Return what each turn of the current path cost, oldest first. Calls before the first message count to none."""
    ledger, turns = LedgerProjection(), list[TurnCost]()
    for event in log.events():
        body = event.body
        if isinstance(body, UserSaid) and not body.steering:
            turns.append(TurnCost(event.seq, " ".join(part.text for part in body.parts if isinstance(part, Text))))
        before = ledger.value()
        ledger.take(event)
        if turns:
            spent = ledger.value().since(before)
            paid = tuple(PaidCall(each.model, each.purpose, each.usage, book.usd([each])) for each in spent)
            turns[-1] = replace(turns[-1], calls=turns[-1].calls + paid) if paid else turns[-1]
    if ledger.value().usage.total:
        return tuple(turns)
    # A program that never says what it used.
    return tuple(replace(turn, calls=tuple(replace(call, usd=None) for call in turn.calls)) for turn in turns)


def edit_savings(log: Log) -> EditSavings:
    """Return what the edits that hold cost and saved: for each call since an edit its saving per call, until a fold replaces it."""
    undone = log.reader.undone_edits(log.path)
    found = EditSavings()
    per_call: float | None = 0.0
    for event in log.events():
        body = event.body
        if isinstance(body, ViewEdited) and undone.get(event.seq) != frozenset():
            if body.price_usd is None and not any(isinstance(edit, Fold | Mask) for edit in body.edits):
                # What only brings an item back saves nothing, and has no price in the log.
                found = replace(found, edits=found.edits + 1)
                continue
            # What an earlier edit has hidden is inside of what a fold replaces, so that its saving counts once.
            per_call = total_usd((body.saved_usd_per_call, 0.0 if any(isinstance(edit, Fold) for edit in body.edits) else per_call))
            found = replace(found, edits=found.edits + 1, cost_usd=total_usd((found.cost_usd, body.price_usd)))
        elif isinstance(body, ModelReplied) and body.purpose == TURN:
            found = replace(found, saved_usd=total_usd((found.saved_usd, per_call)))
    return found


def _tokens(usage: Usage) -> str:
    read = usage.input + usage.cache_read + usage.cache_write + usage.cache_write_long
    cached = f"{usage.cache_read / read:.0%} from the cache" if read else "nothing read"
    return f"{short(read)} in ({cached}), {short(usage.output)} out"


def _turn_line(turn: TurnCost) -> str:
    return f"{cost_text(turn.usd)}  {counted(len(turn.calls), 'call')}  {one_line(plain(turn.text), 60)}"


COST_COMMANDS: Final = table(
    SlashCommand("cost", "what this session cost: models, sub-agents, edits, turns", _cost, f"[{_TURNS}]", lambda _: (_TURNS,)),
)
