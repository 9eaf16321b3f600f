import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pal_runs import Pal

SHORT = ("--tokens", "60000")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The demo as it is without options, told as JSON; once, for it takes seconds."""
    folder = tmp_path_factory.mktemp("demo")
    where = ("--html", str(folder / "report.html"), "--picture", str(folder / "picture.svg"))
    outcome: dict[str, Any] = Pal(folder / "home").json("demo", *where)
    return outcome


def test_the_demo_folds_undoes_and_proves_that_nothing_was_lost(whole: dict[str, Any]) -> None:
    assert whole["same"] is whole["verified"] is whole["ok"] is True
    assert whole["digests"]["before"] == whole["digests"]["after_undo"] != whole["digests"]["folded"]
    assert [edit["policy"] for edit in whole["edits"]] == ["fold"]
    sizes = whole["edits"][0]["tokens_before"], whole["edits"][0]["tokens_after"]
    assert whole["tokens"] == {"before": sizes[0], "folded": sizes[1], "after_undo": sizes[0]}
    assert sizes[1] < sizes[0] / 2
    assert whole["request_bytes"]["folded"] < whole["request_bytes"]["before"] / 2
    assert whole["edits"][0]["hidden"]["user_messages"] == 0


def test_the_demo_compares_profiles_of_which_at_least_two_fold(whole: dict[str, Any]) -> None:
    found = whole["profiles"]

    assert list(found) == ["palimpsest", "claude-code-2.1.325", "codex-0.166", "opencode-1.18", "none"]
    assert sum(one["folds"] > 0 for one in found.values()) >= 2
    assert found["none"]["usd"] > found["palimpsest"]["usd"] > 0
    assert [one["invalid"] for one in found.values()] == [0] * 5
    assert found["palimpsest"]["survival"]["user_messages"] == 1


def test_the_demo_writes_a_page_about_what_it_found(whole: dict[str, Any]) -> None:
    page = Path(whole["report"]).read_text(encoding="utf-8")

    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</html>\n")
    assert f"${whole['profiles']['palimpsest']['usd']:.2f} against ${whole['profiles'][whole['against']]['usd']:.2f}" in page
    assert "//" not in page


def test_the_demo_draws_the_picture_if_asked(whole: dict[str, Any]) -> None:
    drawn = Path(whole["report"]).with_name("picture.svg").read_text(encoding="utf-8")

    assert f"sha256 {whole['digests']['before'][:24]}…" in drawn
    assert f"${whole['profiles']['palimpsest']['usd']:.2f}" in drawn


def test_the_demo_is_readable_at_eighty_columns_without_colour_and_leaves_nothing_but_its_page(pal: Pal, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    lines = pal("demo", *SHORT, "--html", str(tmp_path / "page.html"), NO_COLOR="1").stdout.splitlines()

    assert set(tmp_path.iterdir()) - before == {tmp_path / "page.html"}
    assert not pal.home.folder.exists()
    assert "the same, byte for byte: nothing was lost" in lines
    (made,) = re.findall(r"^a synthetic session: [\d,]+ events, ([\d,]+) tokens, ", "\n".join(lines), re.MULTILINE)
    assert int(SHORT[1]) <= int(made.replace(",", ""))
    assert any(re.match(r"the view: user (\d+) → \1, ", line) for line in lines)
    assert any(line.startswith("  │ [Work so far") for line in lines)
    assert [line for line in lines if "\x1b" in line] == []
    wide = [line for line in lines if sum(2 if ord(letter) > 0x2E80 else 1 for letter in line) > 80]
    assert [line for line in wide if str(tmp_path) not in line] == []


@pytest.mark.parametrize("option", ["--html", "--picture"])
def test_a_path_that_cannot_be_written_is_reported_before_any_work(pal: Pal, tmp_path: Path, option: str) -> None:
    place = tmp_path / ("x" * 300)
    result = pal("demo", "--html", str(tmp_path / "page.html"), option, str(place))

    assert (result.exit_code, result.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert result.stderr == f"pal: {place}: this path cannot be written (file name too long); set another one with {option}\n"


def test_a_file_that_is_no_page_of_a_replay_is_not_written_over(pal: Pal, tmp_path: Path) -> None:
    mine, folder = tmp_path / "report.html", tmp_path / "there" / "report.html"
    mine.write_text("my own report", encoding="utf-8")

    refused, lost = pal("demo", *SHORT, "--html", str(mine)), pal("demo", *SHORT, "--html", str(folder))

    assert (refused.exit_code, mine.read_text(encoding="utf-8")) == (2, "my own report")
    assert "is not a report of a replay; name another one" in refused.stderr
    assert (lost.exit_code, "there is no such folder" in lost.stderr) == (2, True)


@pytest.mark.parametrize("more", [(), ("--seed", "3")])
def test_every_command_that_the_demo_suggests_works_on_what_it_kept(tmp_path: Path, more: tuple[str, ...]) -> None:
    pal = Pal(tmp_path / "a home")
    lines = pal("demo", *SHORT, "--html", str(tmp_path / "page.html"), "--home", str(pal.home.folder), *more).stdout.splitlines()
    suggested = [shlex.split(line) for line in lines if line.startswith("  PAL_HOME=")]

    assert [words[2] for words in suggested] == ["context", "audit", "show", "search", "undo", "rewind", "verify"]
    for place, _, *words in suggested:
        result = pal(*words, PAL_HOME=place.removeprefix("PAL_HOME="))
        assert (result.exit_code, result.stdout != "") == (0, True)


def test_a_demo_that_is_kept_can_be_played_with(pal: Pal, tmp_path: Path) -> None:
    folder: Path = pal.home.folder
    outcome = pal.json("demo", *SHORT, "--home", str(folder), "--html", str(tmp_path / "page.html"))
    again = pal.json("demo", *SHORT, "--home", str(folder), "--html", str(tmp_path / "page.html"))
    assert [one["session"] for one in (outcome, again)] == ["demo-8-fork", "demo-8-2-fork"]
    # The same seed tells the same story, and another one another.
    other = pal.json("demo", *SHORT, "--seed", "2", "--html", str(tmp_path / "page.html"))
    assert (again["digests"], again["profiles"]) == (outcome["digests"], outcome["profiles"])
    assert other["digests"] != outcome["digests"]
    outcome, fork = again, again["session"]
    calls = sum(event["body"]["type"] == "call_started" for event in pal.json("show", fork)["events"])

    assert pal.json("show", fork)["session"] == fork
    assert pal("show", fork, "--request", str(calls)).stderr.startswith("verified")
    assert [(edit["undone"], edit["hidden"]) for edit in pal.json("audit", fork)] == [
        (undone, outcome["edits"][0]["hidden"]) for undone in (True, False)
    ]
    assert pal.json("context", fork)["used"] == outcome["tokens"]["folded"]
    assert pal.json("undo", fork)["tokens_after"] == pal.json("context", fork)["used"] == outcome["tokens"]["before"]
    assert pal("rewind", fork, "-1").exit_code == 0
    assert pal("verify", fork).exit_code == 0
    assert pal.json("search", "file by file")[0]["session"] == outcome["session"]
    assert pal.json("replay", outcome["recording"], "--profiles", "none")["total"]["none"] == outcome["profiles"]["none"] | {
        "probes": {"cycles": {}}
    }
