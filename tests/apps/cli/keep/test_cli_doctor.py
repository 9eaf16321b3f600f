import pytest
from pal_runs import BEGAN, SMALL, Pal, small

from palimpsest.core.log.log import Log
from palimpsest.stores.ephemeral import FixedClock

_NAMES = ["python", "packages", "home", "disk", "sqlite", "index", "locks", "remains", "logs", "secrets", "cards"]


def _states(pal: Pal, code: int) -> dict[str, str]:
    return {check["name"]: check["state"] for check in pal.json("doctor", code=code)["checks"]}


def test_a_home_in_order_has_no_findings(pal: Pal) -> None:
    small(pal.home)
    assert pal("sessions").exit_code == 0

    assert _states(pal, 0) == dict.fromkeys(_NAMES, "ok")
    assert pal.json("doctor")["ok"] is True
    assert [line.split()[:2] for line in pal("doctor").stdout.splitlines()] == [["ok", name] for name in _NAMES]


def test_a_home_that_is_not_there_yet_is_no_finding_and_is_not_made(pal: Pal) -> None:
    assert _states(pal, 0) == dict.fromkeys(_NAMES, "ok")
    assert not pal.home.folder.exists()


def test_a_torn_line_and_what_a_crash_left_are_warnings_with_advice(pal: Pal) -> None:
    small(pal.home)
    path = pal.home.store.path_of(SMALL)
    with path.open("ab") as file:
        file.write(b'{"seq":14')
    path.with_suffix(".torn-1").write_bytes(b"{")
    (path.parent / ".locks" / "gone").touch()

    states = _states(pal, 1)
    advice = [line for line in pal("doctor").stdout.splitlines() if "→" in line]

    assert {name for name, state in states.items() if state == "warn"} == {"logs", "remains", "locks"}
    assert len(advice) == 3


def test_a_log_that_cannot_be_read_and_a_broken_card_file_are_bad(pal: Pal) -> None:
    small(pal.home)
    pal.home.store.path_of("noise").write_bytes(b"noise\n")
    pal.home.cards_path.write_text("cards = 3")

    assert {name for name, state in _states(pal, 1).items() if state == "bad"} == {"logs", "cards"}


@pytest.mark.parametrize("end", [b"garbage here\n", b"garbage here\n\n", b'{"seq":14}\n', b"x" * 200_000 + b"\n"])
def test_a_log_whose_last_line_is_no_event_is_bad(pal: Pal, end: bytes) -> None:
    small(pal.home)
    with pal.home.store.path_of(SMALL).open("ab") as file:
        file.write(end)

    assert {name for name, state in _states(pal, 1).items() if state == "bad"} == {"logs"}


def test_a_session_that_is_being_written_is_named_and_is_no_finding(pal: Pal) -> None:
    small(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN), write=True):
        locks = next(check for check in pal.json("doctor")["checks"] if check["name"] == "locks")

    assert locks["state"] == "ok"
    assert locks["message"].startswith("1 held: process ")


def test_a_home_that_is_a_file_is_bad(pal: Pal) -> None:
    pal.home.folder.write_text("")

    assert _states(pal, 1)["home"] == "bad"
