"""Observed values become statements: a head once in an epoch, then only what changed, and again what left the view."""

import pytest
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st
from workplace import reply, say, work

from palimpsest.agent.session import Session
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ContextStated, Statement, ViewEdited
from palimpsest.core.items import Fold, Into, Keep, Mask, Put, Text, Unmask, text_of
from palimpsest.core.view_projection import project
from palimpsest.policies.named import profile
from palimpsest.sources.source import (
    Fields,
    Place,
    Source,
    SourceSet,
    World,
    differing,
    observe,
    reconcile,
    recorded,
    recorded_fields,
    stated_value,
)


def source(key: str, place: Place = "start", *, removal: str = "", covered_by: str = "") -> Source:
    """A source whose value is one word, stated as `key=word`."""

    def change(previous: Fields | None, fields: Fields) -> str:
        return f"{key}:{'?' if previous is None else previous['v']}->{fields['v']}"

    def baseline(fields: Fields) -> str:
        return f"{key}={fields['v']}"

    return Source(key, lambda _: None, baseline, change, role="system", place=place, removal=removal, covered_by=covered_by)


SET = SourceSet((source("base", "head"), source("rules", "head"), source("last", "end"), source("date"), source("mode", removal="no mode")))


def tell(session: Session, sources: SourceSet = SET, /, **values: str | None) -> list[str]:
    """What is stated when these values are observed, the head in brackets."""
    observed: dict[str, Fields | None] = {key: None if value is None else {"v": value} for key, value in values.items()}
    body = reconcile(session.log.view, sources, observed)
    if body is None:
        return []
    session.log.append(body)
    return [f"[{each.text}]" for each in body.head or ()] + [each.text for each in body.items]


def started(**values: str | None) -> Session:
    session = work(profile("none"))
    tell(session, **{"base": "b", "rules": "r", "date": "mon", "mode": None, "last": None, **values})
    return session


def fold(session: Session, *kept: str, first: int = 0, last: int = -1) -> None:
    items = session.log.view.items
    into: Into = (Put("summary", Text("what happened")), *(Keep(each) for each in kept))
    session.log.append(ViewEdited((Fold(items[first].id, items[last].id, into),), by="test"))


def head(session: Session) -> list[str]:
    return [text_of(item.content) for item in session.log.view.head]


def test_an_epoch_starts_with_a_head_and_then_the_sources_of_the_start_and_of_the_end() -> None:
    session = work(profile("none"))

    assert tell(session, base="b", rules="r", last="l", date="mon", mode="plan") == [
        "[base=b]",
        "[rules=r]",
        "date=mon",
        "mode=plan",
        "last=l",
    ]
    assert (head(session), session.log.view.epoch) == (["base=b", "rules=r"], 1)
    assert session.log.view.facts["date"].value == '{"v":"mon"}'


@pytest.mark.states("CX-10")
def test_a_turn_without_changes_states_nothing_and_a_change_states_only_itself() -> None:
    session = started(mode="plan")

    assert tell(session, base="b", rules="r", date="mon", mode="plan", last=None) == []
    assert tell(session, base="b", rules="r", date="tue", mode="plan", last=None) == ["date:mon->tue"]
    assert tell(session, base="b", rules="r", date="tue", mode="plan", last=None) == []


def test_a_changed_source_of_the_head_is_stated_at_the_end_and_the_head_stays() -> None:
    session = started()

    assert tell(session, base="b", rules="new") == ["rules:r->new"]
    assert (head(session), session.log.view.epoch) == (["base=b", "rules=r"], 1)
    assert stated_value(session.log.view, "rules") == {"v": "new"}


def test_a_change_states_the_difference_to_the_baseline_that_is_still_visible() -> None:
    session = started()
    tell(session, date="tue")

    assert tell(session, date="wed") == ["date:mon->wed"]
    assert tell(session, date="mon") == ["date:?->mon"]
    assert tell(session, date="mon") == []


@pytest.mark.states("CX-12")
def test_a_fact_whose_item_was_masked_is_stated_again_in_full() -> None:
    session = started(mode="plan")
    session.log.append(ViewEdited((Mask((session.log.view.facts["mode"].id,), "gone"),), by="test"))

    assert tell(session, date="mon", mode="plan") == ["mode=plan"]
    assert tell(session, date="mon", mode="plan") == []


@pytest.mark.states("CX-12")
def test_a_fact_whose_item_was_folded_is_stated_again_in_full() -> None:
    session = started(mode="plan")
    say(session, "hello")
    fold(session)

    assert tell(session, base="b", rules="r", date="mon", mode="plan") == ["date=mon", "mode=plan"]


def test_a_change_without_its_baseline_is_stated_again_in_full() -> None:
    session = started(mode="plan")
    tell(session, mode="build")
    changed = session.log.view.facts["mode+"].id
    say(session, "hello")
    fold(session, changed)

    assert tell(session, mode="build") == ["mode=build"]
    assert tell(session, mode="plan") == ["mode:build->plan"]


def test_a_baseline_without_its_newest_change_is_followed_by_the_change_again() -> None:
    session = started(mode="plan")
    base = session.log.view.facts["mode"].id
    tell(session, mode="build")
    say(session, "hello")
    fold(session, base)

    assert tell(session, mode="build") == ["mode:plan->build"]


def test_an_unmasked_statement_counts_again() -> None:
    session = started(mode="plan")
    stated = session.log.view.facts["mode"].id
    session.log.append(ViewEdited((Mask((stated,)),), by="test"))
    session.log.append(ViewEdited((Unmask((stated,)),), by="test"))

    assert tell(session, mode="plan") == []


def test_a_value_that_is_gone_is_stated_once_and_a_source_without_such_a_text_stays_silent() -> None:
    session = started(mode="plan")

    assert tell(session, mode=None, date=None) == ["no mode"]
    assert tell(session, mode=None, date=None) == []
    assert stated_value(session.log.view, "mode") is None
    assert tell(session, mode="build") == ["mode:plan->build"]


def test_a_source_that_was_not_observed_is_left_as_it_is() -> None:
    session = started(mode="plan")

    assert tell(session, date="mon") == []
    assert stated_value(session.log.view, "mode") == {"v": "plan"}


def test_a_fold_starts_an_epoch_if_the_head_is_no_longer_current() -> None:
    session = started()
    tell(session, base="b", rules="new")
    say(session, "hello")
    fold(session)

    assert tell(session, base="b", rules="new", date="mon") == ["[base=b]", "[rules=new]", "date=mon"]
    assert session.log.view.epoch == 2
    assert tell(session, base="b", rules="new", date="mon") == []


def test_a_fold_under_a_current_head_starts_no_epoch() -> None:
    session = started()
    say(session, "hello")
    fold(session)

    assert tell(session, base="b", rules="r", date="mon") == ["date=mon"]
    assert session.log.view.epoch == 1


def test_a_head_that_was_sent_after_the_fold_is_not_replaced_any_more() -> None:
    session = started()
    say(session, "hello")
    fold(session)
    tell(session, base="b", rules="r", date="mon")
    reply(session, Text("done", "assistant"))

    assert tell(session, base="b", rules="new", date="mon") == ["rules:r->new"]
    assert session.log.view.epoch == 1


def test_a_source_set_can_keep_its_head_over_folds_and_has_its_own_order_after_them() -> None:
    kept = SourceSet((source("base", "head"), source("date"), source("mode")), after_fold=("mode", "date"), renews_head=False)
    session = work(profile("none"))

    assert tell(session, kept, base="b", date="mon", mode="plan") == ["[base=b]", "date=mon", "mode=plan"]
    say(session, "hello")
    fold(session)
    assert tell(session, kept, base="c", date="mon", mode="plan") == ["base:b->c", "mode=plan", "date=mon"]


def test_a_head_of_other_sources_is_replaced() -> None:
    session = work(profile("none"))
    session.log.append(ContextStated(head=(Statement("summariser", "of another program", "system"),)))

    assert tell(session, base="b", rules="r") == ["[base=b]", "[rules=r]"]
    assert session.log.view.epoch == 2


def test_a_source_is_silent_while_another_one_says_all_of_it() -> None:
    sources = SourceSet((source("base", "head"), source("tone", covered_by="base")))
    session = work(profile("none"))

    assert tell(session, sources, base="b", tone="b") == ["[base=b]"]
    assert tell(session, sources, base="b", tone="c") == ["tone=c"]
    assert tell(session, sources, base="c", tone="c") == ["base:b->c"]


def test_a_source_that_fails_is_left_out_of_the_observation() -> None:
    def fails(_: World) -> Fields | None:
        raise BadInput("cannot be read")

    one = Source("one", lambda _: {"v": "1"}, str)
    empty = Source("empty", lambda _: {}, str)
    world: World = None  # type: ignore[assignment]  # these sources do not look at it
    assert observe(SourceSet((one, Source("two", fails, str), empty)), world) == {"one": {"v": "1"}, "empty": None}


def test_a_long_field_is_recorded_by_its_digest_and_compared_by_it() -> None:
    fields = {"short": "x" * 120, "long": "x" * 121}
    value = recorded_fields(recorded(fields)) or {}

    assert value == {"short": "x" * 120, "long": "sha256:79072a47bfaa54e6057a9ee21e0dea64"}
    assert differing(value, fields) == frozenset()
    assert differing(value, {"short": "x", "other": ""}) == {"short", "long", "other"}
    assert recorded_fields("Monday") is None


KEYS = ("base", "rules", "date", "mode", "last")
STEP = st.one_of(
    st.fixed_dictionaries({}, optional={key: st.sampled_from(("a", "b", None) if key == "mode" else ("a", "b")) for key in KEYS}),
    st.sampled_from(("say", "reply", "fold", "mask")),
)


@settings(max_examples=150)
@given(st.lists(STEP, max_size=14))
def test_the_head_changes_exactly_with_the_epoch_and_the_view_is_current_after_each_step(steps: list[dict[str, str | None] | str]) -> None:
    session = work(profile("none"))
    now: dict[str, str | None] = {"base": "a", "rules": "a", "date": "a", "mode": None, "last": "a"}
    heads: list[list[str]] = []
    for step in ({}, *steps):
        if isinstance(step, dict):
            now |= step
            tell(session, **now)
            assert tell(session, **now) == []
            assert {key: stated_value(session.log.view, key) for key in KEYS} == {
                key: None if value is None else {"v": value} for key, value in now.items()
            }
        elif step == "say":
            say(session, "hello")
        elif step == "reply":
            reply(session, Text("done", "assistant"))
        elif step == "fold" and session.log.view.items:
            fold(session, last=len(session.log.view.items) // 2)
        elif step == "mask" and session.log.view.items:
            session.log.append(ViewEdited((Mask((session.log.view.items[0].id,), "gone"),), by="test"))
        if not heads or heads[-1] != head(session):
            heads.append(head(session))
    events = list(session.log.reader.run(0, session.log.tip))
    assert len(heads) == session.log.view.epoch
    assert project(events) == project(events[len(events) // 2 :], project(events[: len(events) // 2])) == session.log.view


@every_case("name", ["palimpsest", "claude-code", "claude-code-2.1.325", "codex", "codex-0.166", "opencode", "opencode-1.18", "classroom"])
def test_the_keys_of_a_profile_are_unique(name: str) -> None:
    keys = [each.key for each in profile(name).sources.sources]
    assert len(keys) == len(set(keys)) >= 4
