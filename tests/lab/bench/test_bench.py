import json
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import golden

from pal_lab.bench.bars import GOALS, Bar, Peer, Report, bar
from pal_lab.bench.engine import KINDS, find_ripgrep
from pal_lab.bench.processes import GATEWAY_BARS, TERMINAL_BARS
from pal_lab.bench.replaying import LIMITED_TOKENS
from pal_lab.bench.suite import GROUPS, bars_named, run_bench
from pal_lab.bench.tables import tables_of
from pal_lab.bench.workspace import FULL, BenchSizes, DecodeUnit, side_by_side, write_session
from pal_lab.cost.tuning import Fit, SessionStatistics, fit, fit_markdown
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ViewEdited
from palimpsest.core.items import unanswered_calls
from palimpsest.stores.in_memory import FixedClock, MemorySessions

TINY = BenchSizes(
    small=60,
    middle=90,
    large=120,
    sessions=8,
    session_events=12,
    rounds=3,
    syncs=5,
    replayed=((2, 60_000),),
    peers=False,
    replayed_long=8_000,
    terminal_turns=10,
    streams=1,
    stream_events=3,
)
EXTRA = "`pal bench` needs the extra: pip install 'palimpsest-agent[bench,search]'"


def _silent(what: str) -> None:
    return


def _copy_recorded(folder: Path) -> None:
    (source,) = golden("claude/*/session.jsonl")[:1] or golden("claude*/**/*.jsonl")[:1]
    folder.mkdir(exist_ok=True)
    (folder / "one.jsonl").write_bytes(source.read_bytes())


def test_a_value_is_held_against_its_limit_from_the_side_that_is_better() -> None:
    assert bar("turn_1k", 0.35) == Bar("turn_1k", 0.35, 0.35, "u", ok=True)
    assert bar("turn_1k", 0.3501).ok is False
    assert bar("search_vs_ripgrep", 100).ok is True
    assert bar("search_vs_ripgrep", 99.9).ok is False
    assert bar("index_ratio", 1e9).ok is True
    assert bar("tokens_error", None) == Bar("tokens_error", None, 12, "%", ok=None)


def test_a_report_names_the_bars_that_were_missed_and_not_those_that_were_not_measured() -> None:
    missed, kept, unknown = bar("fork", 0.2), bar("load", 1.2), bar("tokens_error", None)
    assert Report(4.0, (missed, kept, unknown), quick=False, took_s=1.0).missed == (missed,)


def test_a_value_has_four_digits_and_keeps_what_it_was_made_of() -> None:
    assert bar("append", 1.234567, Peer("other", 2.0), ours_us=123.456).detail == {"ours_us": 123.5}
    assert bar("append", 1.234567).value == 1.235


def test_every_bar_belongs_to_exactly_one_family() -> None:
    names = [name for family, _ in GROUPS for name in family]
    assert sorted(names) == sorted(GOALS)


def test_bars_are_chosen_by_name_or_by_how_several_begin() -> None:
    assert bars_named(()) == frozenset(GOALS)
    assert bars_named(("turn", "load")) == {"turn_1k", "turn_10k", "turn_100k", "load"}
    assert bars_named(("rereads",)) == {"rereads", "rereads_strings"}
    with pytest.raises(BadInput, match=r"there is no bar 'speed'; there are turn_1k, "):
        bars_named(("speed",))


def test_a_session_to_measure_has_the_size_and_the_view_it_promises() -> None:
    store = MemorySessions()
    log, rounds = write_session(store, "made-up", 2_000, FixedClock(1, 1), seed=7)
    sizes = [len(chunk) for _, chunk in store.open("made-up").chunks()]
    events = list(log.events())

    assert 2_000 <= len(events) < 2_020
    assert rounds.seq == log.tip
    assert 2_500 < sum(sizes) / len(events) < 3_500
    assert 330 < len(log.view.items) < 450
    assert sum(isinstance(event.body, ViewEdited) for event in events) > 10
    assert not isinstance(events[-1].body, ViewEdited)
    assert unanswered_calls(log.view.items) == ()


def test_what_happens_next_in_a_session_fits_its_view() -> None:
    log, rounds = write_session(MemorySessions(), "made-up", 700, FixedClock(1, 1), seed=3)
    for _ in range(200):
        for body in rounds.next_round():
            assert log.append(body).seq == log.tip
    assert rounds.seq == log.tip


def test_works_take_turns_and_a_unit_is_as_long_as_itself() -> None:
    order: list[str] = []
    assert len(side_by_side(3, lambda: order.append("a"), lambda: order.append("b"))) == 2
    assert order == ["a", "b"] * 3
    unit = DecodeUnit(json.loads, [b"1", b"[2]"])
    assert unit.of_timed(3, unit.measure)[0] > 0
    assert unit.milliseconds > 0


# The bars of processes take a minute; tests of the terminal and of the gateway run these processes anyway.
@pytest.mark.parametrize("left_out", [TERMINAL_BARS | GATEWAY_BARS, pytest.param(frozenset(), marks=pytest.mark.long)], ids=["", "all"])
def test_a_tiny_run_measures_every_bar(tmp_path: Path, left_out: frozenset[str]) -> None:
    command = (sys.executable, "-m", "pal.cli")
    wanted = frozenset(GOALS) - left_out
    report = run_bench(tmp_path, wanted=wanted, quick=True, sizes=TINY, announce=_silent, pal_command=command)
    values = {each.name: each.value for each in report.bars}

    assert list(values) == [name for name in GOALS if name in wanted]
    # So short a session is folded only where that is forced, so that there is nothing to read again.
    assert [name for name, value in values.items() if value is None or value <= 0] == ["rereads", "rereads_strings", "invalid"]
    assert all(each.ok is True for each in report.bars if each.limit is None and each.value is not None)
    folded = {each.name: each.detail for each in report.bars}["probes_10"]
    assert (folded["folds"] > 0, folded["sessions"]) == (True, 1)
    assert [row.profile for row in report.profiles] == ["palimpsest", "claude-code-2.1.325"]
    assert [(row.session, row.format) for row in report.sessions] == [("made-up-2", "made up")]
    assert report.quick
    assert report.unit_ms > 0


def test_a_replay_is_timed_and_judged_only_for_a_session_as_long_as_the_limit_is_for(tmp_path: Path) -> None:
    wanted = frozenset({"replay_seconds", "replay_peak_mb"})
    short = run_bench(tmp_path, wanted=wanted, sizes=TINY, announce=_silent).bars
    assert [(each.name, each.limit, each.ok) for each in short] == [("replay_seconds", None, True), ("replay_peak_mb", None, True)]
    assert 8_000 <= short[0].detail["tokens"] < 20_000
    assert short[0].detail["cpu_s"] > 0
    assert [(bar("replay_seconds", 10.1).ok, bar("replay_peak_mb", 500).ok, FULL.replayed_long)] == [(False, True, LIMITED_TOKENS)]


def test_the_memory_of_a_replay_is_not_that_of_the_process_that_started_it() -> None:
    much = b"x" * 300_000_000
    program = "from pal_lab.bench.replaying import peak_mb; print(peak_mb())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert len(much) / 1_048_576 > 2 * float(done.stdout) > 0


def test_a_run_of_some_bars_measures_only_those(tmp_path: Path) -> None:
    report = run_bench(tmp_path, wanted=frozenset({"fork_bytes", "tokens_error"}), sizes=TINY, announce=_silent)
    assert [each.name for each in report.bars] == ["fork_bytes", "tokens_error"]
    assert set(report.bars[1].detail) == set(KINDS)


def test_a_bar_that_runs_into_its_limit_is_missed_with_a_reason_and_the_others_have_values(tmp_path: Path) -> None:
    # A terminal that ends without a prompt, where `prompt_ms` waits for one.
    report = run_bench(tmp_path, wanted=frozenset({"prompt_ms", "fork_bytes"}), sizes=TINY, announce=_silent)
    waited, forked = sorted(report.bars, key=lambda each: each.name, reverse=True)
    assert (waited.name, waited.value, waited.ok, report.missed) == ("prompt_ms", None, False, (waited,))
    assert waited.why.startswith("the terminal ")
    assert waited.why in tables_of(report)["bench"]
    assert (forked.name, forked.value is not None) == ("fork_bytes", True)


def test_without_ripgrep_one_line_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        find_ripgrep(tmp_path, path="")
    assert str(error.value) == EXTRA


def test_sessions_of_other_programs_are_replayed_when_a_folder_is_given(tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    _copy_recorded(folder)
    report = run_bench(tmp_path / "room", wanted=frozenset({"cost_anthropic", "invalid"}), sizes=TINY, recorded=folder, announce=_silent)
    assert [(each.name, each.ok) for each in report.bars] == [("cost_anthropic", False), ("invalid", True)]
    assert report.bars[0].value == 1.0
    assert (report.unit_ms, report.replayed, len(report.sessions)) == (0.0, "sessions that were given", 1)
    assert report.profiles[0].probes == {}


def test_a_folder_without_sessions_cannot_be_replayed_or_measured(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no session to replay"):
        run_bench(tmp_path / "room", wanted=frozenset({"invalid"}), sizes=TINY, recorded=tmp_path, announce=_silent)
    with pytest.raises(BadInput, match="there is no session to measure"):
        fit(tmp_path, announce=_silent)


def test_synthetic_sessions_are_shown_beside_recorded_ones() -> None:
    found = Fit(
        SessionStatistics(3, {"reads again %": 39.3, "read, tokens, median": 667.0, "read, tokens, mean": 1470.0}),
        SessionStatistics(5, {"reads again %": 37.8}),
    )
    assert fit_markdown(found).splitlines() == [
        "| | 3 recorded | 5 synthetic |",
        "|---|---:|---:|",
        "| reads again % | 39.3 | 37.8 |",
        "| read, tokens (median / p90 / mean) | 667 / 1,470 | - |",
    ]


def test_recorded_and_synthetic_sessions_are_measured_alike(tmp_path: Path) -> None:
    _copy_recorded(tmp_path)
    messages: list[str] = []
    found = fit(tmp_path, sessions=2, tokens=5_000, announce=messages.append)
    assert (found.recorded.sessions, found.synthetic.sessions) == (1, 2)
    assert found.recorded.figures["replies a turn, mean"] > 0
    assert messages == [f"reading {tmp_path}", "generating 2 sessions"]


def test_the_command_replays_the_sessions_of_a_folder_without_the_extras(tmp_path: Path) -> None:
    _copy_recorded(tmp_path)
    document = tmp_path / "own.md"
    document.write_text("<!-- cost begins -->\n<!-- cost ends -->\n", encoding="utf-8")
    words = ("bench", "--quick", "--only", "invalid", "--sessions", str(tmp_path), "--into", str(document), "--json")
    done = _pal(*words, before="sys.modules['orjson'] = None")
    value = json.loads(done.stdout)

    assert done.returncode == 0
    assert [(each["name"], each["value"], each["ok"]) for each in value["bars"]] == [("invalid", 0, True)]
    assert [row["profile"] for row in value["profiles"]] == ["palimpsest", "claude-code-2.1.325"]
    assert "| `invalid` |" in document.read_text(encoding="utf-8")


def _pal(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    program = f"import sys; {before}\nfrom pal.cli.main import main; sys.argv[0] = 'pal'; main()"
    return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)


def test_the_command_prints_one_json_value_and_keeps_the_folder_on_request(tmp_path: Path) -> None:
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
    assert (done.returncode, json.loads(done.stdout)["error"]["message"]) == (2, "the working folder must be new or empty")
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_peers_of_the_gateway_need_recorded_sessions_that_come_near_a_compaction(tmp_path: Path) -> None:
    _copy_recorded(tmp_path / "sessions")
    without = _pal("bench", "--peers", "gateway")
    short = _pal("bench", "--peers", "gateway", "--sessions", str(tmp_path / "sessions"))

    assert (without.returncode, short.returncode) == (2, 2)
    assert "--peers needs recorded sessions; name their folder with --sessions" in without.stderr
    assert "no session here is long enough to come near a compaction" in short.stderr
