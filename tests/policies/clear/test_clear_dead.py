"""When dead results are cleared, which of them, and what replaces them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from situations import CLAUDE, prefix, situation, used, words
from stubs import stub_of
from workplace import START, offline, reply, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.audit.cache import WarmPrefixes
from palimpsest.audit.prices import Rates
from palimpsest.audit.uses import STUB_TOKENS, DeadResult
from palimpsest.core.events import ViewEdited
from palimpsest.core.items import Item, Mask, Text, ToolCall, ToolResult, text_of
from palimpsest.core.plans import Cache, Outcome, Situation, Use, proposal_of
from palimpsest.core.tokens import estimate
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.clear import ClearDead, Clearing, best_clearing, clear_all
from palimpsest.policies.profile import Profile
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import card

RATES = Rates(1.25, 0.1, 5.0)
CALL, RESULT = used(2, "Bash", '{"command":"make test"}', 30_020)
ITEMS = (words("1.0", 40_000), CALL, RESULT, words("4.0", 27_980), words("5.0", 2_000))
PREFIXES = (prefix("1.0", 40_000), prefix("4.0", 98_000))
STUB = "[Bash make test: 30020 tokens, id 3.0]"


def cleared(outcome: Outcome) -> tuple[str, ...]:
    return tuple(name for edit in proposal_of(outcome).edits if isinstance(edit, Mask) for name in edit.ids)


def worked(calls: int) -> Situation:
    """The worked example, with a result that died at the first call."""
    return situation(ITEMS, uses={"3.0": Use(0, died=1)}, prefixes=PREFIXES, calls=calls)


@pytest.mark.states("PA-04")
def test_the_worked_example_clears_at_the_twentieth_call_and_not_before() -> None:
    assert [ClearDead().plan(worked(calls)) for calls in (1, 2, 18, 19)] == [(), (), (), ()]
    proposal = proposal_of(ClearDead().plan(worked(20)))
    assert proposal.edits == (Mask(("3.0",), STUB),)
    assert proposal.why == "1 dead result, 30000 tokens, paid 60000 in rent against a price of 29200"


def dead(*rows: tuple[int, int, int]) -> list[DeadResult]:
    """Dead results by place, gain and calls since they died."""
    return [DeadResult(place, gain, calls) for place, gain, calls in rows]


WARM = WarmPrefixes((0, 4, 8), (20_000, 60_000, 98_000))
GOLDEN: dict[str, tuple[list[DeadResult], WarmPrefixes, list[Clearing], int | None]] = {
    # 1.25 x 34,000 - 3,800 - 2,500, then 1.25 x 30,000 - 6,300, then 1.25 x 50,000 - 7,800 - 2,500.
    "too young": (
        dead((7, 6_000, 30), (5, 4_000, 10), (2, 20_000, 5)),
        WARM,
        [Clearing(1, 6_000, 18_000, 36_200), Clearing(2, 10_000, 22_000, 31_200), Clearing(3, 30_000, 32_000, 52_200)],
        None,
    ),
    # Worth 62,400 - 62,400, and 112,400 - 104,400: the longer suffix wins.
    "the longest suffix": (
        dead((7, 6_000, 90), (5, 4_000, 21), (2, 20_000, 25)),
        WARM,
        [Clearing(1, 6_000, 54_000, 36_200), Clearing(2, 10_000, 62_400, 31_200), Clearing(3, 30_000, 112_400, 52_200)],
        3,
    ),
    # The old one has just died: it would cost 42,000 more in doubled price and paid 2,000.
    "a suffix in the middle": (
        dead((7, 6_000, 90), (5, 4_000, 30), (2, 20_000, 1)),
        WARM,
        [Clearing(1, 6_000, 54_000, 36_200), Clearing(2, 10_000, 66_000, 31_200), Clearing(3, 30_000, 68_000, 52_200)],
        2,
    ),
    # 1.25 x 1,501 - 1.25 x 2,000 - 0.1 x 0: an item after all that is cached.
    "after the last entry it is free however small": (
        dead((9, 499, 1)),
        WARM,
        [Clearing(1, 499, 49.9, 1.25 * (100_000 - 499 - 98_000) - 2_500)],
        1,
    ),
    # 1.25 x (100,000 - 1,999 - 60,000) - 3,800 - 2,500 = 41,201.25, and twice that is paid.
    "1,999 tokens are too few": (
        dead((5, 1_999, 500)),
        WARM,
        [Clearing(1, 1_999, 99_950, 41_201.25)],
        None,
    ),
    "2,000 tokens are enough": (
        dead((5, 2_000, 500)),
        WARM,
        [Clearing(1, 2_000, 100_000, 41_200)],
        1,
    ),
    "a cold cache takes all": (
        dead((7, 300, 1), (5, 200, 1), (2, 100, 1)),
        WarmPrefixes(),
        [Clearing(1, 300, 30, -375), Clearing(2, 500, 50, -625), Clearing(3, 600, 60, -750)],
        3,
    ),
    # Only the head is live: 1.25 x 74,000 - 1.25 x 80,000.
    "what is cold behind the head is free": (
        dead((7, 6_000, 1)),
        WarmPrefixes((-1,), (20_000,)),
        [Clearing(1, 6_000, 600, -7_500)],
        1,
    ),
    "nothing dead": ([], WARM, [], None),
}


@every_case("case", GOLDEN)
@pytest.mark.states("PA-04")
def test_golden_cases_give_the_suffix_by_hand_calculation(case: str) -> None:
    rows, warm, expected, count = GOLDEN[case]
    # With nothing to cover all of what is there is the best.
    wholes = (best_clearing(rows[:number], warm, RATES, cover=0.0, least=0) for number in range(1, len(rows) + 1))
    found = [each for each in wholes if each is not None]
    assert [(each.count, each.gain) for each in found] == [(each.count, each.gain) for each in expected]
    assert [each.rent for each in found] == pytest.approx([each.rent for each in expected])
    assert [each.price for each in found] == pytest.approx([each.price for each in expected])
    best = best_clearing(rows, warm, RATES)
    assert (best.count if best is not None else None) == count


@st.composite
def graves(draw: st.DrawFn) -> tuple[list[DeadResult], WarmPrefixes]:
    """Dead results from the newest to the oldest, and what is cached before them."""
    places = sorted(draw(st.sets(st.integers(0, 40), min_size=1)), reverse=True)
    rows = [DeadResult(place, draw(st.integers(1, 3_000)), draw(st.integers(1, 60))) for place in places]
    ends = sorted(draw(st.sets(st.integers(-1, 40))))
    tokens = sorted(draw(st.sets(st.integers(1_000, 90_000), min_size=len(ends), max_size=len(ends))))
    return rows, WarmPrefixes(tuple(ends), tuple(tokens))


@given(graves(), st.sampled_from([0.5, 2.0]), st.sampled_from([0, 2_000]))
def test_the_best_clearing_is_the_best_of_all_suffixes(found: tuple[list[DeadResult], WarmPrefixes], cover: float, least: int) -> None:
    rows, warm = found
    total = 95_000
    every: list[Clearing] = []
    for count in range(1, len(rows) + 1):
        gain = sum(each.gain for each in rows[:count])
        rent = sum(RATES.read * each.gain * each.calls for each in rows[:count])
        before = warm.before(rows[count - 1].place)
        price = RATES.write * (total - gain - before) - RATES.read * (warm.longest - before) - RATES.write * (total - warm.longest)
        every.append(Clearing(count, gain, rent, price))
    worth = [each for each in every if each.price <= 0 or (each.gain >= least and each.rent >= cover * each.price)]
    best = max(worth, key=lambda each: each.rent - cover * each.price, default=None)
    found_best = best_clearing(rows, warm, RATES, cover=cover, least=least)
    assert (found_best is None) == (best is None)
    if found_best is not None and best is not None:
        assert (found_best.count, found_best.gain) == (best.count, best.gain)
        assert (found_best.rent, found_best.price) == pytest.approx((best.rent, best.price))


@given(graves(), st.floats(-20_000, 60_000))
def test_no_clearing_costs_more_than_there_is_room_for_unless_it_costs_nothing(
    found: tuple[list[DeadResult], WarmPrefixes], room: float
) -> None:
    rows, warm = found
    best = best_clearing(rows, warm, RATES, cover=0.3, least=0, room=room)
    assert best is None or best.price <= max(0.0, room)
    assert best_clearing(rows, warm, RATES, cover=0.3, least=0, room=1e9) == best_clearing(rows, warm, RATES, cover=0.3, least=0)


def test_what_would_pay_waits_for_room() -> None:
    # At the twentieth call the rent covers the price of 23,200 input tokens.
    assert cleared(ClearDead(cover=1.0).plan(replace(worked(40), room=1_000.0))) == ()
    assert cleared(ClearDead(cover=1.0).plan(replace(worked(40), room=100_000.0))) == ("3.0",)


@pytest.mark.parametrize(
    ("model", "ttl", "calls"),
    # 2.0 x 30,000 - 5,800 - 4,000 = 50,200: the 34th call; 1.0 x 30,064 - 5,798.4 - 2,080 = 22,185.6: the 15th.
    [(CLAUDE, 3_600_000, 34), (card("gpt-5"), 600_000, 15)],
)
@pytest.mark.states("PA-04")
def test_the_price_is_that_of_the_card_and_of_the_lifetime(model: object, ttl: int, calls: int) -> None:
    automatic = model is not CLAUDE
    prefixes = [prefix("4.0", 97_920, ttl=ttl)] if automatic else [prefix("1.0", 40_000, ttl=ttl), prefix("4.0", 98_000, ttl=ttl)]
    now = [
        situation(ITEMS, uses={"3.0": Use(0, died=1)}, prefixes=prefixes, calls=made, model=card("gpt-5") if automatic else CLAUDE)
        for made in (calls - 1, calls)
    ]
    assert [cleared(ClearDead().plan(each)) for each in now] == [(), ("3.0",)]


def many(count: int) -> tuple[Item, ...]:
    found: list[Item] = [words("1.0", 1_000)]
    for number in range(2, 2 + 2 * count, 2):
        found += used(number, "Bash", "{}", 150 + number)
    return (*found, words(f"{2 + 2 * count}.0", 1_000))


@pytest.mark.states("PA-05")
def test_with_a_cold_cache_everything_dead_is_cleared_in_one_edit() -> None:
    items = many(6)
    uses = {item.id: Use(0, died=1) for item in items if item.kind == "result"}
    now = situation(items, uses=uses, prefixes=[prefix("13.0", 2_000, age=300_000)], calls=1)
    assert cleared(ClearDead().plan(now)) == ("3.0", "5.0", "7.0", "9.0", "11.0", "13.0")


@pytest.mark.states("PA-03")
def test_pins_stay_also_under_pressure_and_so_does_what_lives() -> None:
    uses = {"3.0": Use(0, died=1), "5.0": Use(0, died=1), "7.0": Use(0)}
    for pins in (frozenset({"3.0"}), frozenset({"2.0"})):
        now = situation(many(3), uses=uses, calls=9, pins=pins)
        assert cleared(ClearDead().plan(now)) == ("5.0",)
        assert cleared(clear_all(now)) == ("5.0",)


@pytest.mark.states("PA-03")
def test_a_pinned_file_keeps_its_reads() -> None:
    items = (words("1.0", 10), *used(2, "Read", '{"file_path":"/repo/a.py"}', 900), *used(4, "Read", '{"file_path":"/repo/b.py"}', 900))
    uses = {"3.0": Use(0, died=1, kind="read"), "5.0": Use(0, died=1, kind="read")}
    assert cleared(ClearDead().plan(situation(items, uses=uses, calls=9, pins=frozenset({"a.py"})))) == ("5.0",)


def test_what_an_undo_brought_back_is_not_cleared_from_compact_at_on_but_only_when_nothing_could_be_sent() -> None:
    uses, held = {"3.0": Use(0, died=1)}, frozenset({"3.0"})
    for window, expected in ((200_000, ()), (100_000, ("3.0",))):
        now = situation(ITEMS, uses=uses, prefixes=PREFIXES, calls=1, held=held, compact_at=100_000, window=window)
        assert cleared(ClearDead().plan(now)) == expected


def test_what_an_undo_brought_back_is_cleared_only_under_pressure() -> None:
    uses = {"3.0": Use(0, died=1), "5.0": Use(0, died=1)}
    held = frozenset({"3.0"})
    assert cleared(ClearDead().plan(situation(many(2), uses=uses, calls=9, held=held))) == ("5.0",)
    assert cleared(ClearDead().plan(situation(many(2), uses=uses, calls=9, held=held, moment="overflow"))) == ("3.0", "5.0")


@pytest.mark.parametrize(("level", "expected"), [(100_000, ("3.0",)), (100_001, ()), (99_999, ())])
def test_from_compact_at_on_all_that_is_dead_goes_if_that_leaves_room(level: int, expected: tuple[str, ...]) -> None:
    # 100,000 tokens, of which 30,000 are dead and have paid next to no rent: 70 % of the level must be reached.
    now = situation(ITEMS, uses={"3.0": Use(0, died=1)}, prefixes=PREFIXES, calls=1, compact_at=level)
    assert cleared(ClearDead(room=0.3).plan(now)) == expected


@pytest.mark.parametrize(("window", "expected"), [(70_000, ("3.0",)), (69_999, ())])
def test_on_overflow_all_that_is_dead_goes_if_the_request_then_fits(window: int, expected: tuple[str, ...]) -> None:
    now = situation(ITEMS, uses={"3.0": Use(0, died=1)}, prefixes=PREFIXES, calls=1, moment="overflow", window=window)
    assert cleared(ClearDead().plan(now)) == expected


def test_with_less_patience_results_die_younger_and_pay_rent_for_longer() -> None:
    # At the usual age of 8 it would live until the 14th call; half as old it is dead since the 10th.
    uses = {"3.0": Use(6)}
    assert [cleared(ClearDead(patience=patience).plan(situation(many(1), uses=uses, calls=10))) for patience in (1.0, 0.5)] == [
        (),
        ("3.0",),
    ]
    warm = situation(ITEMS, uses={"3.0": Use(0)}, prefixes=PREFIXES, calls=23)
    assert [cleared(ClearDead(patience=patience).plan(warm)) for patience in (1.0, 0.75, 0.5)] == [(), (), ("3.0",)]


@pytest.mark.states("PA-20")
def test_in_a_turn_that_had_its_folds_everything_but_the_last_round_pays_rent_from_its_first_call_on() -> None:
    uses = {"3.0": Use(0), "5.0": Use(6)}
    for may_fold, expected in ((True, ()), (False, ("3.0",))):
        now = replace(situation(many(2), uses=uses, calls=6), may_fold=may_fold)
        assert cleared(ClearDead().plan(now)) == expected


def test_under_pressure_the_price_does_not_matter() -> None:
    assert cleared(ClearDead().plan(worked(2))) == ()
    assert cleared(clear_all(worked(2))) == ("3.0",)
    assert clear_all(situation(ITEMS, prefixes=PREFIXES)) == ()


@pytest.mark.states("PA-06")
def test_nothing_is_cleared_when_an_edit_was_made_and_no_call_since() -> None:
    uses = {"3.0": Use(0, died=1)}
    assert cleared(ClearDead().plan(situation(ITEMS, uses=uses, calls=9, cache=Cache()))) == ("3.0",)
    assert ClearDead().plan(situation(ITEMS, uses=uses, calls=9, cache=Cache(edited=True))) == ()


PROSE = "words that are never named\n" * 200


def at_work(tick: int) -> Session:
    profile = Profile("test", (ClearDead(),), lambda each: palimpsest_budget(each.window, each.reply))
    session = work(profile, clock=FixedClock(START, tick))
    say(session, "please")
    for number in range(4):
        use(session, f"c{number}", "Bash", f'{{"command":"make t{number}"}}', PROSE)
    # What stands behind the results must be written again when they go.
    say(session, "please " * 4_000)
    for _ in range(8):
        reply(session, Text("go on", "assistant"))
    return session


def edits(session: Session) -> list[tuple[str, ...]]:
    ran = offline(session, run_policies(session, "before_call"))
    return [
        tuple(name for edit in event.body.edits if isinstance(edit, Mask) for name in edit.ids)
        for event in ran.events
        if isinstance(event.body, ViewEdited)
    ]


@pytest.mark.states("PA-06")
def test_a_clear_never_happens_twice_without_a_call_between_and_a_second_run_rests() -> None:
    session = at_work(400_000)
    assert edits(session) == [("4.0", "7.0", "10.0", "13.0")]
    assert edits(session) == []
    use(session, "c9", "Edit", '{"file_path":"a.py"}', PROSE)
    reply(session, Text("go on", "assistant"))
    assert edits(session) == [(f"{session.log.tip - 3}.0",)]
    assert edits(session) == []


@pytest.mark.states("PA-05")
def test_the_same_session_with_a_warm_cache_waits() -> None:
    assert edits(at_work(1_000)) == []


@every_case(
    ("tool", "args", "item_id"),
    [
        ("Read", '{"file_path":"src/palimpsest/policies/clear_dead.py"}', "1234.0"),
        (
            "Read",
            '{"file_path":"/home/someone/projects/a-very-long-name/with/many/folders/and/a/file_name_that_never_ends.py"}',
            "123456.0",
        ),
        ("Bash", '{"command":"cd /repo && ./run pytest -q tests/policies/test_clear_dead.py 2>&1 | tail -50 && echo done"}', "99999.12"),
        ("mcp__a_server_with_a_long_name__and_a_tool_with_an_even_longer_name_than_the_server", '{"q":"x"}', "7.0"),
        ("Grep", '{"pattern":"错误处理的地方在哪里，请找到所有的文件并列出来"}', "7.0"),
        ("Bash", "", "40.12.3"),
    ],
)
@every_case("factor", [1.0, 1.3])
@pytest.mark.states("PA-07")
def test_a_stub_has_at_most_25_tokens_and_names_tool_argument_size_and_id(tool: str, args: str, item_id: str, factor: float) -> None:
    items = (Item("1.0", "call", ToolCall("c", tool, args)), Item(item_id, "result", ToolResult("c", (Text("x"),))))
    stub = stub_of(items, 1, 123_456, factor)
    assert estimate(stub, factor) <= STUB_TOKENS == 25
    assert stub.startswith(f"[{tool[:8]}")
    assert stub.endswith(f": 123456 tokens, id {item_id}]")


@pytest.mark.parametrize(
    ("tool", "args", "begins", "ends"),
    [
        (
            "Read",
            '{"file_path":"/home/someone/2026/q3_projects/x81/service_v2/src/api/handlers/payment_requests.py"}',
            "[Read …",
            "/payment_requests.py",
        ),
        (
            "Bash",
            '{"command":"grep -rn x81 src/ | sort | uniq -c | sort -rn | awk \'{print $2}\' | xargs -n1 wc -l | head -50"}',
            "[Bash grep -rn x81 src/ |",
            "…",
        ),
        ("Glob", "{}", "[Glob", "[Glob"),
    ],
)
@pytest.mark.states("PA-07")
def test_a_long_path_keeps_its_end_and_a_long_command_its_start(tool: str, args: str, begins: str, ends: str) -> None:
    stub = stub_of(used(2, tool, args, 900), 1, 900)
    assert stub.startswith(begins)
    assert stub.endswith(f"{ends}: 900 tokens, id 3.0]")


@pytest.mark.states("PA-07")
def test_short_arguments_are_whole_and_the_id_returns_the_original() -> None:
    items = used(2, "Read", '{"file_path":"src/a.py"}', 900)
    assert stub_of(items, 1, 900) == "[Read src/a.py: 900 tokens, id 3.0]"
    session = at_work(400_000)
    edits(session)
    shown: Sequence[str] = [item.mask.text for item in session.log.view.items if item.mask is not None]
    assert shown[0].startswith("[Bash make t0: ")
    assert shown[0].endswith(" tokens, id 4.0]")
    assert text_of(session.log.item("4.0").content) == PROSE
