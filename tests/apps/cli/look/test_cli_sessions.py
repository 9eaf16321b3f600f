import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pal_runs import BEGAN, LONG, SMALL, Pal, long, small

from pal.cli.opening import find_session, short_ids
from palimpsest.core.events import EventRef, ModelReplied, SessionOpened, Titled, Usage, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.stores.home import Home
from palimpsest.stores.in_memory import FixedClock


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
            "created": "2031-04-01T09:00:00.000Z",
            "updated": "2031-04-01T09:00:13.000Z",
            "events": 14,
            "turns": 2,
            "tokens": 830,
            # The last reply reports no usage.
            "cost_usd": None,
            "own_usd": None,
            "path": str(pal.home.store.path_of(SMALL)),
        }
    ]


def test_the_newest_session_comes_first_and_a_limit_is_kept(pal: Pal) -> None:
    small(pal.home)
    long(pal.home, events=120)

    assert [row["id"] for row in pal.json("sessions")] == [LONG, SMALL]
    assert [row["id"] for row in pal.json("sessions", "--limit", "1")] == [LONG]
    assert pal("sessions", "--limit", "1").stderr == "… and 1 more: --limit N or --all\n"


def test_the_table_fits_eighty_columns_also_with_chinese_titles(pal: Pal) -> None:
    small(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN), write=True) as log:
        log.append(Titled("把超时改成三十秒" * 20))

    lines = pal("sessions").stdout.splitlines()

    assert lines[0].split() == ["id", "folder", "when", "turns", "context", "cost", "title"]
    assert lines[1].split()[:6] == ["aaaa", "shop", "2031-04-01", "2", "0%", "unknown"]
    assert lines[1].endswith("…")
    assert len(lines) == 2
    assert max(sum(2 if ord(letter) > 0x2E80 else 1 for letter in line) for line in lines) <= 80


def test_sessions_of_sub_agents_show_only_when_all_are_asked_for(pal: Pal) -> None:
    small(pal.home)
    Log.create(pal.home.store, SessionOpened("child", opener=EventRef(SMALL, 4)), FixedClock(BEGAN)).close()

    assert [row["id"] for row in pal.json("sessions")] == [SMALL]
    assert {row["id"] for row in pal.json("sessions", "--all")} == {SMALL, "child"}
    assert pal("sessions").stderr == "… and 1 of sub-agents: --all\n"
    with Log.open(pal.home.store, "child", FixedClock(BEGAN), write=True) as log:
        log.append(Titled("Look for tests"))
    assert f"(sub-agent of {SMALL}) Look for tests" in pal("sessions", "--all", COLUMNS="120").stdout


def test_a_model_without_a_card_has_no_price(pal: Pal) -> None:
    with Log.create(pal.home.store, SessionOpened(SMALL, cwd="shop", model="model-of-ours"), FixedClock(BEGAN)) as log:
        log.append(UserSaid((Text("What is in a.py?"),)))
        log.append(ModelReplied((Text("A timeout.", "assistant"),), usage=Usage(input=100, output=20), model="model-of-ours"))

    assert pal.json("sessions")[0]["cost_usd"] is None
    assert pal("sessions").stdout.splitlines()[1].split()[5] == "unknown"


def test_last_is_the_newest_row_of_this_folder_with_a_message_whichever_file_changed_last(pal: Pal) -> None:
    small(pal.home)
    for seconds, (name, folder, said) in enumerate(
        (
            *(("here", str(Path.cwd()), "a"), ("above", str(Path.cwd().parent), "c")),
            *(("elsewhere", "/elsewhere", "b"), ("empty", str(Path.cwd()), "")),
        )
    ):
        with Log.create(pal.home.store, SessionOpened(name, cwd=folder), FixedClock(BEGAN + 60_000 + seconds)) as log:
            log.append(UserSaid((Text(said),)) if said else Titled("Nothing was said here"))
    os.utime(pal.home.store.path_of("here"), (1, 1))

    assert [row["id"] for row in pal.json("sessions")] == ["empty", "elsewhere", "above", "here", SMALL]
    assert pal.json("show", "last")["session"] == "here"
    pal("delete", "here", "--yes")
    assert pal("show", "last").stderr == f"pal: no session of this folder; `last` is above of {Path.cwd().parent}\n"
    pal("delete", "above", "--yes")
    fallback = pal("show", "last", "--json")
    assert json.loads(fallback.stdout)["session"] == "elsewhere"
    assert fallback.stderr == "pal: no session of this folder; `last` is elsewhere of /elsewhere\n"


def test_a_log_of_a_sub_agent_is_never_last(pal: Pal) -> None:
    small(pal.home)
    Log.create(pal.home.store, SessionOpened("child", opener=EventRef(SMALL, 4)), FixedClock(BEGAN + 60_000)).close()

    assert pal.json("show", "last")["session"] == SMALL


def test_the_end_of_an_id_names_its_session_while_it_is_the_only_one(pal: Pal) -> None:
    small(pal.home)
    small(pal.home, "20310401-100000-baaa")

    assert pal.json("show", "aaaa")["session"] == SMALL
    assert pal.json("show", "baaa")["session"] == "20310401-100000-baaa"
    small(pal.home, "20310401-110000-aaaa")
    error = f"'aaaa' is the end of 2 sessions: {SMALL}, 20310401-110000-aaaa; give a longer part"
    assert pal.json("show", "aaaa", code=2)["error"]["message"] == error


_WORDS = st.text("abl-ast.0", min_size=1, max_size=14).filter(lambda word: word[0] not in "-.")


@given(st.sets(_WORDS, min_size=1, max_size=12))
def test_every_short_id_finds_its_own_session(sessions: set[str]) -> None:
    home = Home.in_memory()
    for session in sessions:
        home.store.create(session, b"{}\n").close()

    assert {session: find_session(home, word).session for session, word in short_ids(sessions).items()} == {one: one for one in sessions}


def _chosen(pal: Pal, *words: str) -> list[str]:
    return [row["id"] for row in pal.json("sessions", *words)]


def test_sessions_are_chosen_by_folder_time_program_and_model(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    inside = SessionOpened("inside", str(tmp_path / "shop" / "web"), "claude-code", model="claude-opus-4-5")
    Log.create(pal.home.store, inside, FixedClock(BEGAN + 86_400_000)).close()

    assert _chosen(pal, "--cwd", str(tmp_path / "shop")) == ["inside"]
    assert _chosen(pal, "--cwd", str(tmp_path / "sho")) == []
    assert _chosen(pal, "--cwd", "shop") == [SMALL]
    assert _chosen(pal, "--since", "2031-04-02T00:00:00Z") == ["inside"]
    assert _chosen(pal, "--since", "999w") == ["inside", SMALL]
    assert _chosen(pal, "--before", "2031-04-02T00:00:00Z") == [SMALL]
    assert _chosen(pal, "--origin", "Claude-Code") == ["inside"]
    assert _chosen(pal, "--model", "claude-sonnet") == [SMALL]
    assert pal("sessions", "--model", "gpt").stdout == "no session matches; see `pal sessions`\n"
    assert "'soon' is neither a date such as 2026-03-31 nor an age such as 12h, 7d or 2w" in pal("sessions", "--since", "soon").stderr


@pytest.mark.parametrize(("sort", "order"), [("created", [LONG, SMALL]), ("context", [LONG, SMALL]), ("title", [SMALL, LONG])])
def test_sessions_are_sorted_by_what_one_asks_for(pal: Pal, sort: str, order: list[str]) -> None:
    small(pal.home)
    long(pal.home, events=120)
    assert _chosen(pal, "--sort", sort) == order


def test_the_context_in_the_list_is_that_of_the_command(pal: Pal) -> None:
    small(pal.home)
    long(pal.home, events=300)
    # What the list of sessions knows of a fork is nothing before its first reply, so that its view is counted.
    fork = pal("fork", LONG).stdout.strip()
    words = short_ids([SMALL, LONG, fork])
    lines = [line.split() for line in pal("sessions").stdout.splitlines()[1:]]
    shares = {line[0]: next(word for word in line if word.endswith("%")) for line in lines}
    counted = {session: pal.json("context", session) for session in words}

    assert shares == {words[one]: f"{round(each['used'] * 100 / each['window'])}%" for one, each in counted.items()}
    assert shares[words[LONG]] != "0%"


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
            assert (result.exit_code, "aaaa" in result.stdout, "later" in result.stdout) == (1, True, False)
            assert result.stderr == f"pal: {pal.home.index_path}: another process is writing the index; results may be out of date\n"
    finally:
        other.close()
    assert {row["id"] for row in pal.json("sessions")} == {SMALL, "later"}


@pytest.mark.parametrize("columns", [20, 40, 60])
def test_on_a_narrow_screen_each_session_is_a_block_of_lines(pal: Pal, columns: int) -> None:
    small(pal.home)

    lines = pal("sessions", COLUMNS=str(columns)).stdout.splitlines()

    assert max(map(len, lines)) <= columns
    assert {"aaaa", "shop", "2031-04-01", "2", "0%", "unknown"} <= set(" ".join(lines).split())


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


def test_an_index_that_another_process_is_filling_is_not_said_to_be_a_home_without_sessions(pal: Pal) -> None:
    pal("sessions")
    small(pal.home)
    with closing(sqlite3.connect(pal.home.index_path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        listed = pal("sessions")

    assert (listed.exit_code, listed.stdout) == (1, "")
    assert listed.stderr == (
        f"pal: {pal.home.index_path}: another process is writing the index; results may be out of date\n"
        "no session is in the index yet; try again in a moment\n"
    )
