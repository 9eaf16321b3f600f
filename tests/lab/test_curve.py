"""The curve of dollars against re-reads: which profiles it has, and what is said about ours at each trigger of the rival."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pal.replay.curve import CurvePoint, best_points, by_program, curve_points, has_curve
from pal.replay.outcome import BilledCall, CardRun, Outcome, ReplayedEdit, ReplayedSession, Reread
from pal_lab.cost.curve import TRIGGERS, Judgement, curve_markdown, curve_names, curve_summary, judge
from palimpsest.core.events import Usage
from palimpsest.policies.named import profile
from palimpsest.wire.models import Cost, card

CARD = card("claude-sonnet-4-5", window=200_000)
RIVAL = "claude-code-2.1.325"
AT_80K = f"{RIVAL}@CLAUDE_CODE_AUTO_COMPACT_WINDOW=113000"

TITLES = (
    "chosen on the even half | dollars on the odd | re-reads on the odd",
    "chosen on the odd half | dollars on the even | re-reads on the even",
)


def point(name: str, usd: float, rereads: int) -> CurvePoint:
    return CurvePoint(name, usd, rereads, 1.0, 50_000)


def test_every_profile_of_the_curve_can_be_made_and_the_rival_compacts_where_it_is_told() -> None:
    made = [profile(name) for name in curve_names()]
    rival = [each.budget(CARD).compact_at for each in made if each.program == RIVAL]

    assert [each.name for each in made] == list(dict.fromkeys(curve_names()))
    assert rival == [*TRIGGERS, 167_000]
    assert list(by_program(point(name, 1.0, 0) for name in curve_names())) == [
        *("palimpsest", "claude-code-2.1.325", "lossless", "claude-code", "context-editing", "codex-0.166", "opencode-1.18")
    ]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("palimpsest", "default"),
        ("palimpsest@PAL_THRIFT=thrifty,PAL_COMPACT_AT=80000", "thrifty, 80k"),
        ("palimpsest@PAL_COMPACT_AT=60%", "60%"),
        (AT_80K, "80k"),
        ("codex-0.166@PAL_EVIDENCE=on", "PAL_EVIDENCE"),
        ("context-editing@clear_tool_uses.sticky=on", "sticky"),
    ],
)
def test_a_point_is_labelled_by_what_its_settings_say(name: str, label: str) -> None:
    assert point(name, 1.0, 0).label == label


def test_programs_with_several_settings_make_a_curve() -> None:
    assert has_curve(["palimpsest", "palimpsest@PAL_TAIL=1"])
    assert not has_curve(["palimpsest", "codex", "codex-0.166"])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8))
def test_a_point_is_best_if_and_only_if_no_other_is_as_good_in_both_and_better_in_one(places: list[tuple[int, int]]) -> None:
    points = [point("palimpsest", float(usd), rereads) for usd, rereads in places]
    beaten = [
        any(
            other.usd <= one.usd and other.rereads <= one.rereads and (other.usd, other.rereads) != (one.usd, one.rereads)
            for other in points
        )
        for one in points
    ]

    assert {(each.usd, each.rereads) for each in best_points(points)} == {
        (one.usd, one.rereads) for one, is_beaten in zip(points, beaten, strict=True) if not is_beaten
    }


def test_the_setting_with_the_largest_margin_is_chosen_at_each_trigger() -> None:
    ours = (
        point("palimpsest", 8.0, 10),
        point("palimpsest@PAL_THRIFT=careful", 9.0, 6),
        point("palimpsest@PAL_THRIFT=thrifty", 6.0, 30),
        # Not a setting that a user chooses between, so it does not count however good it is.
        point("palimpsest@PAL_RESULTS=0", 1.0, 0),
    )
    # The default keeps 0.95x with nothing to spare in re-reads; `careful` keeps both by a factor of 1.056.
    assert judge((*ours, point(AT_80K, 9.0, 9), point(RIVAL, 10.0, 10))) == (
        Judgement(AT_80K, "palimpsest@PAL_THRIFT=careful", 1.0, 6 / 9, holds=True),
        Judgement(RIVAL, "palimpsest@PAL_THRIFT=careful", 0.9, 0.6, holds=True),
    )
    assert judge((*ours, point(RIVAL, 10.0, 12))) == (Judgement(RIVAL, "palimpsest", 0.8, 10 / 12, holds=True),)
    assert judge((*ours, point(RIVAL, 8.2, 10))) == (Judgement(RIVAL, "palimpsest", 8.0 / 8.2, 1.0, holds=False),)
    assert judge((*ours, point(RIVAL, 8.2, 2))) == (Judgement(RIVAL, "palimpsest@PAL_THRIFT=careful", 9.0 / 8.2, 3.0, holds=False),)
    assert judge((point(RIVAL, 8.2, 2),)) == (Judgement(RIVAL),)


def test_where_the_rival_has_no_rereads_only_dollars_can_suffice() -> None:
    assert judge((point("palimpsest", 9.0, 0), point(RIVAL, 9.1, 0))) == (Judgement(RIVAL, "palimpsest", 9.0 / 9.1, None, holds=False),)
    assert judge((point("palimpsest", 8.0, 0), point(RIVAL, 10.0, 0))) == (Judgement(RIVAL, "palimpsest", 0.8, None, holds=True),)


def test_what_is_chosen_on_some_sessions_is_measured_on_others() -> None:
    chosen_on = (point("palimpsest", 8.0, 1), point("palimpsest@PAL_THRIFT=careful", 9.0, 1), point(RIVAL, 10.0, 1))
    measured_on = (point("palimpsest", 12.0, 3), point("palimpsest@PAL_THRIFT=careful", 1.0, 0), point(RIVAL, 10.0, 2))

    assert judge(chosen_on, measured_on) == (Judgement(RIVAL, "palimpsest", 1.2, 1.5, holds=False),)


def outcome(name: str, usd: float, rereads: int) -> Outcome:
    """Two turn calls of 1,000 and 3,000 tokens, one fold, and so many re-reads."""
    calls = tuple(BilledCall(step, 0, "turn", Usage(input=size), Cost(input=usd / 2)) for step, size in enumerate((1_000, 3_000)))
    found = tuple(Reread(1, 0, ("x",), 1, 10) for _ in range(rereads))
    return Outcome(name, calls, (ReplayedEdit(1, 0, 5, "fold", "fold"),), found, rereads_by={"text": rereads, "names": 2 * rereads})


def session(name: str, tokens: int, ours: tuple[float, int], theirs: tuple[float, int]) -> ReplayedSession:
    outcomes = {"palimpsest": outcome("palimpsest", *ours), RIVAL: outcome(RIVAL, *theirs)}
    return ReplayedSession(name, "a file", "claude", 9, tokens=tokens, profiles=outcomes)


def test_the_tables_of_a_document_have_all_points_and_what_one_half_chose_for_the_other() -> None:
    sessions = (session("a", 900, (4.0, 1), (5.0, 2)), session("b", 800, (1.0, 1), (1.0, 0)))

    assert curve_points(sessions) == (
        CurvePoint("palimpsest", 5.0, 2, 50.0, 2_000, {"text": 2, "names": 4}),
        CurvePoint(RIVAL, 6.0, 2, 50.0, 2_000, {"text": 2, "names": 4}),
    )
    assert curve_markdown(CardRun("c", "5m", 200_000, sessions), "some card").splitlines() == [
        "| profile | dollars | of the rival's default | re-reads billed | text | names | folds a 100 calls | mean context |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        "| `palimpsest` | 5.00 | 0.833x | 2 | 2 | 4 | 50.0 | 2,000 |",
        f"| `{RIVAL}` | 6.00 | 1.000x | 2 | 2 | 4 | 50.0 | 2,000 |",
        "",
        f"2 sessions, some card. The rival is `{RIVAL}`; it compacts at 33,000 below its `CLAUDE_CODE_AUTO_COMPACT_WINDOW`.",
        "",
        f"| the rival compacts at | {' | | '.join(TITLES)} | |",
        "|---:|---|---:|---:|---|---|---:|---:|---|",
        "| its default | `palimpsest` | 1.000x | - | missed | `palimpsest` | 0.800x | 0.500x | kept |",
        "",
        "Kept: at most 0.95x of its dollars at no more re-reads, or 0.7x of its re-reads at no more dollars.",
    ]
    assert "half" not in curve_markdown(CardRun("c", "5m", 200_000, sessions[:1]), "some card")


def test_the_summary_says_what_speaks_against_ours_too() -> None:
    run = CardRun("c", "5m", 200_000, (session("a", 900, (4.0, 1), (5.0, 2)), session("b", 800, (1.0, 1), (1.0, 0))))
    assert curve_summary(run) == (
        f"On 2 recorded sessions, replayed without a model, `palimpsest` costs 0.833x of what `{RIVAL}` costs at its default trigger, "
        "with 2 re-reads against 2 (by each definition: *text* 2 : 2, *names* 4 : 4), 50.0 folds per 100 calls against 50.0, "
        "and a mean context of 2,000 tokens against 2,000. A rival that compacts earlier costs less too; the best of our "
        "settings for each trigger, chosen on the same sessions: at its default 0.833x of its dollars with 2 : 2 re-reads. That is "
        "enough for our bar at 1 of 1 triggers (its default). Whether tasks succeed as often is not known: no replay can tell."
    )
    assert curve_summary(CardRun("c", "5m", 200_000)) == ""
