from pal_runs import BEGAN, LONG, SMALL, Pal, long, small

from palimpsest.core.events import Place, SessionOpened, Titled
from palimpsest.core.log import Log
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
            "path": str(pal.home.shelf.path_of(SMALL)),
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
    with Log.open(pal.home.shelf, SMALL, FixedClock(BEGAN), write=True) as log:
        log.append(Titled("把超时改成三十秒" * 20))

    lines = pal("sessions").stdout.splitlines()

    assert lines[0].split() == ["session", "when", "model", "events", "tokens", "cost"]
    assert lines[1].split()[0] == SMALL
    assert lines[2].endswith("…")
    assert max(sum(2 if ord(letter) > 0x2E80 else 1 for letter in line) for line in lines) <= 80


def test_sessions_of_sub_agents_show_only_when_all_are_asked_for(pal: Pal) -> None:
    small(pal.home)
    Log.create(pal.home.shelf, SessionOpened("child", opener=Place(SMALL, 4)), FixedClock(BEGAN)).close()

    assert [row["id"] for row in pal.json("sessions")] == [SMALL]
    assert {row["id"] for row in pal.json("sessions", "--all")} == {SMALL, "child"}


def test_a_model_without_a_card_has_no_price(pal: Pal) -> None:
    small(pal.home)
    path = pal.home.shelf.path_of(SMALL)
    path.write_bytes(path.read_bytes().replace(b"claude-sonnet-4-5", b"somebodys-model-x"))

    assert pal.json("sessions")[0]["cost_usd"] is None
    assert pal("sessions").stdout.splitlines()[1].endswith("?")


def test_a_home_without_sessions_says_what_to_do(pal: Pal) -> None:
    assert pal("sessions").stdout == "no sessions yet; `pal demo` shows what there is to see\n"
    assert pal.json("sessions") == []


def test_a_file_that_is_no_log_stops_nothing(pal: Pal) -> None:
    small(pal.home)
    pal.home.shelf.path_of("broken").write_text("this is no event\n")

    assert [row["id"] for row in pal.json("sessions")] == [SMALL]
