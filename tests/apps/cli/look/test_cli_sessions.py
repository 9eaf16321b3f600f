import sqlite3

import pytest
from pal_runs import BEGAN, LONG, SMALL, Pal, long, small

from palimpsest.core.events import EventRef, SessionOpened, Titled
from palimpsest.core.log.log import Log
from palimpsest.stores.ephemeral import FixedClock


def test_sessions_are_listed_as_programs_read_them(pal: Pal) -> None:
    small(pal.home)

    assert pal.json("sessions") == [
        {
            "id": SMALL,
            "title": "What is in a.py?",
            "origin": "palimpsest",
            "cwd": "shop",
            "model": "claude-sonnet-4-5",
            "profile": "",
            "created": BEGAN,
            "updated": BEGAN + 13_000,
            "events": 14,
            "turns": 2,
            "tokens": 830,
            "cost_usd": 800 * 3 / 1e6 + 30 * 15 / 1e6,
            "path": str(pal.home.store.path_of(SMALL)),
        }
    ]


def test_the_newest_session_comes_first_and_a_limit_is_kept(pal: Pal) -> None:
    small(pal.home)
    long(pal.home, events=120)

    assert [row["id"] for row in pal.json("sessions")] == [LONG, SMALL]
    assert [row["id"] for row in pal.json("sessions", "--limit", "1")] == [LONG]
    assert "… and 1 more: --limit N or --all" in pal("sessions", "--limit", "1").stdout


def test_the_table_fits_eighty_columns_also_with_chinese_titles(pal: Pal) -> None:
    small(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN), write=True) as log:
        log.append(Titled("把超时改成三十秒" * 20))

    lines = pal("sessions").stdout.splitlines()

    assert lines[0].split() == ["session", "when", "model", "events", "tokens", "cost"]
    assert lines[1].split()[0] == SMALL
    assert lines[2].endswith("…")
    assert max(sum(2 if ord(letter) > 0x2E80 else 1 for letter in line) for line in lines) <= 80


def test_sessions_of_sub_agents_show_only_when_all_are_asked_for(pal: Pal) -> None:
    small(pal.home)
    Log.create(pal.home.store, SessionOpened("child", opener=EventRef(SMALL, 4)), FixedClock(BEGAN)).close()

    assert [row["id"] for row in pal.json("sessions")] == [SMALL]
    assert {row["id"] for row in pal.json("sessions", "--all")} == {SMALL, "child"}
    assert pal("sessions").stdout.splitlines()[-1] == "… and 1 of sub-agents: --all"
    with Log.open(pal.home.store, "child", FixedClock(BEGAN), write=True) as log:
        log.append(Titled("Look for tests"))
    assert f"  (sub-agent of {SMALL}) Look for tests" in pal("sessions", "--all").stdout.splitlines()


def test_a_model_without_a_card_has_no_price(pal: Pal) -> None:
    small(pal.home)
    path = pal.home.store.path_of(SMALL)
    path.write_bytes(path.read_bytes().replace(b"claude-sonnet-4-5", b"somebodys-model-x"))

    assert pal.json("sessions")[0]["cost_usd"] is None
    assert pal("sessions").stdout.splitlines()[1].endswith("?")


def test_a_home_without_sessions_says_what_to_do(pal: Pal) -> None:
    assert pal("sessions").stdout == "no sessions yet; `pal demo` shows what pal can do\n"
    assert pal.json("sessions") == []


def test_a_file_that_is_no_log_stops_nothing(pal: Pal) -> None:
    small(pal.home)
    broken = pal.home.store.path_of("broken")
    broken.write_text("this is no event\n")

    assert [row["id"] for row in pal.json("sessions", code=1)] == [SMALL]
    # It is said each time, by every command that looks through all logs.
    for words in (("sessions",), ("search", "timeout"), ("index",), ("sessions",)):
        assert (pal(*words).exit_code, pal(*words).stderr) == (1, f"pal: {broken}: 1 line is no event; the first at byte 0\n")
    assert (pal("search", "timeout", "--session", SMALL).exit_code, pal("search", "x", "--session", "broken").exit_code) == (0, 1)
    broken.unlink()
    assert (pal("sessions").exit_code, pal("search", "timeout").stderr) == (0, "")


def test_of_many_unreadable_logs_five_are_named_and_the_others_counted(pal: Pal) -> None:
    small(pal.home)
    for number in range(8):
        pal.home.store.path_of(f"broken{number}").write_text("this is no event\n")

    lines = pal("sessions").stderr.splitlines()
    assert [line.partition("broken")[2][:7] for line in lines[:5]] == [f"{number}.jsonl" for number in range(5)]
    assert lines[5:] == ["pal: 3 more logs cannot be read whole; `pal index --json` names them all"]
    assert len(pal.json("index", code=1)["skipped"]) == 8


def test_what_is_known_shows_while_another_process_writes_the_index(pal: Pal) -> None:
    small(pal.home)
    pal("sessions")
    small(pal.home, "later")
    other = sqlite3.connect(pal.home.index_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        for words in (("sessions",), ("search", "timeout", "--kind", "assistant")):
            result = pal(*words)
            assert (result.exit_code, SMALL in result.stdout, "later" in result.stdout) == (1, True, False)
            assert result.stderr == f"pal: {pal.home.index_path}: another process is writing the index; results may be out of date\n"
    finally:
        other.close()
    assert {row["id"] for row in pal.json("sessions")} == {SMALL, "later"}


@pytest.mark.parametrize("columns", [20, 40, 60])
def test_on_a_narrow_screen_the_columns_go_on_below(pal: Pal, columns: int) -> None:
    small(pal.home)

    lines = pal("sessions", COLUMNS=str(columns)).stdout.splitlines()

    assert max(map(len, lines)) <= columns
    words = ["session", "when", "model", "events", "tokens", "cost"]
    assert " ".join(lines).split()[: len(words)] == words
    assert {SMALL, "claude-sonnet-4-5", "14", "830"} <= set(" ".join(lines).split())


@pytest.mark.parametrize("words", [("sessions",), ("context", "last"), ("show", "last")])
def test_a_width_of_nothing_is_no_width(pal: Pal, words: tuple[str, ...]) -> None:
    small(pal.home)

    assert pal(*words, COLUMNS="0").stdout == pal(*words).stdout != ""


@pytest.mark.parametrize(
    "words", [("sessions",), ("context", "last"), ("show", "last", "--request", "3"), ("show", "last", "--request", "next")]
)
def test_a_broken_card_file_is_reported_and_stops_nothing(pal: Pal, words: tuple[str, ...]) -> None:
    small(pal.home)
    well = pal(*words)
    pal.home.cards_path.write_text('[cards.mine]\nlike = "claude-sonnet-4-5"\nwindwo = 5\n')
    result = pal(*words)

    assert (result.exit_code, result.stdout) == (0, well.stdout)
    reported = result.stderr.splitlines()[0]
    assert reported.startswith(f"pal: {pal.home.cards_path}: the key cards.mine.windwo is not known; ")
    assert reported.endswith("; until this is fixed, only the built-in cards are used")
