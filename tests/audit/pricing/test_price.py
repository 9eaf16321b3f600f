"""The price of an edit is the difference of two simulated bills for the next request."""

from dataclasses import replace as changed
from itertools import accumulate, pairwise

import pytest
from msgspec.structs import replace
from situations import prefix, situation, used, words
from workplace import offline, say, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.audit.cache import Bill, Breakpoint, CacheContents, Prompt, bill, cache_rules
from palimpsest.audit.prices import next_bills, price_of
from palimpsest.core.events import CallStarted, ModelReplied, ToolReturned, Usage, ViewEdited
from palimpsest.core.items import Cover, Item, Text, ToolCall, ToolResult
from palimpsest.core.plans import CachedPrefix, Situation
from palimpsest.core.view import View
from palimpsest.peers.clearing import ClearResults
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile
from palimpsest.wire.breakpoints import with_anchors
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card, simulated_cost

CALL, RESULT = used(2, "Bash", '{"command":"ls"}', 30_020)
# 40k before the result, 98k up to the last tail, 2k since.
ITEMS = (words("1.0", 40_000), CALL, RESULT, words("4.0", 27_980), words("5.0", 2_000))
PREFIXES = (prefix("1.0", 40_000), prefix("4.0", 98_000))
MILLION = 1_000_000


def cleared(items: tuple[Item, ...]) -> View:
    return View(items=(*items[:2], replace(items[2], mask=Cover("[Bash ls: 30020 tokens, id 3.0]")), *items[3:]))


@pytest.mark.states("PA-08")
def test_the_price_of_an_edit_equals_the_difference_of_two_simulated_bills() -> None:
    now = situation(ITEMS, prefixes=PREFIXES)
    assert now.used == 100_000
    before, after = next_bills(now.view, cleared(ITEMS), now, 30_000)
    assert before == Usage(0, 98_000, 2_000)
    assert after == Usage(0, 40_000, 30_000)
    price = price_of(now.view, cleared(ITEMS), now)
    # The worked example: 41.5k against 12.3k input tokens, at three dollars a million.
    assert price.usd == pytest.approx((41_500 - 12_300) * 3 / MILLION)
    assert price.saved_usd_per_call == pytest.approx(30_000 * 0.1 * 3 / MILLION)


@pytest.mark.parametrize(
    ("prefixes", "usd"),
    [
        ((), -1.25 * 30_000),
        ((prefix("1.0", 40_000), prefix("4.0", 98_000, age=300_000)), -1.25 * 30_000),
        ((prefix("4.0", 98_000),), 1.25 * 70_000 - 12_300),
        ((prefix("1.0", 40_000, ttl=3_600_000), prefix("4.0", 98_000, ttl=3_600_000)), 2 * 30_000 + 4_000 - 9_800 - 4_000),
    ],
)
def test_an_edit_is_priced_by_what_is_cached_and_for_how_long(prefixes: tuple[CachedPrefix, ...], usd: float) -> None:
    now = situation(ITEMS, prefixes=prefixes)
    assert price_of(now.view, cleared(ITEMS), now).usd == pytest.approx(usd * 3 / MILLION)


def test_an_automatic_cache_is_read_up_to_the_edit_in_whole_steps() -> None:
    now = situation(ITEMS, prefixes=(prefix("4.0", 97_920, ttl=600_000),), model=card("gpt-5"))
    before, after = next_bills(now.view, cleared(ITEMS), now, 30_000)
    assert (before.cache_read, before.prompt) == (97_920, 100_000)
    # 40,000 of the 98,000 tokens that the items have stand before the result, in steps of 128.
    assert (after.cache_read, after.prompt) == (39_936, 70_000)


def test_an_edit_of_uncached_items_only_saves() -> None:
    call, result = used(6, "Bash", "{}", 5_020)
    now = situation((*ITEMS, call, result), prefixes=PREFIXES)
    after = View(items=(*ITEMS, call, replace(result, mask=Cover("[Bash: 5020 tokens, id 7.0]"))))
    assert price_of(now.view, after, now).usd == pytest.approx(-1.25 * 5_000 * 3 / MILLION)


def test_no_edit_costs_nothing() -> None:
    now: Situation = situation(ITEMS, prefixes=PREFIXES)
    assert price_of(now.view, now.view, now).usd == 0.0


class Till:
    """A provider's own cache and bills, worked out from the items of a view and the breakpoints of a request; nothing of ours is asked."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.contents = CacheContents()

    def bill(self, view: View, breakpoints: tuple[str, ...], now: int) -> Bill:
        counter, items = self.session.counter, (*view.head, *view.items)
        # A provider counts the tokens of a prefix, not of each item: sizes are summed before they are rounded.
        ends = [counter.scaled(tokens) for tokens in accumulate(counter.unscaled_sizes(items), initial=0)]
        blocks = [(f"{item.id} {item.mask}", end - start) for item, (start, end) in zip(items, pairwise(ends), strict=True)]
        places = {item.id: place for place, item in enumerate(items)}
        wanted = [Breakpoint(places[name]) for name in breakpoints if name in places]
        return bill(Prompt.of(blocks), self.contents, now, cache_rules(self.session.card), wanted)

    def next(self) -> Usage:
        """What the next request would be billed as, with the breakpoints that it would have."""
        session = self.session
        now = session.situation("before_call").now
        params = with_anchors(session.params, session.derived.cache.value(), now)
        breakpoints = encode(session.log.view, session.card, (), params).breakpoints
        return self.bill(session.log.view, breakpoints, now).usage

    def call(self, *parts: Text | ToolCall) -> None:
        """A call that is made, billed and answered."""
        session = self.session
        now = session.situation("before_call").now
        params = with_anchors(session.params, session.derived.cache.value(), now)
        breakpoints = encode(session.log.view, session.card, (), params).breakpoints
        billed = self.bill(session.log.view, breakpoints, now)
        self.contents = billed.contents
        started = session.log.append(
            CallStarted(session.card.name, "anthropic", estimate=session.counter.raw(session.log.view), breakpoints=breakpoints)
        )
        output = sum(session.counter.scaled(session.counter.rule(part)) for part in parts)
        session.log.append(ModelReplied(parts, call=started.seq, usage=replace(billed.usage, output=output), stop="tool_use"))


def at_the_till(one: Profile, model: str) -> Till:
    """Thirty reads of files that nobody names again, each call billed."""
    till = Till(work(one, model))
    say(till.session, "read all of it")
    for number in range(30):
        till.call(ToolCall(f"c{number}", "Read", f'{{"file_path":"f{number}.py"}}'))
        text = f"line {number}\n" * 900
        till.session.log.append(ToolReturned(ToolResult(f"c{number}", (Text(text),)), tool="Read"))
    return till


HALF = changed(profile("palimpsest"), policies=(ClearResults(target=60_000, manual=True),))


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-5"])
@pytest.mark.parametrize("one", [profile("palimpsest"), HALF], ids=["fold", "clear"])
@pytest.mark.states("PA-08")
def test_the_price_recorded_with_an_edit_of_a_session_is_what_a_till_bills_more_for_it(one: Profile, model: str) -> None:
    till = at_the_till(one, model)
    now = till.next()
    assert now.cache_read > 70_000
    (edited,) = offline(till.session, run_policies(till.session, "asked")).edited
    then = till.next()
    assert then.prompt < now.prompt
    prices = till.session.card.prices
    assert isinstance(edited.body, ViewEdited)
    # Both round a size only after it is summed, so that they differ by less than a token.
    token = (prices.cache_write or prices.input) / MILLION
    usd = simulated_cost(then, prices).total - simulated_cost(now, prices).total
    assert edited.body.price_usd == pytest.approx(usd, rel=1e-9, abs=token)
    assert abs(edited.body.price_usd or 0.0) > 100 * token
