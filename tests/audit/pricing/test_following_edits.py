"""State that follows a view from edit to edit equals state that is computed from the view alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from working_days import MODEL, PROFILE, Step, steps, take_back, tell
from workplace import say, work

from palimpsest.audit.cache import Block, Prompt, cumulative_tokens
from palimpsest.audit.loss import survival_of
from palimpsest.audit.sizes import Metering, claude_size
from palimpsest.audit.uses import UsesProjection
from palimpsest.audit.visible import VisibleText, texts_of
from palimpsest.core.events import CallStarted, EditUndone, Event, ModelReplied, ModelSwitched, ToolReturned, Usage, ViewEdited
from palimpsest.core.items import Content, Item, Text, ToolCall, ToolResult, pending_calls, seq_of, shared_prefix_length, unpaired
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.view import View
from palimpsest.core.view_projection import ViewProjection
from palimpsest.wire.models import card


class CountingViews(ViewProjection):
    """The views of a session, and how many items were copied for those who asked for them."""

    copied = 0

    @property
    def view(self) -> View:
        self.copied += len(self.items)
        return super().view

    @property
    def items_before(self) -> tuple[Item, ...]:
        self.copied += self.count_before
        return super().items_before


def followed(sampled_steps: list[Step]) -> list[tuple[Event, View]]:
    """A working day, event by event, with the view after each."""
    session = work(PROFILE, MODEL)
    tell(session, sampled_steps, take_back)
    projection = ViewProjection(reader=session.log.reader)
    seen = []
    for event in session.log.events():
        projection.take(event)
        seen.append((event, projection.view))
    return seen[1:]


@settings(max_examples=80)
@given(steps)
def test_uses_that_followed_every_edit_continue_like_restored_ones(sampled_steps: list[Step]) -> None:
    session = work(PROFILE, MODEL)
    tell(session, sampled_steps, take_back)
    views = ViewProjection(reader=session.log.reader)
    live = UsesProjection(views)
    for event in session.log.events():
        restored = UsesProjection(views)
        restored.restore(live.snapshot())
        for each in (views, live, restored):
            if each.watches is None or type(event.body) in each.watches:
                each.take(event)
        assert restored.snapshot() == live.snapshot()


@pytest.mark.parametrize("model", [MODEL, "gpt-5.5"])
@pytest.mark.parametrize("is_imported", [False, True])
def test_following_a_session_copies_its_items_once_and_not_at_every_reply(model: str, *, is_imported: bool) -> None:
    rounds = 200
    session = work(PROFILE, model)
    say(session, "go")
    for number in range(rounds):
        started = None if is_imported else session.log.append(CallStarted(model, session.card.wire, estimate=9)).seq
        usage = Usage(input=2, output=9, cache_read=9_000 + 90 * number, cache_write=90)
        session.log.append(ModelReplied((ToolCall(f"c{number}", "Read", "{}"),), call=started, model=model, usage=usage))
        session.log.append(ToolReturned(ToolResult(f"c{number}", (Text("some words of a file"),)), tool="Read"))
    views = CountingViews()
    projections = session.derived.attach(views)
    for event in session.log.events():
        for each in (views, *projections):
            if each.watches is None or type(event.body) in each.watches:
                each.take(event)
    assert len(views.items) == 2 * rounds + 1
    assert views.copied <= len(views.items)


@pytest.mark.parametrize("models", [("claude-sonnet-4-5-20250929",), ("claude-sonnet-4-5", "claude-opus-4-5")])
def test_each_item_is_sized_once_whatever_name_a_request_gives_its_model(models: tuple[str, ...]) -> None:
    rounds = 100
    session = work(PROFILE, models[0])
    say(session, "go")
    for number in range(rounds):
        model = models[number % len(models)]
        if len(models) > 1:
            session.log.append(ModelSwitched(model))
        started = session.log.append(CallStarted(model, session.card.wire, estimate=9)).seq
        session.log.append(
            ModelReplied((ToolCall(f"c{number}", "Read", "{}"),), call=started, model=model, usage=Usage(input=99, output=9))
        )
        session.log.append(ToolReturned(ToolResult(f"c{number}", (Text("some words of a file"),)), tool="Read"))
    sized: list[object] = []

    def size(content: Content) -> int:
        sized.append(content)
        return claude_size(content)

    views = ViewProjection()
    metering = Metering(views, lambda name: card(name or models[0]), "claude-code")
    metering.counter = TokenCounter(size)
    for event in session.log.events():
        views.take(event)
        if type(event.body) in metering.watches:
            metering.take(event)
        metering.raw_before()
    assert 2 * rounds <= len(sized) <= 2 * rounds + 2


@settings(max_examples=30)
@given(steps)
def test_the_running_size_of_a_view_is_that_of_a_new_count(sampled_steps: list[Step]) -> None:
    session = work(PROFILE, MODEL)
    tell(session, sampled_steps, take_back)
    views = ViewProjection(reader=session.log.reader)
    metering = Metering(views, lambda _: session.card, "claude-code")
    for event in session.log.events():
        before = views.view
        views.take(event)
        if not isinstance(event.body, ViewEdited | EditUndone):
            new = TokenCounter(claude_size, drops_cached=session.card.cache_edits)
            assert metering.raw_before() == new.raw(View(views.head_before, before.items))


@settings(max_examples=80)
@given(steps)
def test_a_counter_that_followed_every_edit_counts_as_a_new_one(sampled_steps: list[Step]) -> None:
    counter, before = TokenCounter(claude_size), View()
    for _, view in followed(sampled_steps):
        for each in (view, before, view):
            new = TokenCounter(claude_size)
            assert (counter.raw(each), counter.sizes_of(each)) == (new.raw(each), new.sizes_of(each))
        before = view


@settings(max_examples=60)
@given(steps, st.lists(st.sampled_from(["src/f1.py", "f2.py", "name_1", "other_name_3", "17", "/repo/src/f3.py", "no where"]), max_size=4))
def test_what_shows_in_many_texts_is_what_shows_in_one(sampled_steps: list[Step], looked_for: list[str]) -> None:
    for event, view in followed(sampled_steps)[::7]:
        texts = [*texts_of(view.head), *texts_of(view.items)] * 9
        many, one = VisibleText(texts), VisibleText(["\n".join(texts)])
        assert [many.shows_path(each) for each in looked_for] == [one.shows_path(each) for each in looked_for]
        assert (
            many.missing_tokens(set(looked_for))
            == one.missing_tokens(set(looked_for))
            == {each for each in looked_for if {each} == one.missing_tokens({each})}
        )
        assert survival_of([event], many) == survival_of([event], "\n".join(texts))


@settings(max_examples=80)
@given(steps)
def test_pending_calls_are_the_unpaired_ones_of_the_newest_reply(sampled_steps: list[Step]) -> None:
    for _, view in followed(sampled_steps):
        items, alone = view.items, unpaired(view.items)
        spoken = [item for item in items if item.kind in {"user", "assistant", "thinking", "call"}]
        newest = seq_of(spoken[-1].id) if spoken and spoken[-1].kind != "user" else None
        calls = [item for item in items if item.id in alone and isinstance(item.content, ToolCall)]
        assert pending_calls(items) == pending_calls(items, alone) == tuple(item for item in calls if seq_of(item.id) == newest)


def test_a_prompt_that_was_changed_in_its_middle_equals_one_built_from_scratch() -> None:
    blocks: list[Block] = [(f"b{number}", number) for number in range(9)]
    known = Prompt.of(blocks)
    for changed in ([*blocks[:4], ("other", 7), *blocks[5:]], blocks[:3], [("first", 1), *blocks], blocks, []):
        assert Prompt.of(changed, known) == Prompt.of(changed)


def test_rows_are_the_same_as_long_as_they_hold_the_very_same_things() -> None:
    one, other, equal = Text("a"), Text("b"), Text("a")
    assert [shared_prefix_length((one, other), row) for row in ((), (one,), (one, other, one), (equal, other), (other, one))] == [
        0,
        1,
        2,
        0,
        0,
    ]


@settings(max_examples=40)
@given(steps)
def test_sums_are_those_up_to_each_item(sampled_steps: list[Step]) -> None:
    view = followed([*sampled_steps, (5, 0, 0)])[-1][1]
    counter, unscaled = TokenCounter(claude_size, 1.3), TokenCounter(claude_size)
    total, sums = 0, {}
    for number, item in enumerate(view.head):
        total += unscaled.item(item)
        sums[f"head:{number}"] = round(total * 1.3)
    for item in view.items:
        total += unscaled.item(item)
        sums[item.id] = round(total * 1.3)
    assert cumulative_tokens(view.head, view.items, counter) == sums
    # The sum up to the last item is the total of the view, however many small items it has.
    assert [*sums.values()][-1:] == [counter.total(view)][: len(sums)]
