import json
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import golden
from msgspec import structs

from palimpsest.core.errors import BadInput
from palimpsest.core.events import ViewEdited
from palimpsest.core.pairs import open_calls
from palimpsest.lab.bench.bars import GOALS, Bar, Peer, Report, bar
from palimpsest.lab.bench.compared import Row, SessionRow, short_names
from palimpsest.lab.bench.costing import reread_bar
from palimpsest.lab.bench.finding import find_ripgrep
from palimpsest.lab.bench.fit import Fit, fit, fit_markdown
from palimpsest.lab.bench.markdown import as_markdown, put_into, tables_of
from palimpsest.lab.bench.material import write_session
from palimpsest.lab.bench.replaying import JUDGED
from palimpsest.lab.bench.room import FULL, Sizes
from palimpsest.lab.bench.suite import FAMILIES, choose, run_bench
from palimpsest.lab.bench.texts import KINDS
from palimpsest.lab.bench.timing import Unit, side_by_side
from palimpsest.lab.outcome import Kept, Probed, Survival
from palimpsest.lab.shape import Shape
from palimpsest.stores.ephemeral import FixedClock, MemoryShelf

TINY = Sizes(
    small=60,
    middle=90,
    large=120,
    sessions=8,
    session_events=12,
    rounds=3,
    syncs=5,
    replayed=((2, 8_000),),
    peers=False,
    replayed_long=8_000,
)
MACHINE = {"python": "3.12.1", "system": "Linux", "processors": "2"}
EXTRA = "`pal bench` needs the extra: pip install 'palimpsest-agent[bench,search]'"


def _silent(what: str) -> None:
    return


def test_a_value_is_held_against_its_limit_from_the_side_that_is_better() -> None:
    assert bar("turn_1k", 0.25) == Bar("turn_1k", 0.25, 0.25, "u", ok=True)
    assert bar("turn_1k", 0.2501).ok is False
    assert bar("search_vs_ripgrep", 100).ok is True
    assert bar("search_vs_ripgrep", 99.9).ok is False
    assert bar("index_ratio", 1e9).ok is True
    assert bar("tokens_error", None) == Bar("tokens_error", None, 12, "%", ok=None)


def test_a_report_names_the_bars_that_were_missed_and_not_those_that_nobody_measured() -> None:
    missed, kept, unknown = bar("fork", 0.2), bar("load", 1.2), bar("tokens_error", None)
    assert Report(4.0, (missed, kept, unknown), quick=False, took_s=1.0).missed == (missed,)


def test_a_value_has_four_digits_and_keeps_what_it_was_made_of() -> None:
    assert bar("append", 1.234567, Peer("other", 2.0), ours_us=123.456).detail == {"ours_us": 123.5}
    assert bar("append", 1.234567).value == 1.235


def test_every_bar_belongs_to_exactly_one_family() -> None:
    names = [name for family, _ in FAMILIES for name in family]
    assert sorted(names) == sorted(GOALS)


def test_bars_are_chosen_by_name_or_by_how_several_begin() -> None:
    assert choose(()) == frozenset(GOALS)
    assert choose(("turn", "fork")) == {"turn_1k", "turn_10k", "turn_100k", "fork"}
    with pytest.raises(BadInput, match=r"there is no bar 'speed'; there are turn_1k, "):
        choose(("speed",))


def test_a_session_to_measure_has_the_size_and_the_view_it_promises() -> None:
    shelf = MemoryShelf()
    log, material = write_session(shelf, "made-up", 2_000, FixedClock(1, 1), seed=7)
    sizes = [len(chunk) for _, chunk in shelf.open("made-up").chunks()]
    events = list(log.events())

    assert 2_000 <= len(events) < 2_020
    assert material.seq == log.tip
    assert 2_500 < sum(sizes) / len(events) < 3_500
    assert 330 < len(log.view.items) < 450
    assert sum(isinstance(event.body, ViewEdited) for event in events) > 10
    assert not isinstance(events[-1].body, ViewEdited)
    assert open_calls(log.view.items) == ()


def test_what_happens_next_in_a_session_fits_its_view() -> None:
    log, material = write_session(MemoryShelf(), "made-up", 700, FixedClock(1, 1), seed=3)
    for _ in range(200):
        for body in material.round():
            assert log.append(body).seq == log.tip
    assert material.seq == log.tip


def test_works_take_turns_and_a_unit_is_as_long_as_itself() -> None:
    order: list[str] = []
    assert len(side_by_side(3, lambda: order.append("a"), lambda: order.append("b"))) == 2
    assert order == ["a", "b"] * 3
    unit = Unit(json.loads, [b"1", b"[2]"])
    assert unit.of_timed(3, unit.pulse)[0] > 0
    assert unit.milliseconds > 0


def test_a_tiny_run_measures_every_bar(tmp_path: Path) -> None:
    report = run_bench(tmp_path, quick=True, sizes=TINY, tell=_silent)
    values = {each.name: each.value for each in report.bars}

    assert list(values) == list(GOALS)
    # So short a session is never folded, so that there is nothing to read again and nothing to ask about.
    unknown = ["rereads", "invalid", "probes_1", "probes_2", "probes_5", "probes_10"]
    assert [name for name, value in values.items() if value is None or value <= 0] == unknown
    assert all(each.ok is True for each in report.bars if each.limit is None and each.value is not None)
    folded = {each.name: each.detail for each in report.bars}["probes_10"]
    assert (folded["folds"], folded["sessions"]) == (0, 0)
    assert [row.profile for row in report.profiles] == ["palimpsest", "claude-code-2.1.325"]
    assert [(row.session, row.format) for row in report.sessions] == [("made-up-2", "made up")]
    assert report.quick
    assert report.unit_ms > 0


def test_a_replay_is_timed_and_judged_only_for_a_session_as_long_as_the_limit_is_for(tmp_path: Path) -> None:
    wanted = frozenset({"replay_seconds", "replay_peak_mb"})
    short = run_bench(tmp_path, wanted=wanted, sizes=TINY, tell=_silent).bars
    assert [(each.name, each.limit, each.ok) for each in short] == [("replay_seconds", None, True), ("replay_peak_mb", None, True)]
    assert 8_000 <= short[0].detail["tokens"] < 20_000
    assert short[0].detail["cpu_s"] > 0
    assert [(bar("replay_seconds", 10.1).ok, bar("replay_peak_mb", 500).ok, FULL.replayed_long)] == [(False, True, JUDGED)]


def test_the_memory_of_a_replay_is_not_that_of_the_process_that_started_it() -> None:
    much = b"x" * 300_000_000
    program = "from palimpsest.lab.bench.replaying import peak_mb; print(peak_mb())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert len(much) / 1_048_576 > 2 * float(done.stdout) > 0


def test_a_run_of_some_bars_measures_only_those(tmp_path: Path) -> None:
    report = run_bench(tmp_path, wanted=frozenset({"fork_bytes", "tokens_error"}), sizes=TINY, tell=_silent)
    assert [each.name for each in report.bars] == ["fork_bytes", "tokens_error"]
    assert set(report.bars[1].detail) == set(KINDS)


def test_without_ripgrep_one_line_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        find_ripgrep(tmp_path, path="")
    assert str(error.value) == EXTRA


def test_the_table_shows_value_limit_and_peer_and_what_was_missed() -> None:
    bars = (bar("fork", 0.2), bar("append", 1.2, Peer("openai-agents", 2.5)), bar("index_mb_s", 41.26))
    report = Report(3.456, bars, quick=True, took_s=61.2, machine=MACHINE)
    assert as_markdown(report).splitlines() == [
        "| bar | what | value | limit | peer |",
        "|---|---|---:|---:|---|",
        "| `fork` | begin a new session from the tip of another, 10,000 events | 0.2u (missed) | ≤ 0.1u |  |",
        "| `append` | append one event durably, against a raw write and fdatasync | 1.2x | ≤ 1.5x | openai-agents 2.5x |",
        "| `index_mb_s` | making the search index | 41.3 MB/s |  |  |",
        "",
        "u = 3.46 ms. Linux, Python 3.12.1, 2 processors. 61 s in all. Smaller sizes (`--quick`).",
    ]


def test_money_and_time_stand_in_tables_of_their_own() -> None:
    cost = Report(0.0, (bar("cost_openai", 0.8), bar("invalid", 0)), quick=False, took_s=1.0, machine=MACHINE, replayed="made-up sessions")
    assert tables_of(cost) == {
        "cost": "| bar | what | value | limit | peer |\n|---|---|---:|---:|---|\n"
        "| `cost_openai` | the same; automatic prefix cache | 0.8x | ≤ 0.88x |  |\n"
        "| `invalid` | malformed requests, under all profiles | 0 | ≤ 0 |  |\n\n0 made-up sessions."
    }
    halved = bar("cost_openai", 0.8, even=0.75, odd=0.85)
    told = tables_of(Report(0.0, (halved, bar("cost_anthropic", 0.9, even=0.9)), quick=False, took_s=1.0, replayed="made-up sessions"))[
        "cost"
    ]
    assert told.endswith("\n\n0 made-up sessions. Their even and odd halves: `cost_openai` 0.750 / 0.850.")
    assert list(tables_of(Report(3.0, (bar("fork", 0.2),), quick=False, took_s=1.0, machine=MACHINE))) == ["bench"]


BEHIND = "Behind each score: folds that were made, of all that were forced."
ROWS = (
    Row(
        "palimpsest",
        {"cost_anthropic": 8.0, "cost_openai": 9.0},
        {"cost_anthropic": 0.8, "cost_openai": 0.9},
        200,
        4,
        5,
        0,
        Survival(numbers=0.5),
        {
            "1": Probed(0.9, 1.0, 2, 2, kinds={"open": Kept(0.5, 0.75, 2), "asked": Kept(1.0, 1.0, 2)}),
            "10": Probed(0.8, 0.95, 9, 20, unfolded=1, kinds={"open": Kept(0.4, 0.7, 1)}),
        },
    ),
    Row(
        "none",
        {"cost_anthropic": 15.0},
        {"cost_anthropic": None},
        190,
        0,
        0,
        0,
        Survival(),
        {"1": Probed(1.0, 1.0, 0, 2, 0, 2), "10": Probed(1.0, 1.0, 0, 20, 0, 2)},
    ),
)


def test_what_was_replayed_is_shown_by_profile_and_by_session() -> None:
    sessions = (
        SessionRow("a", "claude", 90_000, {"cost_anthropic": 1.0}, 0, 0),
        SessionRow("b", "codex", 1_250_000, {"cost_anthropic": 0.75, "cost_anthropic_1h": 0.8, "cost_openai": 0.7}, 3, 9),
    )
    report = Report(0.0, (), quick=False, took_s=1.0, machine=MACHINE, profiles=ROWS, sessions=sessions)
    assert {place: table.splitlines() for place, table in tables_of(report).items()} == {
        "profiles": [
            "| profile | marks, 5 min | marks, 1 h | automatic | calls | re-reads | folds a 100 calls | invalid |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            "| `palimpsest` | 0.800x | - | 0.900x | 200 | 4 | 2.5 | 0 |",
            "| `none` | - | - | - | 190 | 0 | 0.0 | 0 |",
        ],
        "survival": [
            "| profile | user messages | edited paths | read paths | commands | numbers | constraints |",
            "|---|---:|---:|---:|---:|---:|---:|",
            "| `palimpsest` | 100 % | 100 % | 100 % | 100 % | 50 % | 100 % |",
        ],
        "sessions": [
            "| session | half | tokens | marks, 5 min | marks, 1 h | automatic | re-reads | of the baseline |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            "| codex `b` | odd | 1,250,000 | 0.750x | 0.800x | 0.700x | 3 | 9 |",
            "| claude `a` | odd | 90,000 | 1.000x | - | - | 0 | 0 |",
        ],
        "probes": [
            "| profile | 1 forced | 10 forced |",
            "|---|---:|---:|",
            "| `palimpsest` | 90 / 100 %; 2 of 2 | 80 / 95 %; 9 of 20 |",
            "| `none` | - | - |",
            "",
            f"{BEHIND} Sessions left out, for nothing of them was folded: `palimpsest` 0 / 1, `none` 2.",
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
    codex = structs.replace(ROWS[0], profile="codex-0.166")
    report = Report(0.0, (), quick=False, took_s=1.0, machine=MACHINE, profiles=(ROWS[0], codex))
    tables = tables_of(report)
    for place in ("profiles", "survival", "probes"):
        lines = tables[place].splitlines()
        assert [line.split("|")[1] for line in lines if line.startswith("| `")] == [" `palimpsest` ", " `codex-0.166` \\* "]
        assert lines[-2:] == ["", "\\* With our block of evidence from the log beside its summaries, which the original does not have."]
    assert "\\*" not in tables_of(structs.replace(report, profiles=ROWS))["profiles"]


def test_sessions_of_other_programs_are_replayed_when_a_folder_is_given(tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    (source,) = golden("claude/*/session.jsonl")[:1] or golden("claude*/**/*.jsonl")[:1]
    (folder / "one.jsonl").write_bytes(source.read_bytes())
    report = run_bench(tmp_path / "room", wanted=frozenset({"cost_anthropic", "invalid"}), sizes=TINY, recorded=folder, tell=_silent)
    assert [(each.name, each.ok) for each in report.bars] == [("cost_anthropic", False), ("invalid", True)]
    assert report.bars[0].value == 1.0
    assert (report.unit_ms, report.replayed, len(report.sessions)) == (0.0, "sessions that were given", 1)
    assert report.profiles[0].probes == {}


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


def test_a_folder_without_sessions_cannot_be_replayed_or_measured(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no session to be replayed"):
        run_bench(tmp_path / "room", wanted=frozenset({"invalid"}), sizes=TINY, recorded=tmp_path, tell=_silent)
    with pytest.raises(BadInput, match="there is no session to be measured"):
        fit(tmp_path, tell=_silent)


def test_made_up_sessions_are_shown_beside_recorded_ones() -> None:
    found = Fit(
        Shape(3, {"reads again %": 39.3, "read, tokens, median": 667.0, "read, tokens, mean": 1470.0}), Shape(5, {"reads again %": 37.8})
    )
    assert fit_markdown(found).splitlines() == [
        "| | 3 recorded | 5 made up |",
        "|---|---:|---:|",
        "| reads again % | 39.3 | 37.8 |",
        "| read, tokens (median / p90 / mean) | 667 / 1,470 | - |",
    ]


def test_recorded_and_made_up_sessions_are_measured_alike(tmp_path: Path) -> None:
    (source,) = golden("claude/*/session.jsonl")[:1] or golden("claude*/**/*.jsonl")[:1]
    (tmp_path / "one.jsonl").write_bytes(source.read_bytes())
    told: list[str] = []
    found = fit(tmp_path, sessions=2, tokens=5_000, tell=told.append)
    assert (found.recorded.sessions, found.made_up.sessions) == (1, 2)
    assert found.recorded.figures["replies a turn, mean"] > 0
    assert told == [f"reading {tmp_path}", "making 2 sessions up"]


def test_the_command_replays_the_sessions_of_a_folder_without_the_extras(tmp_path: Path) -> None:
    (source,) = golden("claude/*/session.jsonl")[:1] or golden("claude*/**/*.jsonl")[:1]
    (tmp_path / "one.jsonl").write_bytes(source.read_bytes())
    document = tmp_path / "own.md"
    document.write_text("<!-- cost begins -->\n<!-- cost ends -->\n", encoding="utf-8")
    words = ("bench", "--quick", "--only", "invalid", "--sessions", str(tmp_path), "--into", str(document), "--json")
    done = _pal(*words, before="sys.modules['orjson'] = None")
    value = json.loads(done.stdout)

    assert done.returncode == 0
    assert [(each["name"], each["value"], each["ok"]) for each in value["bars"]] == [("invalid", 0, True)]
    assert [row["profile"] for row in value["profiles"]] == ["palimpsest", "claude-code-2.1.325"]
    assert "| `invalid` |" in document.read_text(encoding="utf-8")


def test_a_table_is_put_between_the_marks_of_a_document() -> None:
    old = "Before.\n<!-- bench begins -->\nold\n<!-- bench ends -->\nAfter.\n"
    assert put_into(old, "new", "d.md") == "Before.\n<!-- bench begins -->\nnew\n<!-- bench ends -->\nAfter.\n"
    assert put_into("<!-- fit begins --><!-- fit ends -->", "new", "d.md", "fit") == "<!-- fit begins -->\nnew\n<!-- fit ends -->"
    with pytest.raises(BadInput, match="no place for the table"):
        put_into("nothing here", "new", "d.md")


def test_the_document_shows_every_bar_with_the_limit_it_has_now() -> None:
    text = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text(encoding="utf-8")
    for place in ("bench", "cost"):
        shown = text.partition(f"<!-- {place} begins -->")[2].partition(f"<!-- {place} ends -->")[0]
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if line.startswith("| `")]
        names = [name for name, goal in GOALS.items() if goal.table == place]
        expected = [tables_of(Report(1, (bar(name, 1),), quick=False, took_s=1, machine=MACHINE))[place].splitlines()[2] for name in names]
        wanted = [[cell.strip() for cell in line.split("|")[1:-1]] for line in expected]
        assert [(row[0], row[1], row[3]) for row in rows] == [(row[0], row[1], row[3]) for row in wanted]


def test_the_document_has_a_place_for_every_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text(encoding="utf-8")
    for place in ("bench", "cost", "profiles", "survival", "sessions", "probes", "kinds", "fit"):
        assert put_into(text, "new", "d.md", place) != text


def _pal(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    program = f"import sys; {before}\nfrom palimpsest.apps.cli.main import main; sys.argv[0] = 'pal'; main()"
    return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)


def test_the_command_prints_one_json_value_and_leaves_the_folder_it_was_told_to_keep(tmp_path: Path) -> None:
    done = _pal("bench", "--quick", "--only", "tokens_error", "--keep", str(tmp_path / "kept"), "--json")
    value = json.loads(done.stdout)

    assert done.returncode == 0
    assert set(value) >= {"unit_ms", "bars"}
    assert value["quick"] is True
    assert set(value["bars"][0]) >= {"name", "value", "limit", "unit", "ok", "peer"}
    assert [each["name"] for each in value["bars"]] == ["tokens_error"]
    assert (tmp_path / "kept" / "logs" / "events-1k.jsonl").is_file()
    assert "counting tokens" in done.stderr


def test_without_orjson_the_command_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    done = _pal("bench", "--only", "load", "--keep", str(tmp_path / "kept"), before="sys.modules['orjson'] = None")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"pal: {EXTRA}\n")


def test_the_command_refuses_a_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    done = _pal("bench", "--keep", str(tmp_path), "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["message"]) == (2, "the folder to work in must be new or empty")
    assert (tmp_path / "mine.txt").read_text() == "precious"
