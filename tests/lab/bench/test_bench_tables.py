from pathlib import Path

import pytest
from msgspec import structs

from pal.cli.report_files import replace_table
from pal.replay.outcome import KindScores, ProbeScores, SurvivalShares
from pal_lab.bench.bars import GOALS, Peer, ProfileRow, Report, SessionCostRow, bar
from pal_lab.bench.costing import reread_bar
from pal_lab.bench.tables import as_markdown, short_names, tables_of
from palimpsest.core.errors import BadInput

MACHINE = {"python": "3.12.1", "system": "Linux", "processors": "2"}


def test_the_table_shows_value_limit_and_peer_and_what_was_missed() -> None:
    bars = (bar("fork", 0.2), bar("append", 1.2, Peer("openai-agents", 2.5)), bar("index_mb_s", 41.26))
    report = Report(3.456, bars, quick=True, took_s=61.2, machine=MACHINE)
    assert as_markdown(report).splitlines() == [
        "| bar | what | value | limit | peer |",
        "|---|---|---:|---:|---|",
        "| `fork` | begin a new session from the tip of another, 10,000 events | 0.2u (missed) | ≤ 0.1u |  |",
        "| `append` | append one event durably, against a raw write and fdatasync | 1.2x | ≤ 1.5x | openai-agents 2.5x |",
        "| `index_mb_s` | building the search index | 41.3 MB/s |  |  |",
        "",
        "u = 3.46 ms. Linux, Python 3.12.1, 2 processors. 61 s in all. Smaller sizes (`--quick`).",
    ]


def test_money_and_time_stand_in_tables_of_their_own() -> None:
    cost = Report(
        0.0, (bar("cost_openai", 0.8), bar("invalid", 0)), quick=False, took_s=1.0, machine=MACHINE, replayed="synthetic sessions"
    )
    assert tables_of(cost) == {
        "cost": "| bar | what | value | limit | peer |\n|---|---|---:|---:|---|\n"
        "| `cost_openai` | the same; automatic prefix cache | 0.8x | ≤ 0.88x |  |\n"
        "| `invalid` | malformed requests, under all profiles | 0 | ≤ 0 |  |\n\n0 synthetic sessions."
    }
    halved = bar("cost_openai", 0.8, even=0.75, odd=0.85)
    cost_table_text = tables_of(
        Report(0.0, (halved, bar("cost_anthropic", 0.9, even=0.9)), quick=False, took_s=1.0, replayed="synthetic sessions")
    )["cost"]
    assert cost_table_text.endswith("\n\n0 synthetic sessions. Their even and odd halves: `cost_openai` 0.750 / 0.850.")
    assert list(tables_of(Report(3.0, (bar("fork", 0.2),), quick=False, took_s=1.0, machine=MACHINE))) == ["bench"]


TITLES = "breakpoints, 5 min | breakpoints, 1 h | automatic"
ALL_REREADS = (
    "† Hidden content that a recorded call needs, by *text*, which is billed, then by *strings* and *names*. "
    "A list of names makes nothing known."
)
BEHIND = "After each score: folds made, of all that were forced."
ROWS = (
    ProfileRow(
        "palimpsest",
        {"cost_anthropic": 8.0, "cost_openai": 9.0},
        {"cost_anthropic": 0.8, "cost_openai": 0.9},
        200,
        4,
        5,
        2.5,
        81_000,
        0,
        SurvivalShares(numbers=0.5),
        {
            "1": ProbeScores(0.9, 1.0, 2, 2, kinds={"open": KindScores(0.5, 0.75, 2), "asked": KindScores(1.0, 1.0, 2)}),
            "10": ProbeScores(0.8, 0.95, 9, 20, unfolded=1, kinds={"open": KindScores(0.4, 0.7, 1)}),
        },
        {"text": 4, "strings": 30, "names": 1_200},
    ),
    ProfileRow(
        "none",
        {"cost_anthropic": 15.0},
        {"cost_anthropic": None},
        190,
        0,
        0,
        0.0,
        120_500,
        0,
        SurvivalShares(),
        {"1": ProbeScores(1.0, 1.0, 0, 2, 0, 2), "10": ProbeScores(1.0, 1.0, 0, 20, 0, 2)},
        {"text": 0, "strings": 0, "names": 0},
    ),
)


def test_what_was_replayed_is_shown_by_profile_and_by_session() -> None:
    sessions = (
        SessionCostRow("a", "claude", 90_000, {"cost_anthropic": 1.0}, 0, 0),
        SessionCostRow("b", "codex", 1_250_000, {"cost_anthropic": 0.75, "cost_anthropic_1h": 0.8, "cost_openai": 0.7}, 3, 9),
    )
    report = Report(0.0, (), quick=False, took_s=1.0, machine=MACHINE, profiles=ROWS, sessions=sessions)
    assert {place: table.splitlines() for place, table in tables_of(report).items()} == {
        "profiles": [
            f"| profile | {TITLES} | calls | re-reads † | folds a 100 calls | mean context | invalid |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
            "| `palimpsest` | 0.800x | - | 0.900x | 200 | 4 / 30 / 1,200 | 2.5 | 81,000 | 0 |",
            "| `none` | - | - | - | 190 | 0 / 0 / 0 | 0.0 | 120,500 | 0 |",
            "",
            ALL_REREADS,
        ],
        "survival": [
            "| profile | user messages | edited paths | read paths | commands | numbers |",
            "|---|---:|---:|---:|---:|---:|",
            "| `palimpsest` | 100 % | 100 % | 100 % | 100 % | 50 % |",
        ],
        "sessions": [
            "| session | half | tokens | breakpoints, 5 min | breakpoints, 1 h | automatic | re-reads † | of the baseline |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            "| codex `b` | even | 1,250,000 | 0.750x | 0.800x | 0.700x | 3 | 9 |",
            "| claude `a` | odd | 90,000 | 1.000x | - | - | 0 | 0 |",
            "",
            "† Hidden content that a recorded call needs, by *text*, which is billed.",
        ],
        "probes": [
            "| profile | 1 forced | 10 forced |",
            "|---|---:|---:|",
            "| `palimpsest` | 90 / 100 %; 2 of 2 | 80 / 95 %; 9 of 20 |",
            "| `none` | - | - |",
            "",
            f"{BEHIND} Sessions left out because nothing was folded: `palimpsest` 0 / 1, `none` 2.",
        ],
        "kinds": [
            "| kind | `palimpsest`, 1 | `palimpsest`, 10 | `none`, 1 | `none`, 10 |",
            "|---|---:|---:|---:|---:|",
            "| `asked` | 100 / 100 % | - | - | - |",
            "| `open` | 50 / 75 % | 40 / 70 % | - | - |",
        ],
    }


def test_a_session_is_named_by_as_much_of_its_id_as_tells_it_from_the_others() -> None:
    assert short_names(
        {
            "claude-box__12f1f541-2a05": "claude",
            "claude-12f1f541-2b99": "claude",
            "swe-agent-marshmallow-1867": "swe-agent",
            "made-up-2": "made up",
            "codex-019ed893-d2a6-7c30": "codex",
            "claude-box__12f1f541-2a05.83e2917c-8940": "claude",
            "codex-": "codex",
        }
    ) == {
        "claude-box__12f1f541-2a05": "12f1f541-2a",
        "claude-12f1f541-2b99": "12f1f541-2b",
        "swe-agent-marshmallow-1867": "marshmal",
        "made-up-2": "made-up-",
        "codex-019ed893-d2a6-7c30": "019ed893",
        "claude-box__12f1f541-2a05.83e2917c-8940": "83e2917c",
        "codex-": "codex-",
    }


def test_a_profile_that_has_something_of_ours_in_it_is_marked_in_every_table() -> None:
    codex = structs.replace(ROWS[0], profile="codex-0.166@PAL_EVIDENCE=on")
    report = Report(0.0, (), quick=False, took_s=1.0, machine=MACHINE, profiles=(ROWS[0], codex))
    tables = tables_of(report)
    for place in ("profiles", "survival", "probes"):
        lines = tables[place].splitlines()
        assert [line.split("|")[1] for line in lines if line.startswith("| `")] == [" `palimpsest` ", " `codex-0.166@PAL_EVIDENCE=on` \\* "]
        assert lines[-2:] == ["", "\\* With our evidence block beside its summaries, which the original does not have."]
    assert "\\*" not in tables_of(structs.replace(report, profiles=ROWS))["profiles"]


def test_re_reads_are_judged_by_the_kind_of_cache_that_has_more_the_marks_of_one_hour_aside() -> None:
    found = reread_bar({"cost_anthropic": (8, 10), "cost_anthropic_1h": (30, 10), "cost_openai": (18, 20)})
    assert (found.value, found.ok) == (0.9, True)
    assert {name: found.detail[name] for name in ("cost_anthropic", "cost_anthropic_1h", "cost_openai")} == {
        "cost_anthropic": 0.8,
        "cost_anthropic_1h": 3.0,
        "cost_openai": 0.9,
    }
    assert (found.detail["ours_cost_openai"], found.detail["theirs_cost_openai"]) == (18, 20)
    assert reread_bar({"cost_anthropic": (12, 10), "cost_anthropic_1h": (0, 0), "cost_openai": (1, 2)}).ok is False
    assert reread_bar({"cost_anthropic": (1, 0), "cost_anthropic_1h": (1, 1), "cost_openai": (0, 0)}).value is None


def test_a_table_is_put_between_the_marks_of_a_document() -> None:
    old = "Before.\n<!-- bench begins -->\nold\n<!-- bench ends -->\nAfter.\n"
    assert replace_table(old, "new", "d.md") == "Before.\n<!-- bench begins -->\nnew\n<!-- bench ends -->\nAfter.\n"
    assert replace_table("<!-- fit begins --><!-- fit ends -->", "new", "d.md", "fit") == "<!-- fit begins -->\nnew\n<!-- fit ends -->"
    with pytest.raises(BadInput, match="no placeholder for the table"):
        replace_table("nothing here", "new", "d.md")


def test_the_document_shows_every_bar_with_the_limit_it_has_now() -> None:
    text = (Path(__file__).parents[3] / "docs" / "benchmark.md").read_text(encoding="utf-8")
    for place in ("bench", "cost"):
        format_value = text.partition(f"<!-- {place} begins -->")[2].partition(f"<!-- {place} ends -->")[0]
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in format_value.splitlines() if line.startswith("| `")]
        names = [name for name, goal in GOALS.items() if goal.table == place]
        expected = [tables_of(Report(1, (bar(name, 1),), quick=False, took_s=1, machine=MACHINE))[place].splitlines()[2] for name in names]
        wanted = [[cell.strip() for cell in line.split("|")[1:-1]] for line in expected]
        assert [(row[0], row[1], row[3]) for row in rows] == [(row[0], row[1], row[3]) for row in wanted]


def test_the_document_has_a_place_for_every_table() -> None:
    text = (Path(__file__).parents[3] / "docs" / "benchmark.md").read_text(encoding="utf-8")
    for place in ("bench", "cost", "profiles", "survival", "sessions", "probes", "kinds", "fit"):
        assert replace_table(text, "new", "d.md", place) != text
