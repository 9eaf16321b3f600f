"""Wrong values on the command line that came from real shells: empty variables, numbers of any size, arguments of any length."""

from pathlib import Path

import pytest
from pal_runs import BEGAN, SMALL, Pal, small

from palimpsest.core.events import SessionOpened
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock

_HUGE = "9" * 5_000


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "--since", f"{_HUGE}d"),
        ("show", SMALL, "--request", _HUGE),
        ("rewind", SMALL, _HUGE),
        ("rewind", SMALL, f"-{_HUGE}"),
        ("undo", SMALL, "--edits", _HUGE),
        ("restore", SMALL, f"{_HUGE}.0"),
        ("ask", "-p", "hi", "--fork", f"{SMALL}@{_HUGE}"),
        ("show", "x" * 100_000),
        ("show", "x" * 300),
    ],
)
def test_a_huge_argument_is_one_short_line(pal: Pal, words: tuple[str, ...]) -> None:
    small(pal.home)
    result = pal(*words)

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert len(result.stderr) < 2_500
    assert len(pal.json(*words, code=2)["error"]["message"]) <= 2_001


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("delete", "--origin", "codex", "--cwd", "", "--yes"), "--cwd"),
        (("delete", "codex-0", "--model", "", "--yes"), "--model"),
        (("sessions", "--origin", ""), "--origin"),
        (("ask", "-p", "hi", "--resume", ""), "--resume' / '-r"),
        (("ask", "-p", "hi", "--fork", ""), "--fork"),
        (("export", "codex-0", "--to", "claude", "--cwd", ""), "--cwd"),
        (("export", "codex-0", "--to", "markdown", "--out", ""), "--out"),
    ],
)
def test_an_empty_name_is_refused_instead_of_choosing_everything(pal: Pal, words: tuple[str, ...], option: str) -> None:
    Log.create(pal.home.store, SessionOpened("codex-0", origin="codex"), FixedClock(BEGAN)).close()
    result = pal(*words)

    assert (result.exit_code, result.stderr) == (
        2,
        f"pal: {words[0]}: Invalid value for '{option}': it is empty; see `pal {words[0]} --help`\n",
    )
    assert pal.home.store.sessions() == ["codex-0"]


def test_an_empty_path_is_not_the_working_directory(pal: Pal) -> None:
    result = pal("import", "")

    assert (result.exit_code, result.stderr) == (2, "pal: import: a path is empty; `pal import .` searches the working directory\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("ask", "-p", "hi", "--max-usd", "nan"), "ask: Invalid value for '--max-usd': nan is not a finite number; see `pal ask --help`"),
        (
            ("ask", "-p", "hi", "--max-seconds", "inf"),
            "ask: Invalid value for '--max-seconds': inf is not a finite number; see `pal ask --help`",
        ),
        (("ask", "-p", "hi", "--max-usd", "1e9"), "--max-usd: the value is 1000000000.0; it must be a number above 0 and up to 1000000"),
        (("ask", "-p", "hi", "--max-turns", "1000001"), "--max-turns: the value is 1000001; it must be a whole number from 1 to 1000000"),
        (
            ("memory", "run", "--usd", "nan"),
            "memory run: Invalid value for '--usd': nan is not a finite number; see `pal memory run --help`",
        ),
        (("ask", "-p", "hi", "--json-stream", "--json"), ""),
    ],
)
def test_a_limit_that_could_never_be_reached_is_refused_and_starts_nothing(pal: Pal, words: tuple[str, ...], line: str) -> None:
    result = pal(*words)

    assert (result.exit_code, result.stderr) == (2, f"pal: {line}\n" if line else "")
    assert pal.home.store.sessions() == []


@pytest.mark.parametrize("name", ["/dev/zero", "large.txt"])
def test_of_an_attached_file_no_more_is_read_than_may_be_sent(pal: Pal, tmp_path: Path, name: str) -> None:
    large = tmp_path / "large.txt"
    large.write_bytes(b"a" * (4 * 1024 * 1024 + 1))
    path = str(tmp_path / name)

    result = pal("ask", "-p", "hi", "--file", path)

    assert (result.exit_code, result.stderr) == (2, f"pal: {path}: the file has more than 4 MiB; name it in the prompt instead\n")


def test_an_empty_name_of_a_session_is_not_the_working_directory(pal: Pal) -> None:
    result = pal("show", "")
    assert (result.exit_code, result.stderr) == (
        2,
        f"pal: {pal.home.store.name}: the name of the session is empty; `pal sessions` lists them\n",
    )


@pytest.mark.parametrize("words", [("",), ("*",), ('"',), ("-",)])
def test_a_search_for_no_word_says_so(pal: Pal, words: tuple[str, ...]) -> None:
    small(pal.home)
    result = pal("search", "--", *words)
    assert (result.exit_code, result.stderr) == (2, "pal: search: there is no word to look for; see `pal search --help`\n")


def test_an_export_into_a_folder_that_is_not_there_names_the_folder(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    path = tmp_path / "missing" / "page.html"
    result = pal("export", SMALL, "--to", "html", "--out", str(path))
    assert (result.exit_code, result.stderr) == (2, f"pal: {path}: cannot write it: there is no folder {path.parent}\n")
