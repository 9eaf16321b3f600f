import shlex
from pathlib import Path

import pytest
from pal_runs import Pal


def test_the_demo_folds_undoes_and_proves_that_nothing_was_lost(pal: Pal) -> None:
    told = pal.json("demo", "--events", "400")

    assert told["same"] is told["verified"] is told["ok"] is True
    assert told["digests"]["before"] == told["digests"]["after_undo"] != told["digests"]["folded"]
    assert told["tokens"]["folded"] == told["edit"]["tokens_after"] < told["tokens"]["before"] / 2
    assert told["request_bytes"]["folded"] < told["request_bytes"]["before"] / 2
    assert told["edit"]["loss"].get("user_messages", 0) == 0
    assert not pal.home.folder.exists()


def test_the_same_seed_tells_the_same_story(pal: Pal) -> None:
    first, second, other = (pal.json("demo", "--events", "300", "--seed", seed)["digests"] for seed in ("1", "1", "2"))

    assert first == second != other


def test_the_demo_is_readable_at_eighty_columns_without_colour(pal: Pal) -> None:
    lines = pal("demo", "--events", "400", NO_COLOR="1").stdout.splitlines()

    assert "the same, byte for byte: nothing was lost" in lines
    assert [line for line in lines if "\x1b" in line] == []
    assert max(sum(2 if ord(letter) > 0x2E80 else 1 for letter in line) for line in lines) <= 80


@pytest.mark.parametrize("more", [(), ("--events", "150", "--seed", "3")])
def test_every_command_that_the_demo_suggests_works_on_what_it_kept(tmp_path: Path, more: tuple[str, ...]) -> None:
    pal = Pal(tmp_path / "a home")
    lines = pal("demo", "--home", str(pal.home.folder), *more).stdout.splitlines()
    suggested = [shlex.split(line) for line in lines if line.startswith("  PAL_HOME=")]

    assert [words[2] for words in suggested] == ["context", "show", "search", "undo", "rewind", "verify"]
    for place, _, *words in suggested:
        result = pal(*words, PAL_HOME=place.removeprefix("PAL_HOME="))
        assert (result.exit_code, result.stdout != "") == (0, True)


def test_a_demo_that_is_kept_can_be_played_with(pal: Pal) -> None:
    folder: Path = pal.home.folder
    told = pal.json("demo", "--events", "400", "--home", str(folder))
    calls = sum(event["body"]["type"] == "call_started" for event in pal.json("show", "last")["events"])

    assert pal.json("show", "last")["session"] == told["session"]
    assert pal("show", "last", "--request", str(calls)).stderr.startswith("verified")
    assert pal.json("undo", "last")["tokens_after"] > told["tokens"]["folded"]
    assert pal("rewind", "last", "-1").exit_code == 0
    assert pal("verify", "last").exit_code == 0
    assert pal.json("search", "file by file")[0]["session"] == told["session"]
