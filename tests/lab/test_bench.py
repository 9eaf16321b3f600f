import json
import subprocess
import sys
from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput
from palimpsest.core.events import ViewEdited
from palimpsest.core.pairs import open_calls
from palimpsest.lab.bench.bars import GOALS, Bar, Peer, Report, bar
from palimpsest.lab.bench.finding import find_ripgrep
from palimpsest.lab.bench.markdown import as_markdown, put_into
from palimpsest.lab.bench.material import write_session
from palimpsest.lab.bench.room import Sizes
from palimpsest.lab.bench.suite import FAMILIES, choose, run_bench
from palimpsest.lab.bench.texts import KINDS
from palimpsest.lab.bench.timing import Unit, side_by_side
from palimpsest.stores.ephemeral import FixedClock, MemoryShelf

TINY = Sizes(small=60, middle=90, large=120, sessions=8, session_events=12, rounds=3, syncs=5)
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
    assert [name for name, value in values.items() if value is None or value <= 0] == []
    assert {each.name: each.ok is True for each in report.bars if each.limit is None} == dict.fromkeys(("index_ratio", "index_mb_s"), True)
    assert report.quick
    assert report.unit_ms > 0


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


def test_a_table_is_put_between_the_marks_of_a_document() -> None:
    old = "Before.\n<!-- bench begins -->\nold\n<!-- bench ends -->\nAfter.\n"
    assert put_into(old, "new", "d.md") == "Before.\n<!-- bench begins -->\nnew\n<!-- bench ends -->\nAfter.\n"
    with pytest.raises(BadInput, match="no place for the table"):
        put_into("nothing here", "new", "d.md")


def test_the_document_shows_every_bar_with_the_limit_it_has_now() -> None:
    text = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text(encoding="utf-8")
    shown = text.partition("<!-- bench begins -->")[2].partition("<!-- bench ends -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if line.startswith("| `")]
    expected = [as_markdown(Report(1, (bar(name, 1),), quick=False, took_s=1, machine=MACHINE)).splitlines()[2] for name in GOALS]
    wanted = [[cell.strip() for cell in line.split("|")[1:-1]] for line in expected]
    assert [(row[0], row[1], row[3]) for row in rows] == [(row[0], row[1], row[3]) for row in wanted]


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
