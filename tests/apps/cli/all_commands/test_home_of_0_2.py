"""A home that version 0.2.0 made opens as it is, and every command still says of it what 0.2.0 said.

`tests/golden/home-0.2` was made by that version: sessions with tools, an edit undone, a fold, masks, a restore, a rewind, a fork and a
sub-agent, one of a gateway, imports of Claude Code and Codex, notes of each kind with their past, an index, settings, roles, trust, plugs.
`printed/` is what its commands printed, with the words of each command in `commands.json`. A value may differ only for a reason in
`CHANGED`, an export for one in `CHANGED_EXPORTS`; its bytes since then are in `since/`.
"""

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import Result
from model_server import model_saying
from pal_runs import Pal

PACKED = Path(__file__).parents[3] / "golden" / "home-0.2" / "home.tar.xz"
USER, PROJECT = "/home/dev", "/project"

# What may differ: a command and a place in its value as patterns, and why.
CHANGED: tuple[tuple[str, str, str], ...] = (
    ("sessions", r"\[.*\]\.cost_usd", "the cost of a session includes its sub-agents"),
    ("context-.*", r"\.(by_kind|by_source)\..*|\.items\[.*\]\.tokens", "declarations of tools no longer distort the count of tokens"),
    ("preview-claude", r".*\.(at|tokens_after|price_usd|saved_usd_per_call)", "a preview is made now, by the fold of today"),
    ("undo", r"\.tokens_after", "declarations of tools no longer distort the count of tokens"),
    ("context-claude", r"\.(window|free)", "the card of claude-sonnet-4-6 has its window of November 2026"),
    ("context-(work|fork|child|gateway|listings|wire)", r"\.(used|free|buffer)", "the buffer is that of the profile of the session"),
    ("cards", r".*\.(window|reply|input_limit|thinking|system_messages|prices\..*)", "cards are those of November 2026"),
    ("jobs", r"\[(extract_notes|running_notes)\]", "jobs that ask a model are off by memory.jobs, as the settings of the home say"),
    ("verify", r"\.events", "logs of notes are verified too"),
    ("config", r"\[files\.git_notes\]", "links are noted in git by a line of the shell, and the setting has no effect any more"),
    ("memory-(list|team|export|show-.*)", r".*\.(trust|by)", "notes of a repository have one trust"),
    ("plug", r".*\.(installed|trusted|mcp|problem)", "hooks have fewer seconds, and the program is elsewhere: both are plugged in again"),
)
# What depends on the day on which it is asked, and may differ.
OF_TODAY: tuple[tuple[str, str, str], ...] = (
    ("memory-status", r"\.(backlog|skipped.*|next_at|day|unindexed)", "it is counted from today, and by the times of files"),
    ("memory-search", r".*\.score", "newer notes count for a little more, as seen from today"),
)
CHANGED_EXPORTS: Mapping[str, str] = {
    "export-claude": "results that an edit covers are stubs in exports to Claude Code",
    "export-markdown": "what an edit saves at once is no negative price",
    "export-html": "what an edit saves at once is no negative price",
}
# Values of a list are found again by the first of these fields that all of them have, each another.
NAMES = ("id", "key", "name", "session", "job", "agent")


class OldHome(NamedTuple):
    """The home of a user and a project beside it, and what 0.2.0 printed about them."""

    folder: Path

    @property
    def pal(self) -> Pal:
        return Pal(self.folder / "user" / "pal")

    @property
    def commands(self) -> Mapping[str, Any]:
        found: dict[str, Any] = json.loads(self.printed("commands.json"))
        return found

    def session(self, title: str) -> str:
        """The session with this title."""
        return str(next(row["id"] for row in json.loads(self.printed("sessions")) if row["title"] == title))

    def printed(self, name: str, version: str = "printed") -> str:
        """What 0.2.0 printed, or with `since` what is printed since then."""
        return (self.folder / version / name).read_text()

    def run(self, *words: str) -> Result:
        """Run a command of today, without a model."""
        return self.pal(*words, HOME=str(self.folder / "user"), PAL_OFFLINE="1", PAL_RETRIES="")

    def now(self, name: str) -> str:
        """What the same words print today, with the folders named as they were."""
        done = self.run(*self.commands[name]["words"])
        assert done.exit_code == self.commands[name]["code"], (name, done.output)
        return done.stdout.replace(str(self.folder / "user"), USER).replace(str(self.folder / "project"), PROJECT)


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldHome:
    with tarfile.open(PACKED) as packed:
        packed.extractall(tmp_path, filter="data")
    home, project = tmp_path / "user" / "pal", tmp_path / "project"
    # The home and the project lie elsewhere than they did: files of trust are named by a digest of the project.
    (trusted,) = (home / "trust").glob("*.rules")
    named = hashlib.sha256(os.fsencode(os.path.realpath(project))).hexdigest()[:32]
    (home / "trust" / f"{named}.rules").write_text(trusted.read_text().replace(f"# {PROJECT}\n", f"# {project}\n"))
    trusted.unlink()
    for place in (home / "plugins", home / "bin", tmp_path / "user" / ".claude", tmp_path / "user" / ".codex"):
        for file in (each for each in place.rglob("*") if each.is_file()):
            file.write_text(file.read_text().replace(USER, str(tmp_path / "user")))
    monkeypatch.chdir(project)
    return OldHome(tmp_path)


def _pairs(old: list[Any], new: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    name = next((name for name in NAMES if _is_unique(name, old)), "")
    if not name:
        yield from ((f"[{place}]", each, new[place] if place < len(new) else None) for place, each in enumerate(old))
        return
    for each in old:
        same = [other for other in new if other.get(name) == each[name]]
        yield f"[{each[name]}]", each, same[0] if same else None


def _is_unique(name: str, values: list[Any]) -> bool:
    return all(isinstance(each, dict) and name in each for each in values) and len({str(each[name]) for each in values}) == len(values) > 0


class Difference(NamedTuple):
    """A place in a value, and what stood and stands there."""

    place: str
    then: Any
    now: Any


def _differences(old: Any, new: Any, place: str = "") -> Iterator[Difference]:
    """Where a value lacks what it had, or has something else; what was added is no difference."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            yield from _differences(value, new.get(key), f"{place}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        for inner, before, after in _pairs(old, new):
            yield from _differences(before, after, place + inner)
    elif isinstance(old, float) and isinstance(new, float):
        yield from [] if new == pytest.approx(old) else [Difference(place, old, new)]
    elif old != new:
        yield Difference(place, old, new)


def _is_bytes(name: str) -> bool:
    """Whether what a command prints is a file or a request instead of facts about the home."""
    return name == "request" or name.startswith("export-")


def _reasons(name: str, place: str) -> list[str]:
    """Why what a command says at a place may differ."""
    return [why for command, where, why in (*CHANGED, *OF_TODAY) if re.fullmatch(command, name) and re.fullmatch(where, place)]


def _kept(folder: Path) -> dict[str, bytes]:
    """The logs, blobs, notes and settings of a home."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix in {".jsonl", ".md", ".toml", ".rules"}]
    files += [path for path in (folder / "blobs").rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_every_command_says_of_a_home_of_0_2_what_0_2_said_and_changes_nothing(old: OldHome) -> None:
    before, used, wrong = _kept(old.pal.home.folder), set[str](), list[str]()
    for name in (name for name in old.commands if not _is_bytes(name)):
        for place, was, is_now in _differences(json.loads(old.printed(name)), json.loads(old.now(name))):
            reasons = _reasons(name, place)
            used.update(reasons)
            wrong += [] if reasons else [f"{name}{place}: {was!r:.200} is {is_now!r:.200}"]
    assert not wrong, "\n".join(wrong)
    assert {why for *_, why in CHANGED} <= used, "nothing differs for these reasons any more"
    assert _kept(old.pal.home.folder) == before


def test_exports_and_requests_are_byte_for_byte_those_of_0_2(old: OldHome) -> None:
    for name in filter(_is_bytes, old.commands):
        assert old.now(name) == old.printed(name, "since" if name in CHANGED_EXPORTS else "printed"), name
    assert [name for name in CHANGED_EXPORTS if old.printed(name, "since") == old.printed(name)] == []


def test_every_value_has_the_fields_that_it_had_in_0_2(old: OldHome) -> None:
    # A reason for another value is none for a lost field; fields of a card that have no value are left out.
    lost = []
    for name in (name for name in old.commands if not _is_bytes(name) and name != "cards"):
        fields = _fields(json.loads(old.now(name)))
        lost += [f"{name}{field}" for field in sorted(_fields(json.loads(old.printed(name))) - fields)]
    # Why the pipeline skips a session depends on how old it is today.
    assert [field for field in lost if not field.startswith("memory-status.skipped.")] == []


def _fields(value: Any, place: str = "") -> set[str]:
    if isinstance(value, list):
        return set[str]().union(*(_fields(each, f"{place}[]") for each in value))
    if isinstance(value, dict):
        return {f"{place}.{key}" for key in value}.union(*(_fields(each, f"{place}.{key}") for key, each in value.items()))
    return set()


def test_logs_of_0_2_verify_also_without_their_checkpoints_and_blobs_are_whole(old: OldHome) -> None:
    for checkpoint in old.pal.home.folder.rglob("*.checkpoint"):
        checkpoint.unlink()
    then, now = json.loads(old.printed("verify")), json.loads(old.now("verify"))
    assert now["ok"] is True
    assert list(_differences(then["sessions"], now["sessions"])) == []


def test_the_search_index_of_0_2_is_taken_or_made_anew_with_the_same_hits(old: OldHome) -> None:
    taken = old.now("search-sessions")
    (old.pal.home.folder / "index.sqlite").unlink()
    assert json.loads(old.now("search-sessions")) == json.loads(taken) == json.loads(old.printed("search-sessions"))


def test_a_session_of_0_2_goes_on_and_what_it_had_stays_byte_for_byte(old: OldHome) -> None:
    session = old.session("The test of connect fails")
    log = old.pal.home.folder / "sessions" / f"{session}.jsonl"
    before = log.read_bytes()
    with model_saying("It is 30 seconds.") as model:
        variables = {**model.environment, "WORK_KEY": "key", "HOME": str(old.folder / "user")}
        done = old.pal("-p", "What is the timeout?", "-r", session, "--json", **variables)
    assert (done.exit_code, json.loads(done.stdout)["text"]) == (0, "It is 30 seconds."), done.output
    # The model sees the conversation as it was left: the first prompt, the summary of the fold, the last answer.
    sent = json.dumps(model.asked[0])
    assert [text for text in ("Make the timeout 30 seconds, please.", "Work so far", "It was 10 seconds before.") if text not in sent] == []
    assert log.read_bytes().startswith(before)
    assert json.loads(old.run("verify", session, "--json").stdout)["ok"] is True


def test_a_fold_and_a_note_of_0_2_can_be_undone_and_a_forgotten_note_stays_forgotten(old: OldHome) -> None:
    session = old.session("The test of connect fails")
    (fold,) = (edit for edit in json.loads(old.printed("audit-work")) if edit["policy"] == "fold")
    undone = json.loads(old.run("undo", session, str(fold["event"]), "--yes", "--json").stdout)
    assert undone["brings"] == json.loads(old.printed("undo"))["brings"]
    assert "pluto" not in old.run("memory", "list", "--past", "--json").stdout
    assert not any(b"pluto is" in data or b"called pluto" in data for name, data in _kept(old.pal.home.folder).items() if "memory" in name)
    old.run("memory", "undo", "project_prices_are_in_euros")
    assert (
        json.loads(old.run("memory", "show", "project_prices_are_in_euros", "--json").stdout)["body"].strip()
        == "Prices are in whole euros."
    )
