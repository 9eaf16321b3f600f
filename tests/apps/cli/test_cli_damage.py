import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pal_runs import SMALL, Pal, edited

_COMMANDS = (
    ("show", SMALL),
    ("show", SMALL, "--json"),
    ("show", SMALL, "--request", "2"),
    ("context", SMALL),
    ("undo", SMALL, "--dry-run"),
    ("rewind", SMALL, "-1"),
    ("restore", SMALL, "6.0"),
    ("sessions",),
    ("search", "timeout"),
    ("doctor",),
    ("verify", SMALL, "--repair"),
)


def _home_data() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        home = Pal(Path(folder)).home
        edited(home)
        return home.store.path_of(SMALL).read_bytes()


DATA = _home_data()


@settings(max_examples=40, deadline=None)
@given(place=st.integers(0, len(DATA) - 1), noise=st.binary(max_size=6), cut=st.integers(0, 40), with_checkpoint=st.booleans())
def test_damage_is_reported_in_one_line_and_never_as_a_traceback(place: int, noise: bytes, cut: int, with_checkpoint: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pal = Pal(Path(folder))
        edited(pal.home)
        path = pal.home.store.path_of(SMALL)
        if not with_checkpoint:
            path.with_suffix(".checkpoint").unlink()
        path.write_bytes(DATA[:place] + noise + DATA[place + cut :])

        for words in _COMMANDS:
            result = pal(*words)
            assert result.exit_code in {0, 1, 2}
            reported = result.stdout if "--json" in words else result.stderr
            assert result.exit_code != 2 or reported.count("\n") == 1


def test_a_log_with_a_hole_in_it_says_where_and_what_to_do(pal: Pal) -> None:
    edited(pal.home)
    path = pal.home.store.path_of(SMALL)
    path.with_suffix(".checkpoint").unlink()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5] + lines[6:]))

    assert pal("show", SMALL).stderr == f"pal: {path}, after byte 0: event 6 stands where event 5 should be; see `pal verify`\n"
    assert pal("verify", SMALL, "--repair").exit_code == 0
    assert pal("show", SMALL).exit_code == 0


@pytest.mark.parametrize("word", ["", "..", "../x", "~nobody-here/x", "x" * 5_000, "a\0b", "/", "2031*", "."])
def test_no_name_of_a_session_leads_out_of_the_home_or_to_a_traceback(pal: Pal, word: str) -> None:
    edited(pal.home)

    for command in ("show", "fork", "undo", "context"):
        result = pal(command, word)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_an_error_of_the_system_is_one_value_for_programs(pal: Pal) -> None:
    assert pal.json("verify", "x" * 5_000, code=2)["error"]["message"] == "File name too long"
