"""Chooses between a fold from the log and a compaction by the provider: by what each costs, and then by what each loses."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from palimpsest.audit.pricing.price import price_of, rates_of
from palimpsest.audit.visibility.loss import loss_of
from palimpsest.core.edits import Fold, Loss, Put
from palimpsest.core.errors import TooFull
from palimpsest.core.items import Text, ToolResult
from palimpsest.core.log.fitting import check_fit
from palimpsest.core.policy import Answer, Edits, Plan, Proposal, Want, proposal_of, steps_of
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.view import View
from palimpsest.policies.provider_compact import MOMENTS, NAME, USUAL_SUMMARY, ProviderCompact

_MILLION: Final = 1_000_000
# A text of about as many tokens as a summary by the provider usually has, to price the view with one.
_USUAL_TEXT: Final = "summary " * USUAL_SUMMARY


@dataclass(frozen=True, slots=True)
class CheaperCompaction:
    """Asks the provider only if that costs at most as much as our fold and reading again what is in use and our fold hides.

    Of the two answers the one that loses less by the audit is taken, ours if both lose the same. Ours is taken too where prices are not
    known or the summary cannot be read. This policy then proposes nothing, and the fold follows in the profile.
    """

    provider: ProviderCompact
    name: str = NAME
    moments: frozenset[Moment] = MOMENTS
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan the comparison, if a fold is due and the provider's summary would be readable."""
        if situation.card.compaction != "demand" or situation.card.wire != "anthropic" or not self.provider.fold.due(situation):
            return ()
        return self._steps(situation)

    def _steps(self, situation: Situation) -> Generator[Want, Answer, Proposal]:
        try:
            ours = proposal_of((yield from self.provider.fold.steps(situation)))
        except TooFull:
            ours = Proposal()
        if ours.edits and (reason := self._ours_is_cheaper(situation, ours.edits)):
            return Proposal(notices=(f"folded from the log: {reason}",))
        theirs = yield from steps_of(self.provider.plan(situation))
        if not theirs.edits or not ours.edits:
            return theirs
        view = situation.view
        losses = [_lost(loss_of(view, _after(view, proposal.edits))) for proposal in (ours, theirs)]
        compared = f"the audit finds {losses[1]:,} things lost in the provider's compaction and {losses[0]:,} in ours"
        if losses[0] <= losses[1]:
            return Proposal(notices=(f"folded from the log: {compared}",))
        return Proposal(theirs.edits, f"{theirs.why}; {compared}", theirs.failed, theirs.notices)

    def _ours_is_cheaper(self, situation: Situation, edits: Edits) -> str:
        """Why our fold is to be taken without asking the provider; empty if asking may pay."""
        view, card = situation.view, situation.card
        after = _after(view, edits)
        usual = Fold(view.items[0].id, view.items[-1].id, (Put("summary", Text(_USUAL_TEXT)),))
        ours, theirs = price_of(view, after, situation).usd, price_of(view, _after(view, (usual,)), situation).usd
        if ours is None or theirs is None:
            return f"the prices of {card.name} are not known"
        rates = rates_of(card, situation.cache)
        cached = min(situation.cache.longest(situation.now), situation.used)
        asking = rates.read * cached + rates.write * (situation.used - cached) + rates.output * USUAL_SUMMARY
        again = rates.write * _in_use(situation, after)
        theirs += asking * card.prices.input / _MILLION
        ours += again * card.prices.input / _MILLION
        return (
            "" if theirs <= ours else f"the provider's compaction would cost about ${theirs:.4f}, ours ${ours:.4f} with what is read again"
        )


def _after(view: View, edits: Edits) -> View:
    """The view after edits that fit it."""
    items = {item.id: item for item in view.items}
    return check_fit(view, edits, items.get, frozenset).view


def _in_use(situation: Situation, after: View) -> int:
    """Tokens of the results in use that are visible now and not in the view `after`."""
    shown = {item.id for item in after.items if item.mask is None}
    hidden = [item for item in situation.view.items if isinstance(item.content, ToolResult) and item.mask is None and item.id not in shown]
    live = [item for item in hidden if (use := situation.uses.get(item.id)) is not None and use.died is None]
    return sum(situation.tokens.item(item) for item in live)


def _lost(loss: Loss) -> int:
    """How many things a loss has, of all kinds, counted alike."""
    listed = (loss.paths, loss.commands, loss.symbols, loss.errors, loss.urls, loss.identifiers)
    return sum(map(len, listed)) + sum(loss.more.values()) + loss.numbers + loss.user_messages
