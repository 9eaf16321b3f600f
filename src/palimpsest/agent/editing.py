"""Runs the policies of a moment, and installs the edits that pass the gate."""

from asyncio import CancelledError
from collections.abc import Callable, Generator
from typing import NamedTuple

import msgspec
from msgspec import structs

from palimpsest.agent.archive import RECALL
from palimpsest.agent.session import Session
from palimpsest.agent.tool import one_line
from palimpsest.audit.gate import judge, removed_lines_text
from palimpsest.audit.loss import loss_of
from palimpsest.audit.prices import price_of
from palimpsest.audit.reasoning import holds_back, lost_text
from palimpsest.core.errors import BadEdit, ForeignFailure, NoModel, OverBudget, PalimpsestError, TooFull, raised_text
from palimpsest.core.events import EditRefused, Event, Failed, ModelReplied, ViewEdited
from palimpsest.core.items import Fold, ReasoningLost, ToolCall, Value
from palimpsest.core.plans import Answer, Edits, FoldPlanned, ModelCard, Moment, Policy, Proposal, Situation, Want, steps_of
from palimpsest.core.view import EMPTY_VIEW, View


class _Focus(Value, frozen=True):
    focus: str = ""


_focus = msgspec.json.Decoder(_Focus)


class PolicyRun(NamedTuple):
    """Result of running the policies of a moment: recorded events, notices for the user, first failure, and the view before."""

    events: tuple[Event, ...] = ()
    notices: tuple[str, ...] = ()
    failure: PalimpsestError | None = None
    before: View = EMPTY_VIEW

    @property
    def edited(self) -> tuple[Event, ...]:
        """The events of the installed edits."""
        return tuple(event for event in self.events if isinstance(event.body, ViewEdited))

    @property
    def folded(self) -> bool:
        """Whether an installed edit was a fold."""
        return any(_folds(event.body.edits) for event in self.events if isinstance(event.body, ViewEdited))

    def then(self, other: "PolicyRun") -> "PolicyRun":
        """Return this run followed by another one, as one run."""
        return PolicyRun(self.events + other.events, self.notices + other.notices, self.failure or other.failure, self.before)


def always() -> bool:
    """Return true: there is no deadline."""
    return True


def run_policies(
    session: Session,
    moment: Moment,
    *,
    asked: str = "",
    incoming: int = 0,
    previous: ModelCard | None = None,
    used: int | None = None,
    in_time: Callable[[], bool] = always,
) -> Generator[Want, Answer, PolicyRun]:
    """Run the policies of the profile for a moment, in order; each gets the view that the previous one left.

    `used` overrides the size of the view, in tokens, until the first edit. Once `in_time` returns false no policy runs and no plan is
    installed. Raises `TooFull` if the view cannot fit the window.
    """
    ran = PolicyRun(before=session.log.view)
    for policy in session.profile.policies:
        if moment not in policy.moments or _is_suspended(session, policy, moment) or not in_time():
            continue
        known_size = None if ran.edited else used
        situation = session.situation(moment, asked=asked, incoming=incoming, previous=previous, used=known_size)
        one = yield from _propose(session, policy, situation, in_time)
        fallback = session.profile.fallback
        if isinstance(one.failure, NoModel) and fallback is not None:
            one = yield from _propose(session, fallback, situation, in_time)
        notices = one.notices
        if one.folded and moment != "folded":
            one = one.then((yield from run_policies(session, "folded", asked=asked)))
        # Told behind what the policies of the fold did, which look at the newest event.
        session.tell(policy.name, notices, again=moment == "asked")
        ran = ran.then(one)
        if one.folded and moment == "asked":
            # The user asked for one fold; the remaining policies are alternatives for it.
            break
    return ran


def compact_focus(reply: ModelReplied) -> str | None:
    """Return the focus of the first call of the tool `compact` in a reply, or `None` if the reply has no such call."""
    calls = [part for part in reply.parts if isinstance(part, ToolCall) and part.tool == "compact"]
    if not calls:
        return None
    try:
        return _focus.decode(calls[0].args or "{}").focus
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""


def _is_suspended(session: Session, policy: Policy, moment: Moment) -> bool:
    """Whether a policy failed so often in a row that it runs only at the request of the user."""
    limit = session.profile.circuit
    return moment != "asked" and limit > 0 and session.log.health.is_circuit_open(policy.name, limit)


def _propose(session: Session, policy: Policy, situation: Situation, in_time: Callable[[], bool]) -> Generator[Want, Answer, PolicyRun]:
    """Run the plan of one policy and install the edits that pass the gate. What it raises is recorded as its failure."""
    try:
        return (yield from _carry_out(session, policy, situation, in_time))
    except (NoModel, OverBudget) as error:
        return PolicyRun(failure=error)
    except TooFull:
        raise
    except (Exception, SystemExit, CancelledError) as error:  # noqa: BLE001 - a policy of another author may raise anything
        # A cancellation of the turn is never thrown into a plan, so this one is its own.
        failure = as_failure(error)
        failed = session.log.append(Failed("plan", failure.kind, failure.message, by=policy.name))
        return PolicyRun((failed,), failure=failure)


def _carry_out(session: Session, policy: Policy, situation: Situation, in_time: Callable[[], bool]) -> Generator[Want, Answer, PolicyRun]:
    proposal = yield from steps_of(policy.plan(situation))
    events = tuple([session.log.append(body) for body in (*proposal.failed, *proposal.events)])
    edits = proposal.edits if in_time() else ()
    if edits and session.affordable is not None:
        edits = session.affordable(edits)
    if edits != proposal.edits and edits:
        why = f"{proposal.why}; of {len(proposal.edits)} edits the newest {len(edits)}, by what the next request costs"
        proposal = structs.replace(proposal, edits=edits, why=why)
    if edits and RECALL in situation.offered:
        from palimpsest.agent.ways_back import (
            name_hidden,  # most starts edit nothing
            offers_recall,
        )

        if offers_recall(session.tools):
            proposal = structs.replace(proposal, edits=name_hidden(edits, situation))
    if edits and situation.reasoning and _waits(session, edits, situation):
        # Proposed again at the next moment, when more is due.
        return PolicyRun(events)
    if edits:
        if _folds(proposal.edits) and situation.moment != "asked" and situation.may_fold:
            yield FoldPlanned(situation.used)
        installed = install(session, policy, proposal, situation)
        return PolicyRun((*events, installed), proposal.notices if isinstance(installed.body, ViewEdited) else ())
    return PolicyRun(events, proposal.notices)


def _waits(session: Session, edits: Edits, situation: Situation) -> bool:
    """Whether edits wait for a moment at which they cost less reasoning."""
    try:
        return holds_back(edits, session.log.trial(edits), situation)
    except BadEdit:
        return False


def as_failure(error: BaseException) -> PalimpsestError:
    """Return an error of another author's code as one of ours: its type and first line."""
    if isinstance(error, PalimpsestError):
        return error
    return ForeignFailure(one_line(raised_text(error)))


def install(session: Session, policy: Policy, proposal: Proposal, situation: Situation) -> Event:
    """Record the edits of a proposal with reason, price and loss, or an `EditRefused`, and return the event."""
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
            # Edits that the gate changed are judged again, so that exactly what was judged is installed.
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
            why=_full_reason(proposal.why, removed, verdict.warnings, price.reasoning_lost),
            moment=situation.moment,
            tokens_before=situation.used,
            tokens_after=_tokens_after(session, after, situation, folds=_folds(verdict.edits)),
            price_usd=price.usd,
            saved_usd_per_call=price.saved_usd_per_call,
            loss=loss_of(before, after),
            reasoning_lost=price.reasoning_lost,
        )
    )


def _full_reason(why: str, removed: int, remarks: tuple[str, ...], lost: ReasoningLost | None) -> str:
    """Return the reason of an edit, with the reasoning that it costs, what the gate removed and the remarks of a lenient gate."""
    parts = [why]
    if text := lost_text(lost):
        parts.append(text)
    if removed:
        parts.append(removed_lines_text(removed))
    if remarks:
        parts.append(f"the full gate would have minded: {', '.join(remarks)}")
    return "; ".join(parts)


def _tokens_after(session: Session, after: View, situation: Situation, *, folds: bool) -> int:
    """Return the size of the next request after edits, in tokens: the reported size minus the estimated savings.

    The report includes what the log does not know, such as tools, or the head of a program that does not record it. Without a report,
    the profile counts the view. It also does if after a fold the next fold would be due at once according to the report.
    """
    counter, level = session.counter, situation.budget.compact_at
    size = situation.used - situation.incoming + counter.total(after) - counter.total(situation.view)
    recount = folds and (session.profile.recounts or (level is not None and size >= level))
    if recount or situation.view.reported is None:
        size = session.profile.count(structs.replace(after, reported=None), counter, situation.tools_tokens)
    return max(1, size)


def _refuse(session: Session, policy: Policy, edits: Edits, why: str) -> Event:
    return session.log.append(EditRefused(edits, policy.name, "gate", why))


def _folds(edits: Edits) -> bool:
    return any(isinstance(edit, Fold) for edit in edits)
