"""Runs the policies of a moment, and installs what the gate lets through."""

from collections.abc import Generator
from typing import NamedTuple

import msgspec
from msgspec import structs

from palimpsest.audit.gate import judge, left_out
from palimpsest.audit.pricing.price import price_of
from palimpsest.audit.visibility.loss import loss_of
from palimpsest.core.edits import Fold
from palimpsest.core.errors import BadEdit, NoModel, PalimpsestError, TooFull
from palimpsest.core.events import EditRefused, Event, Failed, ModelReplied, ViewEdited
from palimpsest.core.items import ToolCall, Value
from palimpsest.core.policy import Answer, Edits, Policy, Proposal, Want, steps_of
from palimpsest.core.situation import Card, Moment, Situation
from palimpsest.core.view import EMPTY, View
from palimpsest.engine.session import Session


class _Focus(Value, frozen=True):
    focus: str = ""


_focus = msgspec.json.Decoder(_Focus)


class PolicyRun(NamedTuple):
    """What came of a moment: the events recorded, lines for the user, the first failure of a policy, and the view before them all."""

    events: tuple[Event, ...] = ()
    notices: tuple[str, ...] = ()
    failure: PalimpsestError | None = None
    before: View = EMPTY

    @property
    def edited(self) -> tuple[Event, ...]:
        """The edits that were installed."""
        return tuple(event for event in self.events if isinstance(event.body, ViewEdited))

    @property
    def folded(self) -> bool:
        """Whether one of them was a fold."""
        return any(_folds(event.body.edits) for event in self.events if isinstance(event.body, ViewEdited))

    def then(self, other: "PolicyRun") -> "PolicyRun":
        """Both, one after the other."""
        return PolicyRun(self.events + other.events, self.notices + other.notices, self.failure or other.failure, self.before)


def run_policies(
    session: Session, moment: Moment, *, asked: str = "", incoming: int = 0, previous: Card | None = None, used: int | None = None
) -> Generator[Want, Answer, PolicyRun]:
    """Run each policy of the profile, in order, on the view that the one before left.

    `used` is what the view is known to carry before anything is edited, where that is not what it says itself.
    """
    ran = PolicyRun(before=session.log.view)
    for policy in session.profile.policies:
        if moment not in policy.moments or _rests(session, policy, moment):
            continue
        known = None if ran.edited else used
        situation = session.situation(moment, asked=asked, incoming=incoming, previous=previous, used=known)
        one = yield from _propose(session, policy, situation)
        fallback = session.profile.fallback
        if isinstance(one.failure, NoModel) and fallback is not None:
            one = yield from _propose(session, fallback, situation)
        if one.folded and moment != "folded":
            one = one.then((yield from run_policies(session, "folded", asked=asked)))
        ran = ran.then(one)
        if one.folded and moment == "asked":
            # The user asked for one fold: those that would come after it are the other ways to make it.
            break
    return ran


def asked_in(reply: ModelReplied) -> str | None:
    """What the model itself asked a fold to look at by calling `compact`, however often; nothing if it did not."""
    calls = [part for part in reply.parts if isinstance(part, ToolCall) and part.tool == "compact"]
    if not calls:
        return None
    try:
        return _focus.decode(calls[0].args or "{}").focus
    except msgspec.DecodeError:
        return ""


def _rests(session: Session, policy: Policy, moment: Moment) -> bool:
    """Whether a policy failed so often that only the user may have it tried again."""
    limit = session.profile.circuit
    return moment != "asked" and limit > 0 and session.log.health.is_open(policy.name, limit)


def _propose(session: Session, policy: Policy, situation: Situation) -> Generator[Want, Answer, PolicyRun]:
    """Ask one policy for its plan, carry it out and install what the gate lets through."""
    try:
        proposal = yield from steps_of(policy.plan(situation))
    except NoModel as error:
        return PolicyRun(failure=error)
    except TooFull:
        raise
    except PalimpsestError as error:
        failed = session.log.append(Failed("plan", error.kind, error.message, by=policy.name))
        return PolicyRun((failed,), failure=error)
    events = tuple([session.log.append(body) for body in (*proposal.failed, *proposal.events)])
    if proposal.edits:
        installed = install(session, policy, proposal, situation)
        return PolicyRun((*events, installed), proposal.notices if isinstance(installed.body, ViewEdited) else ())
    return PolicyRun(events, proposal.notices)


def install(session: Session, policy: Policy, proposal: Proposal, situation: Situation) -> Event:
    """Record edits with their reason, price and loss, or why they were refused."""
    if _folds(proposal.edits) and not situation.may_fold:
        return _refuse(session, policy, proposal.edits, f"this turn had its {session.profile.folds_per_turn} folds")
    before, edits, removed = session.log.view, proposal.edits, 0
    try:
        while True:
            after = session.log.trial(edits)
            verdict = judge(edits, after, situation, shrinks=policy.shrinks, strictness=session.profile.strictness)
            removed += len(verdict.removed)
            if verdict.refused or verdict.edits == edits:
                break
            # What the gate changed is judged again: nothing is installed that was not looked at as it is.
            edits = verdict.edits
    except BadEdit as error:
        return _refuse(session, policy, proposal.edits, error.message)
    if verdict.refused:
        return _refuse(session, policy, proposal.edits, verdict.refused)
    price = price_of(before, after, situation)
    return session.log.append(
        ViewEdited(
            verdict.edits,
            by=policy.name,
            why=_told(proposal.why, removed, verdict.remarks),
            moment=situation.moment,
            tokens_before=situation.used,
            tokens_after=_left(session, after, situation, folds=_folds(verdict.edits)),
            price_usd=price.usd,
            saved_usd_per_call=price.saved_usd_per_call,
            loss=loss_of(before, after, session.derived.declared),
        )
    )


def _told(why: str, removed: int, remarks: tuple[str, ...]) -> str:
    """The reason of an edit, with what the gate did to it and what it would have minded."""
    parts = [why]
    if removed:
        parts.append(left_out(removed))
    if remarks:
        parts.append(f"the full gate would have minded: {', '.join(remarks)}")
    return "; ".join(parts)


def _left(session: Session, after: View, situation: Situation, *, folds: bool) -> int:
    """What is used after edits: what was reported, less what they save; where nothing was reported, what the profile counts.

    A report knows of more than the log does, such as tools and the head of a program that does not record its own. Where after a fold
    as much would stay that one were due again at once, the report is left behind, and the profile's own count stands until the next.
    """
    counter, level = session.counter, situation.budget.compact_at
    left = situation.used - situation.incoming + counter.total(after) - counter.total(situation.view)
    anew = folds and (session.profile.recounts or (level is not None and left >= level))
    if anew or situation.view.reported is None:
        left = session.profile.count(structs.replace(after, reported=None), counter, situation.tools_tokens)
    return max(1, left)


def _refuse(session: Session, policy: Policy, edits: Edits, why: str) -> Event:
    return session.log.append(EditRefused(edits, policy.name, "gate", why))


def _folds(edits: Edits) -> bool:
    return any(isinstance(edit, Fold) for edit in edits)
