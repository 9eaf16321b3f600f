"""`pal pin` and `pal unpin`: items and files that no policy may hide."""

import pytest
from pal_runs import LONG, SMALL, Pal, long, small

from palimpsest.core.events import Pinned
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.stores.in_memory import FixedClock


def _view(pal: Pal, session: str) -> View:
    with Log.open(pal.home.store, session, FixedClock(1)) as log:
        return log.view


def test_a_file_without_a_name_cannot_be_pinned(pal: Pal) -> None:
    small(pal.home)

    assert pal.json("pin", SMALL, " ", code=2)["error"]["message"] == "a file name must not be empty"
    assert pal.json("pin", SMALL)["pins"] == []


def test_items_and_files_are_pinned_listed_and_unpinned(pal: Pal) -> None:
    small(pal.home)

    assert pal("pin", SMALL).stdout == "nothing is pinned\n"
    assert pal("pin", SMALL, "6.0", "a.py").stdout == "pinned: 6.0, a.py\n"
    assert pal.json("pin", SMALL) == {"session": SMALL, "pins": ["6.0", "a.py"]}
    assert pal.json("unpin", SMALL, "6.0") == {"session": SMALL, "pins": ["a.py"]}
    with Log.open(pal.home.store, SMALL, FixedClock(1)) as log:
        assert log.event(14).body == Pinned(("6.0",), ("a.py",))


def test_what_is_pinned_is_not_hidden_by_a_fold(pal: Pal) -> None:
    long(pal.home)
    hidden = pal.json("compact", LONG, "--preview")[0]["hidden"]["items"]
    pinned = next(item.id for item in _view(pal, LONG).items if item.id in hidden and item.kind == "result")
    pal("pin", LONG, pinned)
    (made,) = pal.json("compact", LONG, "--no-model")

    assert pinned not in made["hidden"]["items"]
    assert pinned in _view(pal, LONG).ids


def test_a_file_has_one_pin_however_it_is_written(pal: Pal) -> None:
    small(pal.home)
    result = pal("pin", SMALL, "./a.py", "a.py", "./lib//../a.py")

    assert (result.stdout, result.stderr) == ("pinned: a.py\n", "")
    assert pal.json("unpin", SMALL, "./a.py")["pins"] == []


def test_a_pin_of_an_older_log_comes_off_however_it_is_written(pal: Pal) -> None:
    small(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(1), write=True) as log:
        log.append(Pinned((), ("./a.py", "a.py", "b.py")))

    assert pal.json("unpin", SMALL, "a.py")["pins"] == ["b.py"]


def test_a_file_that_is_not_visible_is_pinned_with_a_warning(pal: Pal) -> None:
    small(pal.home)
    result = pal("pin", SMALL, "a.py", "no/such/file.py")

    assert result.exit_code == 0
    assert result.stdout == "pinned: a.py, no/such/file.py\n"
    assert result.stderr == "pal: no/such/file.py is pinned, but nothing in the view shows it yet\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("pin", SMALL, "99.0"), f"pal: {SMALL}: there is no item 99.0 on this branch; `pal show {SMALL}` lists them\n"),
        (("unpin", SMALL, "6.0"), f"pal: {SMALL}: 6.0 is not pinned; `pal pin {SMALL}` lists the pins\n"),
    ],
)
def test_wrong_pins_are_refused(pal: Pal, words: tuple[str, ...], line: str) -> None:
    small(pal.home)
    result = pal(*words)

    assert (result.exit_code, result.stderr) == (2, line)
