from collections.abc import Iterable
from dataclasses import replace

import pytest

from pal.replay.simulation import (
    SUMMARY_STATISTICS,
    SummaryProvider,
    SummaryStatistics,
    compose_summary,
    is_sampled,
    reply_to,
    sampled_names,
    select_lines,
    simulated_encoder,
    summary_statistics_of,
)
from palimpsest.agent.calls import compact
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.core.events import ModelReplied, SessionOpened, TurnEnded, Usage, UserSaid
from palimpsest.core.items import Item, Opaque, Text, text_of
from palimpsest.core.plans import Evidence, complete
from palimpsest.core.tokens import palimpsest_size
from palimpsest.core.view import View
from palimpsest.policies.named import PROFILES, profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.models import card
from palimpsest.wire.request import Params

CLAUDE, CODEX, OPENCODE = SUMMARY_STATISTICS["claude-code"], SUMMARY_STATISTICS["codex"], SUMMARY_STATISTICS["opencode"]
NAMES = [f"name_{number}" for number in range(20_000)]


def summary_text(marker: str, statistics: SummaryStatistics, evidence: Evidence, messages: Iterable[str], factor: float) -> str:
    """A summary of exactly this evidence and these messages, without a session."""
    token_limit = round(statistics.kept / factor)
    lines, size = select_lines(marker, statistics, evidence, messages, token_limit)
    return compose_summary(marker, lines, token_limit - size)


def test_summaries_are_as_long_and_remember_as_much_as_was_seen() -> None:
    assert SUMMARY_STATISTICS["claude-code"] == SummaryStatistics(6_000, 4_100, 0.95, 0.47, 0.46, messages=0.78)
    assert SUMMARY_STATISTICS["codex"] == SummaryStatistics(2_000, 2_000, 0.89, 0.18, 0.23)
    assert SUMMARY_STATISTICS["opencode"] == SummaryStatistics(1_200, 1_000, 0.44, 0.05, 0.13)


def test_every_profile_but_ours_and_none_imitates_a_program() -> None:
    assert {name for name in PROFILES if summary_statistics_of(name) is None} == {
        "palimpsest",
        "lossless",
        "gateway",
        "gateway-thrifty",
        "none",
    }
    assert summary_statistics_of("claude-code-2.1.325") is CLAUDE


@pytest.mark.parametrize("share", [0.0, 0.05, 0.46, 0.95, 1.0])
def test_a_fixed_draw_lets_that_share_of_names_survive(share: float) -> None:
    assert sum(is_sampled(name, share) for name in NAMES) / len(NAMES) == pytest.approx(share, abs=0.01)


def test_what_survives_a_small_share_survives_a_larger_one() -> None:
    assert {name for name in NAMES if is_sampled(name, 0.1)} < {name for name in NAMES if is_sampled(name, 0.5)}


def test_edited_and_read_paths_and_all_other_names_have_shares_of_their_own() -> None:
    evidence = Evidence(edited=tuple(f"/repo/{name}.py" for name in NAMES), read=tuple(f"/repo/{name}.md" for name in NAMES))
    for form, share in ((".py", 0.89), (".md", 0.18), (".c", 0.23)):
        names = [f"repo/{name}{form}" for name in NAMES]
        assert len(sampled_names(names, CODEX, evidence)) / len(names) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("statistics", [CLAUDE, CODEX, OPENCODE])
@pytest.mark.parametrize("factor", [1.0, 1.33])
def test_a_summary_has_the_tokens_that_are_kept(statistics: SummaryStatistics, factor: float) -> None:
    evidence = Evidence(edited=tuple(f"src/orders/{name}.py" for name in NAMES[:300]), names=tuple(NAMES[:400]))
    for reported in (evidence, Evidence()):
        text = summary_text("summary 1", statistics, reported, ["Please do it."], factor)
        assert palimpsest_size(Text(text)) * factor == pytest.approx(statistics.kept, rel=0.05)
        assert "summary 1" in text


def test_a_summary_repeats_messages_only_where_the_program_does() -> None:
    messages = [f"Message {number}." for number in range(100)]

    assert sum(message in summary_text("s", CLAUDE, Evidence(), messages, 1.0) for message in messages) > 60
    assert not any(message in summary_text("s", OPENCODE, Evidence(), messages, 1.0) for message in messages)


def test_a_provider_that_compacts_by_itself_answers_with_an_item_of_the_same_size() -> None:
    gpt = card("gpt-5.5")
    trigger = Item("9.2", "assistant", Opaque("openai", gpt.name, '{"type":"compaction_trigger"}'))
    for view, params in ((View(items=(trigger,)), Params()), (View(), Params(endpoint="compact"))):
        (part,) = reply_to(view, params, "twin", gpt, Usage(output=2_000), size=2_000).parts
        assert isinstance(part, Opaque)
        assert part.text_fallback == "twin"
        assert palimpsest_size(part) == pytest.approx(2_000, rel=0.01)

    assert reply_to(View(), Params(), "words", gpt, Usage(), size=2_000).parts == (Text("words", "assistant"),)


def test_an_open_task_is_sampled_like_any_other_name() -> None:
    tasks = tuple(f"Write chapter {number} of the handbook." for number in range(100))
    for statistics in (CLAUDE, OPENCODE):
        text = summary_text("s", statistics, Evidence(tasks=tasks), (), 1.0)
        assert [task for task in tasks if task in text] == [task for task in tasks if is_sampled(task, statistics.others)]
        assert 5 < text.count("chapter") < 60


CLAUDE_PROFILE = "claude-code-2.1.325"
WISHES = [f"Please keep message number {number} exactly as it is." for number in range(40)]


def _opened() -> Session:
    environment = Environment(MemorySessions(), MemoryBlobs(), FixedClock(1_000, 1_000), offload=inline, retries=NO_RETRIES)
    session = Session.create(SessionOpened("x"), profile(CLAUDE_PROFILE), card("claude-sonnet-4-5", window=200_000), environment)
    session.environment = replace(environment, provider=SummaryProvider(session, 1.3).provider, encoder=simulated_encoder(session))
    return session


def _folded(session: Session, wishes: list[str]) -> list[str]:
    """The wishes that show once they were said, worked on and folded."""
    for wish in wishes:
        for body in (UserSaid((Text(wish),)), ModelReplied((Text("I work on it. " * 400, "assistant"),)), TurnEnded()):
            session.log.append(body)
    assert complete(compact(session)).folded
    shown = "\n".join(text_of(item.content) for item in session.log.view.items)
    return [wish for wish in WISHES if wish in shown]


def test_a_summary_repeats_what_the_previous_one_contained() -> None:
    survivors = [wish for wish in WISHES if is_sampled(wish, CLAUDE.messages)]
    assert 25 < len(survivors) < 35
    with _opened() as session:
        for said in (10, 20, 30):
            assert _folded(session, WISHES[said - 10 : said]) == [wish for wish in WISHES[:said] if wish in survivors]


def test_the_summary_of_a_session_contains_nothing_of_another_session() -> None:
    with _opened() as first, _opened() as second:
        _folded(first, WISHES[:10])
        assert set(_folded(second, WISHES[10:20])) <= set(WISHES[10:20])
