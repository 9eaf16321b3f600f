"""The believed cache state: sent breakpoints, times and lifetimes, corrected by reported reads."""

import pytest
from msgspec import Raw
from side_calls import side_reply
from workplace import say, work

from palimpsest.agent.session import Session
from palimpsest.audit.cache import MOST_PREFIXES, item_positions, warm_prefixes
from palimpsest.core.events import (
    CallStarted,
    ContextStated,
    Event,
    Failed,
    Interrupted,
    ModelReplied,
    Statement,
    ToolReturned,
    ToolsChanged,
    Usage,
    ViewEdited,
)
from palimpsest.core.items import Content, Fold, Insert, Mask, Put, Text, ToolCall, ToolResult
from palimpsest.core.plans import Cache, CachedPrefix
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.profile import Profile
from palimpsest.stores.in_memory import FixedClock

FIVE, HOUR = 300_000, 3_600_000
MINUTE = 60_000
# Four characters a token, so that sizes can be read off; the clock stands unless it is moved.
PROFILE = Profile("test", (), lambda each: palimpsest_budget(each.window, each.reply), size_rule="claude-code")


def begin(model: str = "claude-sonnet-4-5", *, tick: int = 0) -> Session:
    session = work(PROFILE, model, clock=FixedClock(0, tick))
    session.log.append(ContextStated(head=(Statement("base", "h" * 8_000, "system"),)))
    say(session, "u" * 4_000)
    return session


def call(
    session: Session,
    *parts: Content,
    usage: Usage | None = None,
    breakpoints: tuple[str, ...] = (),
    ttl: str = "5m",
    model: str = "",
    tools: str = "",
) -> Event:
    """A request with its breakpoints leaves, and the reply comes."""
    params = Raw(f'{{"ttl":"{ttl}"}}'.encode())
    started = CallStarted(
        model or session.card.name, "anthropic", params, tools, digest="d" if breakpoints else "", breakpoints=breakpoints
    )
    sent = session.log.append(started)
    return session.log.append(ModelReplied(parts or (Text("a" * 400, "assistant"),), call=sent.seq, usage=usage or Usage()))


def ends(session: Session) -> list[tuple[str, int]]:
    return [(prefix.last, prefix.tokens) for prefix in session.derived.cache.value().prefixes]


def test_a_call_whose_request_is_not_recorded_is_taken_to_have_breakpoints_on_head_and_tail() -> None:
    session = begin()
    call(session)
    assert session.derived.cache.value().prefixes == (CachedPrefix("head:0", 2_000, 0, FIVE), CachedPrefix("2.0", 3_000, 0, FIVE))


def test_the_breakpoints_of_a_call_are_the_cached_prefixes() -> None:
    session = begin()
    call(session, breakpoints=("2.0",))
    assert ends(session) == [("2.0", 3_000)]
    say(session, "v" * 4_000)
    call(session, breakpoints=("head:0", "2.0", "5.0"))
    assert ends(session) == [("head:0", 2_000), ("2.0", 3_000), ("5.0", 4_100)]


def test_a_request_of_ours_without_breakpoints_is_not_cached() -> None:
    session = begin()
    session.log.append(CallStarted("claude-sonnet-4-5", "anthropic", digest="d"))
    session.log.append(ModelReplied((Text("a"),), call=3))
    assert ends(session) == []


def test_what_was_reported_is_how_long_the_tail_is() -> None:
    session = begin()
    call(session, breakpoints=("head:0", "2.0"), usage=Usage(10, 0, 4_490, 0, 100))
    # The prompt had half as many tokens again as we thought, so that the head has them too.
    assert ends(session) == [("head:0", 3_000), ("2.0", 4_490)]


def test_the_tools_stand_before_the_head_and_are_cached_with_it() -> None:
    session = begin()
    started = CallStarted(session.card.name, "anthropic", digest="d", breakpoints=("head:0", "2.0"), estimate=3_000, tools_estimate=5_000)
    sent = session.log.append(started)
    session.log.append(ModelReplied((Text("a", "assistant"),), call=sent.seq, usage=Usage(10, 0, 7_990)))
    # The head alone has 2,000; the server counted 8,000 of all.
    assert ends(session) == [("head:0", 7_000), ("2.0", 7_990)]


@pytest.mark.states("PA-09")
def test_the_ledger_follows_reported_cache_reads_when_they_differ_from_its_belief() -> None:
    session = begin()
    call(session, breakpoints=("head:0", "2.0"), usage=Usage(0, 0, 3_000, 0, 100))
    say(session, "v" * 4_000)
    call(session, breakpoints=("2.0", "5.0"), usage=Usage(0, 2_000, 2_100, 0, 100))
    # It believed in 3,000 and 2,000 were read: the entry that was not found is gone, and written anew where it was marked.
    assert ends(session) == [("head:0", 2_000), ("2.0", 3_000), ("5.0", 4_100)]
    say(session, "w" * 4_000)
    call(session, breakpoints=("8.0",), usage=Usage(0, 0, 5_200, 0, 100))
    assert ends(session) == [("8.0", 5_200)]


@pytest.mark.states("PA-09")
def test_unexpected_reads_are_believed() -> None:
    session = begin(tick=10 * MINUTE)
    call(session, usage=Usage(0, 0, 3_000, 0, 100))
    say(session, "v" * 4_000)
    assert session.derived.cache.value().longest(session.environment.clock.now()) == 0
    call(session, usage=Usage(0, 3_000, 1_100, 0, 100))
    assert ends(session) == [("head:0", 2_000), ("2.0", 3_000), ("5.0", 4_100)]


def test_when_nothing_is_reported_as_cached_nothing_is() -> None:
    session = begin()
    call(session, usage=Usage(3_000, 0, 0, 0, 100))
    assert ends(session) == []


def test_a_read_restarts_the_lifetime_of_every_prefix_it_contains_and_time_ends_the_rest() -> None:
    session = begin(tick=MINUTE)
    call(session)
    first = session.derived.cache.value().called
    assert first is not None
    say(session, "v" * 400)
    call(session)
    second = session.derived.cache.value().called
    assert second == first + 3 * MINUTE
    assert {prefix.at for prefix in session.derived.cache.value().prefixes} == {second}
    for _ in range(6):
        say(session, "w")
    call(session)
    assert [name for name, _ in ends(session)] == ["head:0", "13.0"]


def test_an_hour_is_asked_for_or_reported() -> None:
    session = begin()
    call(session, ttl="1h")
    assert {prefix.ttl for prefix in session.derived.cache.value().prefixes} == {HOUR}
    other = begin()
    call(other, usage=Usage(0, 0, 0, 3_000, 100))
    assert {prefix.ttl for prefix in other.derived.cache.value().prefixes} == {HOUR}
    call(other, usage=Usage(0, 3_000, 100, 0, 100))
    assert [prefix.ttl for prefix in other.derived.cache.value().prefixes] == [HOUR, HOUR, FIVE]


def test_a_prefix_below_the_minimum_is_not_kept() -> None:
    session = begin("claude-haiku-4-5")
    call(session)
    assert ends(session) == []


def at_work(model: str = "claude-sonnet-4-5") -> Session:
    """Three rounds with a result of 1,000 tokens each, all cached."""
    session = begin(model)
    for number in range(3):
        call(session, ToolCall(f"c{number}", "Bash", "{}"))
        session.log.append(ToolReturned(ToolResult(f"c{number}", (Text("r" * 4_000),)), tool="Bash"))
    call(session)
    return session


def test_an_edit_leaves_only_what_ends_before_it() -> None:
    session = at_work()
    assert [name for name, _ in ends(session)] == ["head:0", "2.0", "5.0", "8.0", "11.0"]
    session.log.append(ViewEdited((Mask(("8.0",), "[gone]"),), by="test"))
    cache = session.derived.cache.value()
    assert [prefix.last for prefix in cache.prefixes] == ["head:0", "2.0", "5.0"]
    assert (cache.frontier, cache.edited) == ("7.0", True)
    call(session)
    assert session.derived.cache.value().edited is False
    assert session.derived.cache.value().frontier == "7.0"


def test_a_fold_from_the_first_item_leaves_the_head_and_an_appended_reminder_leaves_all() -> None:
    session = at_work()
    before = ends(session)
    session.log.append(ViewEdited((Insert((Put("reminder", Text("mind")),)),), by="test"))
    assert ends(session) == before
    assert session.derived.cache.value().edited is False
    ids = session.log.view.ids
    session.log.append(ViewEdited((Fold(ids[0], ids[-1], (Put("summary", Text("s" * 400)),)),), by="test"))
    assert [name for name, _ in ends(session)] == ["head:0"]
    assert session.derived.cache.value().frontier == ""


def test_a_result_that_the_provider_clears_ends_what_its_cache_can_read() -> None:
    session = at_work()
    before = ends(session)
    session.log.append(ViewEdited((Mask(("8.0",), "[gone]", "cached"),), by="test"))
    assert ends(session) == before[:3]


def test_a_new_head_a_new_model_and_new_tools_begin_a_new_cache() -> None:
    session = at_work()
    session.log.append(ContextStated(head=(Statement("base", "h" * 8_000, "system"),)))
    assert len(ends(session)) == 5
    session.log.append(ContextStated(head=(Statement("base", "other", "system"),)))
    assert ends(session) == []
    for model, tools in (("claude-opus-4-1", ""), ("claude-sonnet-4-5", "blob")):
        session = at_work()
        started = session.log.append(CallStarted(model, "anthropic", tools=tools)).seq
        assert session.derived.cache.readable == ()
        session.log.append(Failed("call", "provider", call=started, purpose="turn"))
        assert len(ends(session)) == 5
        started = session.log.append(CallStarted(model, "anthropic", tools=tools)).seq
        session.log.append(Interrupted(started, (Text("half", "assistant"),), purpose="turn"))
        assert ends(session) == []


@pytest.mark.states("PV-63")
def test_a_cache_outlives_tools_that_join_inside_the_conversation_once() -> None:
    session = at_work()
    session.log.append(ToolsChanged(("late",)))
    assert len(session.derived.cache.readable_by("claude-sonnet-4-5", "blob")) == 5
    started = session.log.append(CallStarted("claude-sonnet-4-5", "anthropic", tools="blob")).seq
    session.log.append(Interrupted(started, (Text("half", "assistant"),), purpose="turn"))
    assert len(ends(session)) == 5
    # What joins without a word is another list of tools.
    assert session.derived.cache.readable_by("claude-sonnet-4-5", "other") == ()


def test_a_call_beside_the_conversation_keeps_what_it_read_alive() -> None:
    session = begin(tick=MINUTE)
    call(session)
    session.log.append(side_reply("title", "claude-sonnet-4-5", Usage(10, 2_000, 0, 0, 5)))
    times = [prefix.at for prefix in session.derived.cache.value().prefixes]
    assert times[0] - times[1] == 2 * MINUTE


def test_an_automatic_cache_keeps_whole_prompts_and_is_read_up_to_any_item() -> None:
    session = at_work("gpt-5")
    assert ends(session) == [("11.0", 5_888)]
    warm = warm_prefixes(session.situation("before_call"))
    assert warm.longest == 5_888
    session.log.append(ViewEdited((Mask(("8.0",), "[gone]"),), by="test"))
    assert ends(session) == [("7.0", 3_968)]


def test_misses_after_pauses_that_no_entry_outlasts_say_nothing_about_an_automatic_cache() -> None:
    session = begin("gpt-5.5", tick=15 * MINUTE)
    for _ in range(5):
        call(session, usage=Usage(input=3_000))
    assert session.derived.cache.value().missed == 1


@pytest.mark.states("PA-09")
def test_an_automatic_cache_that_is_missed_again_and_again_is_not_believed_in() -> None:
    session = begin("gpt-5")
    for expected in (3_072, 3_072, 0, 0):
        call(session, Text("a"), usage=Usage(3_100, 0, 0, 0, 1))
        assert session.derived.cache.value().longest(0) == expected
    call(session, Text("a"), usage=Usage(100, 3_072, 0, 0, 1))
    assert ends(session) == [("10.0", 3_072)]


def test_the_ledger_is_bounded_however_long_a_session_is() -> None:
    session = begin()
    for _ in range(300):
        call(session)
    prefixes = session.derived.cache.value().prefixes
    assert len(prefixes) <= MOST_PREFIXES
    assert prefixes[0].last == "head:0"
    assert prefixes[-1].last == session.log.view.ids[-2]


def test_a_cached_prefix_is_live_until_its_lifetime_is_over() -> None:
    cache = Cache((CachedPrefix("0.0", 20_000, at=1_000, ttl=300_000), CachedPrefix("2.0", 40_000, at=200_000, ttl=300_000)))
    assert [cache.longest(now) for now in (200_000, 300_999, 499_999, 500_000)] == [40_000, 40_000, 40_000, 0]
    assert Cache().longest(0) == 0


def test_before_an_item_counts_the_longest_prefix_that_ends_before_it() -> None:
    session = at_work()
    situation = session.situation("before_call")
    warm, places = warm_prefixes(situation), item_positions(situation.view)
    names = ("2.0", "5.0", "8.0", "11.0")
    assert [warm.before(places[name]) for name in names] == [
        2_000,
        3_000,
        *(prefix.tokens for prefix in situation.cache.prefixes[2:4]),
    ]
    assert warm.head == 2_000
