"""A fold that is computed from the log: when it happens, what stays and in which order."""

import dataclasses
import re

import pytest
from msgspec.structs import replace
from workplace import offline, online, reply, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.audit.fold_texts import EVIDENCE, MESSAGES
from palimpsest.core.errors import TooFull
from palimpsest.core.events import CallStarted, ContextStated, NotesTaken, Statement, ToolReturned, Usage, ViewEdited
from palimpsest.core.items import Fold, Item, Keep, Put, Text, ToolCall, ToolResult, text_of
from palimpsest.core.plans import Cache, CachedPrefix, Evidence, Situation, UserMessage
from palimpsest.core.tokens import TokenSizes
from palimpsest.core.view import View
from palimpsest.policies.fold import FoldFromLog, model_free_fallback
from palimpsest.policies.fold_parts import Bounds, fallback_levels, older_messages, used_names_part
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.models import ModelCard, card, resized

CLAUDE = card("claude-sonnet-4-5")
# In tests a token is a character, so that sums can be done by hand.
LETTERS = TokenSizes(lambda content: len(text_of(content)))


def budget_of(model: ModelCard) -> Situation:
    """An empty situation with the budget of our profile."""
    budget = profile("palimpsest").budget(model)
    return Situation(View(), budget, model, "before_call", LETTERS)


def busy(fold: FoldFromLog | None = None, *, model: str = "claude-sonnet-4-5", rounds: int = 30) -> Session:
    """A request, and many files read."""
    ours = profile("palimpsest")
    session = work(Profile("ours", (fold,), ours.budget, strictness="full") if fold is not None else ours, model)
    say(session, "read all of it, and never touch a.py")
    for number in range(rounds):
        use(session, f"c{number}", "Read", f'{{"file_path":"f{number}.py"}}', f"value_{number} = 1\n" * 400)
    return session


def folded(session: Session, moment: str = "asked") -> ViewEdited:
    ran = offline(session, run_policies(session, "asked" if moment == "asked" else "before_call"))
    body = ran.edited[0].body
    assert isinstance(body, ViewEdited)
    return body


@pytest.mark.parametrize(("window", "level"), [(200_000, 160_000), (100_000, 80_000), (1_000_000, 960_000), (8_000, 6_400)])
@pytest.mark.states("PA-10")
def test_a_fold_happens_at_the_latest_a_fifth_or_40000_tokens_before_the_end_of_the_window(window: int, level: int) -> None:
    at = budget_of(replace(CLAUDE, window=window))
    item = Item("1.0", "user", Text("u"))
    fold = FoldFromLog(shrink=1_000)
    view = View(items=(item,))
    assert fold.due(_situation(at, view, level - 1)) == ""
    assert fold.due(_situation(at, view, level)) == f"{level:,} tokens are used, and from {level:,} on a fold is due"


def _situation(at: Situation, view: View, used: int) -> Situation:
    return Situation(view, at.budget, at.card, at.moment, at.tokens, used=used)


def worked_example(rent: float, *, warm: bool = True, used: int = 110_000) -> Situation:
    """The numbers of section 4: a head of 20k, cached, the user's words 2k, 108k of 110k cached."""
    head = (Item("0.0", "context", Text("h" * 20_000), "base"),)
    items = (Item("1.0", "user", Text("u" * 2_000)), Item("2.0", "assistant", Text("a" * (used - 22_000), "assistant")))
    prefixes = (CachedPrefix("0.0", 20_000, 0, 300_000), CachedPrefix("2.0", 108_000, 0, 300_000)) if warm else ()
    at = budget_of(CLAUDE)
    evidence = Evidence(user_messages=(UserMessage("1.0", 0, "u" * 80, 2_000),))
    return Situation(
        View(head, items),
        at.budget,
        CLAUDE,
        "before_call",
        LETTERS,
        used=used,
        now=1_000,
        cache=Cache(prefixes),
        rent=rent,
        evidence=evidence,
    )


@pytest.mark.states("PA-10")
def test_a_fold_happens_earlier_when_its_rent_covers_twice_its_price_and_it_halves_the_view() -> None:
    fold = FoldFromLog()
    assert fold.due(worked_example(53_300)) == ""
    assert fold.due(worked_example(53_500)) == "waiting has cost 53,500 tokens, and a fold costs 26,700"
    assert fold.due(worked_example(10**6, used=100_000)) == ""
    assert fold.due(worked_example(0, warm=False)) == "waiting has cost 0 tokens, and a fold costs -74,500"


@pytest.mark.states("PA-10")
def test_an_early_fold_needs_a_large_view_or_one_of_which_nothing_is_cached() -> None:
    fold = FoldFromLog(early_at=120_000, cold_at=100_000)
    assert fold.due(worked_example(10**6)) == ""
    assert fold.due(worked_example(10**6, used=119_999)) == ""
    assert fold.due(worked_example(10**6, used=120_000)).startswith("waiting has cost 1,000,000 tokens")
    assert fold.due(worked_example(0, warm=False)) == "waiting has cost 0 tokens, and a fold costs -74,500"
    assert FoldFromLog(early_at=120_000, cold_at=110_001).due(worked_example(0, warm=False)) == ""


@pytest.mark.states("PA-10")
def test_it_also_happens_when_asked_and_on_overflow_and_not_by_itself_when_that_is_off() -> None:
    off = FoldFromLog(auto=False)
    session = busy(off)
    assert offline(session, run_policies(session, "before_call")).events == ()
    assert offline(session, run_policies(session, "overflow")).folded
    session = busy(off)
    assert offline(session, run_policies(session, "asked", asked="the parser")).folded


def lively(thrift: str = "balanced") -> Session:
    """A session in which every part of a fold has something to show."""
    session = work(profile("palimpsest", {"PAL_NARRATIVE": "asked", "PAL_THRIFT": thrift}))
    session.log.append(ContextStated(head=(Statement("base", "You are a careful programmer.", "system"),)))
    session.log.append(ContextStated((Statement("mode", "mode: plan"), Statement("skills", "skill: release"))))
    for number in range(40):
        say(session, f"message {number}: never touch file_{number}.py, {'and look around well ' * 150}")
        use(session, f"r{number}", "Read", f'{{"file_path":"src/part_{number}.py"}}', f"def helper_{number}_x(): ...\n" * 60)
        use(session, f"e{number}", "Edit", f'{{"file_path":"src/made_{number}.py","old_string":"a","new_string":"b"}}', "ok")
        use(session, f"t{number}", "Bash", f'{{"command":"pytest -q tests/test_{number}.py"}}', "1 passed", exit_code=number % 2)
    session.log.append(ContextStated((Statement("mode", "mode: build"),)))
    edited = next(item.id for item in session.log.view.items if "made_7.py" in text_of(item.content))
    session.log.append(NotesTaken(f"## State\nsrc/made_7.py is finished [{edited}]", covers=session.log.tip))
    for number in range(20):
        reply(session, Text(f"now helper_{number}_x of src/part_{number}.py", "assistant"))
        use(session, f"l{number}", "Read", '{"file_path":"src/late.py"}', f"late_{number} = 1\n" * 120)
    say(session, "go on with it")
    return session


def part_of(item: Item, kept: list[str]) -> str:
    if item.kind == "user" or (item.kind == "assistant" and item.id in kept):
        return "messages"
    if item.kind == "summary":
        return "messages" if item.source.startswith(("message", "older")) else item.source
    return "state" if item.kind == "context" else "results" if item.id in kept else "tail"


@pytest.mark.parametrize(("thrift", "results"), [("careful", 15_000 + 8_000), ("balanced", 10_000 + 5_000)])
@pytest.mark.states("PA-11")
def test_the_parts_stand_in_their_order_each_within_its_bound(thrift: str, results: int) -> None:
    session = lively(thrift)
    fold = folded(session).edits[0]
    assert isinstance(fold, Fold)
    kept = [piece.id for piece in fold.into if isinstance(piece, Keep)]
    named = [part_of(item, kept) for item in session.log.view.items]
    order = list(dict.fromkeys(named))
    assert order == ["messages", "evidence", "narrative", "state", "results", "tail"]
    first_of_tail = named.index("tail")
    tail = session.log.view.items[first_of_tail:]
    folded_part = session.log.view.items[:first_of_tail]
    sizes = {
        part: sum(session.counter.item(item) for item, name in zip(folded_part, named, strict=False) if name == part) for part in order[:-1]
    }
    verbatim = sum(session.counter.item(item) for item in folded_part if item.kind == "user")
    assert 17_000 < verbatim <= 20_000
    assert 1_000 < sizes["evidence"] <= 4_000
    assert 0 < sizes["narrative"] <= 1_600
    assert results // 4 < sizes["results"] <= results
    assert 2_500 < sum(session.counter.item(item) for item in tail) <= 5_000
    assert session.log.view.items[-1].id == tail[-1].id


def test_names_that_the_model_used_are_listed_newest_first_only_where_a_bound_is_set() -> None:
    now = dataclasses.replace(
        lively().situation("asked"), evidence=Evidence(names=("oldest_name", *(f"name_{number}" for number in range(40))))
    )
    (listed,) = used_names_part(now, Bounds(names=100))
    assert text_of(listed.content).startswith("[Names used lately, newest first]\nname_39, name_38, name_37")
    assert 60 < now.tokens.content(listed.content) <= 100
    assert text_of(used_names_part(now, Bounds(names=2_400))[0].content).endswith("name_1, name_0, oldest_name")
    assert used_names_part(now, Bounds()) == ()


@pytest.mark.states("PA-11")
def test_all_bounds_shrink_with_the_window() -> None:
    assert dataclasses.astuple(Bounds(names=2_400).scaled(50_000))[:7] == (5_000, 5_000, 1_500, 1_000, 300, 600, 400)
    assert Bounds().scaled(50_000) == Bounds(5_000, 5_000, 1_500, 1_000, 300, 0, 400, results=3_750, calls=1_250, tail=3_750)
    assert Bounds().scaled(1_000_000) == Bounds()


@pytest.mark.states("PA-12")
def test_messages_within_the_bound_are_byte_equal_and_older_ones_show_id_time_and_opening_words() -> None:
    session = lively()
    before = {item.id: item for item in session.log.view.items if item.kind == "user"}
    folded(session)
    after = {item.id: item for item in session.log.view.items if item.kind == "user"}
    assert all(before[name] == after[name] for name in after)
    gone = [name for name in before if name not in after]
    told = "\n".join(text_of(item.content) for item in session.log.view.items if item.kind == "summary")
    assert len(gone) > 5
    assert max(int(name.split(".")[0]) for name in gone) < min(int(name.split(".")[0]) for name in after)
    cut = next(item for item in session.log.view.items if item.source.startswith("message "))
    assert cut.source == f"message {gone[-1]}"
    for name in gone[:-1]:
        line = next(line for line in told.split("\n") if line.startswith(f"- {name}, 2023-11-14 2"))
        assert text_of(before[name].content)[:60] in line
    assert text_of(before[gone[-1]].content)[:400] in text_of(cut.content)
    assert text_of(before[gone[-1]].content)[-200:] in text_of(cut.content)


@pytest.mark.states("PA-13")
def test_nothing_that_is_kept_verbatim_is_copied() -> None:
    session = lively()
    body = folded(session)
    fold = body.edits[0]
    assert isinstance(fold, Fold)
    kept = {piece.id for piece in fold.into if isinstance(piece, Keep)}
    written = "\n".join(text_of(piece.content) for piece in fold.into if isinstance(piece, Put))
    moved = [item for item in session.log.view.items if item.id in kept and item.kind in ("user", "result", "context")]
    assert len(moved) > 10
    assert [item.id for item in moved if len(text_of(item.content)) > 200 and text_of(item.content) in written] == []
    assert all(item.id.count(".") == 1 for item in moved)


@pytest.mark.states("PA-15")
def test_a_fold_makes_no_request() -> None:
    session = busy(FoldFromLog(), rounds=70)
    model = Scripted()
    assert online(session, run_policies(session, "before_call"), model).folded
    assert model.requests == []
    assert {event.body.purpose for event in session.log.events() if isinstance(event.body, CallStarted)} == {"turn"}


@pytest.mark.states("PA-18")
def test_the_fallback_levels_are_tried_in_order_and_the_first_that_fits_is_taken() -> None:
    numbers = [number for number, _ in fallback_levels(Bounds(), 200_000)]
    assert numbers == [2, 3, 3, 3, 3, 3, 3, 4, 4, 5, 5]
    tails = [bounds.tail for _, bounds in fallback_levels(Bounds(), 200_000)]
    assert tails[:7] == [15_000, 7_500, 3_750, 1_875, 937, 468, 234]
    assert [(bounds.messages, bounds.evidence) for number, bounds in fallback_levels(Bounds(), 200_000) if number > 3] == [
        (5_000, 1_000),
        (5_000, 1_000),
        (0, 200),
        (0, 0),
    ]


@pytest.mark.states("PA-12")
def test_the_list_of_older_messages_is_bounded_and_its_newest_openings_stay() -> None:
    session = work(profile("palimpsest"), resized(card("claude-sonnet-4-5"), 32_000))
    session.log.append(ContextStated((Statement("weather", "word " * 3_000), Statement("mode", "mode: build"))))
    for number in range(900):
        say(session, f"message {number}: do the thing number {number} with care")
        reply(session, Text("Done.", "assistant"))
    body = folded(session)
    assert body.why == "the user asked for it"
    texts = [text_of(item.content) for item in session.log.view.items]
    (listed,) = [text for text in texts if "Earlier messages of the user" in text]
    counted = re.search(r"- and (\d+) before them, which `recall` finds by their words", listed)
    lines = [line for line in listed.splitlines() if re.match(r"- \d+\.0, ", line)]
    shown = sum(item.kind == "user" for item in session.log.view.items)
    assert counted is not None
    assert int(counted[1]) + len(lines) + shown == 900
    assert sum(session.counter.item(item) for item in session.log.view.items if item.source == MESSAGES) <= 20_000 * 32_000 // 200_000
    assert "message 800:" in "\n".join(texts)
    assert any("mode: build" in text for text in texts)


@pytest.mark.states("PA-12")
def test_the_list_counts_messages_that_the_evidence_only_counts() -> None:
    evidence = Evidence(user_messages=(UserMessage("40.0", 0, "Go on."),), earlier=7)
    situation = dataclasses.replace(budget_of(CLAUDE), evidence=evidence)
    (listed,) = older_messages(situation, frozenset({"3.0", "40.0"}), (), 1_000).listed
    assert text_of(listed.content).splitlines()[1:] == ["- and 6 before them, which `recall` finds by their words"]
    (listed,) = older_messages(situation, frozenset(), (), 1_000).listed
    assert text_of(listed.content).splitlines()[1:] == [
        "- and 7 before them, which `recall` finds by their words",
        "- 40.0, 1970-01-01 00:00: Go on.",
    ]


@pytest.mark.states("PA-18")
def test_facts_that_can_be_done_without_go_before_the_list_of_older_messages() -> None:
    session = work(profile("palimpsest"), resized(card("claude-sonnet-4-5"), 32_000))
    session.log.append(ContextStated((Statement("weather", "word " * 22_000), Statement("mode", "mode: build"))))
    for number in range(900):
        say(session, f"message {number}: do the thing number {number} with care")
        reply(session, Text("Done.", "assistant"))
    body = folded(session)
    texts = [text_of(item.content) for item in session.log.view.items]
    assert body.why.endswith("fallback level 4")
    assert not any("word word" in text for text in texts)
    assert any("mode: build" in text for text in texts)
    assert any("before them" in text for text in texts)
    assert any("message 800:" in text for text in texts)


@pytest.mark.parametrize(
    ("head", "request_words", "taken"), [(10, 60_000, 2), (10, 117_000, 3), (112_000, 500, 4), (10, 122_500, 5), (118_500, 500, 5)]
)
@pytest.mark.states("PA-18")
def test_less_room_means_a_later_fallback_level(head: int, request_words: int, taken: int) -> None:
    session = work(profile("palimpsest"))
    session.log.append(ContextStated(head=(Statement("instructions", "word " * head, "system"),)))
    for number in range(30):
        say(session, f"before {number} " + "word " * 500)
    say(session, "word " * request_words)
    for number in range(40):
        use(session, f"c{number}", "Bash", f'{{"command":"make part_{number}"}}', f"value_{number} = 1\n" * 100)
    body = folded(session)
    assert body.why == ("the user asked for it" if taken == 2 else f"the user asked for it; fallback level {taken}")
    assert body.tokens_after <= 136_000


@pytest.mark.states("PA-18")
def test_the_floor_error_names_every_part_with_its_tokens_and_nothing_is_changed() -> None:
    session = work(profile("palimpsest"))
    session.log.append(ContextStated(head=(Statement("instructions", "rule " * 30_000, "system"),)))
    say(session, "do this: " + "detail " * 100_000)
    use(session, "c1", "Read", '{"file_path":"a.py"}', "x = 1\n" * 30_000)
    session.pin(paths=("a.py",))
    before = session.log.view
    with pytest.raises(TooFull) as caught:
        offline(session, run_policies(session, "before_call"))
    assert session.log.view == before
    message = caught.value.message
    for words in (
        "head 3",
        "shorten instructions",
        "pins ",
        "unpin 5.0",
        "last request 1",
        "put long parts of it into a file",
        "197,000 fit",
    ):
        assert words in message


@pytest.mark.states("PA-21")
def test_after_a_fold_head_instructions_mode_tasks_and_skills_are_those_of_now() -> None:
    session = busy(rounds=5)
    session.log.append(ContextStated(head=(Statement("base", "the old head", "system"),)))
    before = {"mode": "mode: plan", "instructions": "old rules", "skills": "none", "tasks": "1. find the bug [open]"}
    session.log.append(ContextStated(tuple(Statement(source, value) for source, value in before.items())))
    use(
        session,
        "todo",
        "TodoWrite",
        '{"todos":[{"content":"find the bug","status":"completed"},{"content":"fix it","status":"pending"}]}',
        "ok",
    )
    for number in range(30):
        use(session, f"m{number}", "Read", f'{{"file_path":"m{number}.py"}}', f"value_{number} = 1\n" * 400)
    now = {"mode": "mode: build", "instructions": "new rules", "tasks": "2. fix it [open]"}
    session.log.append(ContextStated(head=(Statement("base", "the new head", "system"),)))
    session.log.append(ContextStated(tuple(Statement(source, value) for source, value in now.items())))
    use(session, "z", "Read", '{"file_path":"z.py"}', "z = 1\n" * 6_000)
    folded(session)
    view = session.log.view
    assert [text_of(item.content) for item in view.head] == ["the new head"]
    assert sorted(text_of(item.content) for item in view.items if item.kind == "context") == sorted((before | now).values())
    assert {source: fact.value for source, fact in view.facts.items() if source != "base"} == before | now
    evidence = next(text_of(item.content) for item in view.items if item.source == EVIDENCE)
    assert "fix it" in evidence
    assert "find the bug" not in evidence


@pytest.mark.states("PA-25")
def test_undo_brings_back_the_exact_view_and_the_same_fold_is_not_proposed_again_in_that_epoch() -> None:
    session = busy(FoldFromLog(), rounds=62)
    before = session.log.view
    assert session.used > 160_000
    for event in reversed(offline(session, run_policies(session, "before_call")).edited):
        session.undo(event.seq)
    assert session.log.view.items == before.items
    assert offline(session, run_policies(session, "before_call")).folded is False
    use(session, "more", "Read", '{"file_path":"more.py"}', "more = 1\n" * 12_000)
    assert offline(session, run_policies(session, "before_call")).folded


def test_a_pinned_file_stays_at_every_fallback_level() -> None:
    session = busy(rounds=70)
    session.pin(paths=("f3.py",))
    folded(session, "before_call")
    shown = [item for item in session.log.view.items if isinstance(item.content, ToolCall | ToolResult) and item.content.call_id == "c3"]
    assert [item.kind for item in shown] == ["call", "result"]
    assert all(item.mask is None for item in shown)


def test_the_model_free_fallback_folds_whenever_it_is_planned_and_there_is_something_to_fold() -> None:
    session = busy(model_free_fallback())
    assert offline(session, run_policies(session, "asked")).folded
    assert offline(session, run_policies(session, "asked")).events == ()


def test_a_fold_keeps_a_call_that_still_waits_for_its_result() -> None:
    session = busy(rounds=40)
    reply(session, ToolCall("open", "Bash", '{"command":"make"}'), usage=Usage(input=190_000))
    folded(session, "before_call")
    assert session.log.view.items[-1].content == ToolCall("open", "Bash", '{"command":"make"}')
    session.log.append(ToolReturned(ToolResult("open", (Text("done"),))))


def test_the_narrative_stands_before_the_fold_in_the_profile() -> None:
    names = [policy.name for policy in profile("palimpsest").policies]
    assert names[:3] == ["clear_dead", "narrate", "fold"]
