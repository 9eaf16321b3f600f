"""The cache monitor: which drops of cache reads are reported."""

import pytest
from situations import situation
from workplace import reply, say, work

from palimpsest.audit.cache import watch_after_edit, watch_after_reply
from palimpsest.core.events import Usage, ViewEdited
from palimpsest.core.items import Edit, Fold, Insert, Mask, Put, Text
from palimpsest.core.plans import Cache, CacheReads, proposal_of
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.notices import WatchCache
from palimpsest.policies.profile import Profile

NOTHING = CacheReads()


def reads(*tokens: int, start: CacheReads = NOTHING) -> list[int]:
    """The drops that are reported after each reply."""
    reported = []
    watch = start
    for read in tokens:
        watch = watch_after_reply(watch, Usage(10, read, 100, 0, 50))
        reported.append(watch.dropped)
    return reported


@pytest.mark.parametrize(
    ("before", "after", "dropped"),
    [
        (30_000, 27_999, 2_001),
        (30_000, 28_000, 0),
        (100_000, 95_000, 0),
        (100_000, 94_999, 5_001),
        (1_500, 0, 0),
        (30_000, 31_000, 0),
    ],
)
def test_a_drop_is_reported_when_it_is_more_than_5_percent_and_2000_tokens(before: int, after: int, dropped: int) -> None:
    assert reads(before, after) == [0, dropped]


def test_the_baseline_is_reset_after_a_drop() -> None:
    assert reads(50_000, 10_000, 10_100, 60_000, 0) == [0, 40_000, 0, 0, 60_000]


def test_a_reply_without_usage_says_nothing() -> None:
    assert watch_after_reply(CacheReads(50_000, expected=True, dropped=7), Usage()) == CacheReads(50_000, expected=True)


@pytest.mark.parametrize(
    ("edit", "by", "moment"),
    [
        (Fold("1.0", "9.0", (Put("summary", Text("all")),)), "summarize", "before_call"),
        (Mask(("3.0",), "[gone]"), "clear_idle", "before_call"),
        (Mask(("3.0",), "[gone]"), "anybody", "idle"),
        (Mask(("3.0",), "", "cached"), "clear_cached", "before_call"),
        (Mask(("3.0",), "[gone]"), "clear_dead", "before_call"),
    ],
)
@pytest.mark.states("CC-68")
def test_a_fold_an_idle_mask_or_a_cached_mask_silences_the_monitor_for_exactly_the_next_drop(edit: Edit, by: str, moment: str) -> None:
    expected = watch_after_edit(CacheReads(50_000), ViewEdited((edit,), by=by, moment=moment))
    assert expected == CacheReads(50_000, expected=True)
    assert reads(50_100, 20_000, 20_100, 1_000, start=expected) == [0, 0, 0, 19_100]


@pytest.mark.states("CC-68")
def test_other_edits_silence_nothing() -> None:
    for edit in (Mask(("3.0",), "[gone]"), Insert((Put("reminder", Text("mind")),))):
        assert watch_after_edit(CacheReads(50_000), ViewEdited((edit,), by="anybody", moment="before_call")) == CacheReads(50_000)


def test_a_policy_that_edits_nothing_notifies_the_user_once() -> None:
    session = work(Profile("test", (WatchCache(),), lambda each: palimpsest_budget(each.window, each.reply)))
    say(session, "please")
    for read in (40_000, 12_500):
        reply(session, Text("done", "assistant"), usage=Usage(10, read, 500, 0, 50))
    plan = WatchCache().plan(session.situation("after_call"))
    assert proposal_of(plan).notices == (
        "12,500 tokens were read from the cache, 27,500 fewer than in the previous call, and no edit explains it",
    )
    reply(session, Text("done", "assistant"), usage=Usage(10, 13_000, 500, 0, 50))
    assert WatchCache().plan(session.situation("after_call")) == ()
    assert WatchCache().plan(situation((), cache=Cache())) == ()
