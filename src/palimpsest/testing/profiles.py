"""The contract of profiles and policies, on synthetic sessions that do not fit the window and with models that misbehave."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Final

from msgspec import structs

from palimpsest.agent.calls import answer_want, carry_out, carry_out_now
from palimpsest.agent.editing import PolicyRun, run_policies
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.audit.gate import pinned
from palimpsest.core.deltas import Delta
from palimpsest.core.errors import NoModel, PalimpsestError, PromptTooLong, ProviderError, TooFull
from palimpsest.core.events import EditRefused, ModelReplied
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.log import Log, recover
from palimpsest.core.plans import Answer, Ask, Moment, Outcome, Policy, Proposal, Want, complete, run_steps
from palimpsest.core.ports import Sendable
from palimpsest.core.tokens import palimpsest_size
from palimpsest.core.undo import undo
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.profile import Profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.testing.laws import require, require_equal
from palimpsest.testing.synthetic import synthetic_session
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import DEFAULTS
from palimpsest.wire.wires import check_request

_SIZES: Final = {"short": 8_000, "medium": 30_000, "long": 80_000}
"""The synthetic sessions, with their tokens."""
_NOW: Final = 2_000_000_000_000
_WIRES: Final = ("claude-sonnet-4-5", "gpt-5", "openai-compatible/any")
_MOMENTS: Final[tuple[Moment, ...]] = (
    *("turn_starts", "before_call", "after_call", "turn_ends", "idle"),
    *("overflow", "switched", "resumed", "asked"),
)
_SUMMARY: Final = "<summary>\n## Goal\nMake the shop faster.\n## Next step\nGo on with the tests.\n</summary>"
_WRONG: Final[dict[str, ModelReplied | PalimpsestError]] = {
    "refuses": ModelReplied((Text("I will not do that.", "assistant"),), stop="refusal"),
    "answers nothing": ModelReplied((), stop="end_turn"),
    "calls a tool": ModelReplied((ToolCall("w1", "read", '{"path":"a.py"}'),), stop="tool_use"),
    "answers longer than the input": ModelReplied((Text(f"<summary>{'many words ' * 60_000}</summary>", "assistant"),), stop="end_turn"),
    "is cut short": ModelReplied((Text("## Goal\nmake the", "assistant"),), stop="max_tokens"),
    "fails": ProviderError("overloaded", status=529),
    "finds it too long": PromptTooLong("prompt is too long", gap=5_000),
}
_MOST_REQUESTS: Final = 60
_forks = count()


class ProfileContract:
    """The laws of a profile: define `make`, name the class `Test…` in a test file, and pytest runs each law."""

    def make(self) -> Profile:
        """Return the profile."""
        raise NotImplementedError

    def test_every_view_that_policies_leave_is_one_that_three_providers_take(self) -> None:
        """Whatever is edited, calls and results stay paired and the encoded requests are valid on all wires."""
        for name in _SIZES:
            with _at_work(name, self.make()) as session:
                for moment in _MOMENTS:
                    _run(session, moment)
                    require_equal(_faults(session), [], f"the request of the {name} session after {moment}")

    def test_a_shrinking_policy_never_grows_the_view_and_a_second_look_rests(self) -> None:
        """Each policy alone: one that says it shrinks leaves no more tokens, and run again at once it edits nothing."""
        for policy in self.make().policies:
            for name in ("medium", "long"):
                with _at_work(name, replace(self.make(), policies=(policy,))) as session:
                    for moment in _MOMENTS:
                        _look_twice(session, policy, moment)

    def test_no_proposal_is_refused(self) -> None:
        """What a policy proposes without a model fits the view: it separates no pair, hides nothing pinned and does not grow."""
        with _at_work("long", self.make()) as session:
            results = [item.id for item in session.log.view.items if item.kind == "result"]
            session.pin(ids=(results[0],))
            for moment in _MOMENTS:
                _run(session, moment)
            refused = [event.body.why for event in session.log.events() if isinstance(event.body, EditRefused)]
            require_equal(refused, [], "refused proposals")

    def test_the_same_situation_gives_the_same_plan(self) -> None:
        """A plan depends on its situation and on the answers to its wants alone."""
        summary = ModelReplied((Text(_SUMMARY, "assistant"),), stop="end_turn")
        with _at_work("medium", self.make()) as session:
            for policy in session.profile.policies:
                for moment in policy.moments:
                    for reply in (None, summary):
                        plans = [_outcome(policy, session, moment, reply) for _ in range(2)]
                        require_equal(plans[0], plans[1], f"two plans of {policy.name} at {moment}")

    def test_no_edit_hides_what_is_pinned(self) -> None:
        """Items that the user pinned stay visible, with the other half of their pairs."""
        for kind in ("user", "assistant", "call", "result"):
            with _at_work("long", self.make()) as session:
                items = [item.id for item in session.log.view.items if item.kind == kind]
                session.pin(ids=(items[1], items[len(items) // 2]))
                wanted = pinned(session.log.view)
                for moment in ("before_call", "overflow", "asked", "turn_ends"):
                    _run(session, moment)
                    hidden = [each for each in wanted if each not in session.log.view.ids or session.log.view[each].mask is not None]
                    require_equal(hidden, [], f"pinned items that {moment} hides")

    def test_a_model_that_does_it_wrong_never_harms_the_session_and_never_loops(self) -> None:
        """With a model that refuses, fails or rambles, every request stays valid and the number of requests is bounded."""
        for wrong, answer in _WRONG.items():
            model = _Always(answer)
            with _at_work("medium", self.make(), model) as session:
                for _ in range(4):
                    for moment in ("before_call", "overflow", "idle"):
                        _run(session, moment, offline=False)
                        require_equal(_faults(session), [], f"the request after {moment} with a model that {wrong}")
            require(model.asked <= _MOST_REQUESTS, f"{model.asked} requests to a model that {wrong}")

    def test_an_edit_that_is_undone_leaves_the_bytes_of_before(self) -> None:
        """Undo brings back the view, so that the next request is the same to the byte."""
        with _at_work("long", self.make()) as session:
            items = session.log.view.items
            ran = _run(session, "before_call")
            for event in reversed(ran.edited if ran is not None else ()):
                undo(session.log, event.seq)
            require_equal(session.log.view.items, items, "the items after undoing all edits")


class PolicyContract(ProfileContract):
    """The laws of one policy: define `make_policy`."""

    def make_policy(self) -> Policy:
        """Return the policy."""
        raise NotImplementedError

    def make(self) -> Profile:
        """Return a profile with this policy alone, and the budget of `palimpsest`."""
        return Profile("contract", (self.make_policy(),), lambda card: palimpsest_budget(card.window, card.reply))


class _Always:
    """A model that always gives the same answer, and counts its requests."""

    def __init__(self, answer: ModelReplied | PalimpsestError) -> None:
        self._answer = answer
        self.asked = 0

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        self.asked += 1
        if isinstance(self._answer, PalimpsestError):
            raise self._answer
        yield self._answer


@cache
def _sessions() -> MemorySessions:
    store = MemorySessions()
    for seed, (name, tokens) in enumerate(_SIZES.items(), 1):
        synthetic_session(seed, tokens, store, name).close()
    return store


@contextmanager
def _at_work(name: str, profile: Profile, model: _Always | None = None) -> Iterator[Session]:
    """A fork of a synthetic session with a window in which it does not fit."""
    store, clock = _sessions(), FixedClock(_NOW, 1_000)
    with Log.open(store, name, clock) as base:
        log = base.fork(store, f"fork-{next(_forks)}")
    recover(log)
    environment = Environment(store, MemoryBlobs(), clock, offload=inline, retries=NO_RETRIES)
    if model is not None:
        environment = replace(environment, provider=lambda *_: model)
    with Session(log, profile, _cramped(log), environment) as session:
        yield session


def _cramped(log: Log) -> ModelCard:
    """A card with a window of nine tenths of what a session shows."""
    usual = card(_WIRES[0])
    window = max(6_000, sum(palimpsest_size(item.content) for item in (*log.view.head, *log.view.items)) * 9 // 10)
    return structs.replace(usual, window=window, input_limit=window, reply=min(usual.reply, window // 8))


def _run(session: Session, moment: Moment, *, offline: bool = True) -> PolicyRun | None:
    """What came of a moment; nothing if what cannot be left out does not fit, which must change nothing."""
    before = session.log.view
    try:
        steps = run_policies(session, moment)
        return carry_out_now(steps, session) if offline else asyncio.run(carry_out(steps, session))
    except TooFull:
        require_equal(session.log.view, before, f"the view after {moment} failed")
        return None


def _look_twice(session: Session, policy: Policy, moment: Moment) -> None:
    before = session.counter.total(session.log.view)
    ran = _run(session, moment)
    after = session.counter.total(session.log.view)
    require(not policy.shrinks or after <= before, f"{policy.name} shrinks, but {moment} left {after} tokens of {before}")
    # A second overflow says that the first edit was not enough.
    if ran is not None and ran.edited and moment != "overflow":
        again = _run(session, moment)
        require(again is None or not again.edited, f"{policy.name} edits again when it is run twice at {moment}")


def _outcome(policy: Policy, session: Session, moment: Moment, reply: ModelReplied | None) -> Outcome | str:
    def answer(want: Want) -> Answer | PalimpsestError:
        if isinstance(want, Ask):
            return reply if reply is not None else NoModel("no model")
        try:
            return complete(answer_want(want, session))
        except PalimpsestError as error:
            return error

    try:
        plan = policy.plan(session.situation(moment))
        return plan if isinstance(plan, tuple | Proposal) else run_steps(plan, answer)
    except PalimpsestError as error:
        return f"{error.kind}: {error.message}"


def _faults(session: Session) -> list[str]:
    """What three providers would reject in the request for the current view."""
    found: list[str] = []
    for name in _WIRES:
        model = card(name)
        request = encode(session.log.view, model, session.tools, DEFAULTS, session.environment.blobs.get)
        found += [f"{model.wire}: {fault}" for fault in check_request(model.wire, request.body)]
    return found
