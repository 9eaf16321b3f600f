"""The real world of sources: files, folders, git, date and pages, each within its bounds."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from workplace import work

from palimpsest.coding.world import FETCH_SECONDS, LocalWorld, git_facts, local_timezone, session_state, unconfined
from palimpsest.core.errors import StoreError
from palimpsest.policies.named import profile
from palimpsest.sources.instructions import claude_files, configured_files
from palimpsest.sources.source import FolderEntry, GitFacts, SessionState
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.shadow_git import borrowed_git

pytestmark = pytest.mark.machine

NOON = 1_700_000_000_000


def world(cwd: Path, **options: Any) -> LocalWorld:
    return LocalWorld(
        SessionState(cwd=cwd.as_posix(), home=(cwd / "home").as_posix()),
        FixedClock(NOON),
        **{"hides": lambda _: False, "wrap": unconfined, **options},
    )


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgSign=false")
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def test_a_file_is_read_up_to_the_limit_and_what_is_no_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("hello")
    os.mkfifo(tmp_path / "pipe")
    here = world(tmp_path)

    assert here.read(f"{tmp_path}/a.md", 100) == b"hello"
    assert here.read(f"{tmp_path}/a.md", 2) == b"he"
    assert [here.read(f"{tmp_path}/{name}", 9) for name in ("missing", "pipe", "", "x\0y")] == [None, None, None, None]


def test_entries_are_sorted_and_a_link_to_a_folder_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").touch()
    (tmp_path / "c").symlink_to(tmp_path / "b")

    assert world(tmp_path).entries(str(tmp_path)) == (
        FolderEntry("a", is_folder=False),
        FolderEntry("b", is_folder=True),
        FolderEntry("c", is_folder=False),
    )
    assert world(tmp_path).entries(f"{tmp_path}/a") == ()


def test_links_are_followed_and_what_is_not_there_has_no_real_path(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    real = tmp_path.resolve()
    assert [world(tmp_path).real_path(f"{tmp_path}/{name}") for name in ("link", "loop", "gone")] == [f"{real}/a", None, None]


def test_patterns_find_files_below_a_folder(tmp_path: Path) -> None:
    for name in ("a.md", "b.txt", "docs/c.md", "docs/deep/d.md", "node_modules/e.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    here = world(tmp_path)

    def names(pattern: str) -> list[str]:
        return [path.removeprefix(f"{tmp_path}/") for path in here.glob(str(tmp_path), pattern)]

    assert names("*.md") == ["a.md"]
    assert names("docs/*.md") == ["docs/c.md"]
    assert names("**/*.md") == ["a.md", "docs/c.md", "docs/deep/d.md"]


def test_git_gives_branch_status_and_commits_and_nothing_outside_of_a_repository(tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    (repository / "a").write_text("1")
    git(repository, "add", "a")
    git(repository, "commit", "-q", "-m", "first line\n\nbody")
    git(repository, "switch", "-q", "-c", "topic")
    (repository / "b").touch()
    facts = git_facts(str(repository), unconfined)

    assert facts is not None
    assert (facts.branch, facts.main_branch, facts.status) == ("topic", "main", ("?? b",))
    assert [line.partition(" ")[2] for line in facts.commits] == ["first line"]
    assert git_facts(str(tmp_path), unconfined) is None
    assert git_facts(f"{tmp_path}/missing", unconfined) is None


UNREAD = ("(unknown: git did not answer, or the repository leads out of its folder)",)


def repository(folder: Path) -> Path:
    """A repository with a commit of one file, which has changed since without a change of its size."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a").write_text("1")
    git(folder, "add", "a")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "a").write_text("2")
    return folder


def test_the_settings_of_a_repository_change_nothing_of_what_is_shown(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    before = git_facts(str(place), unconfined)
    git(place, "config", "core.fsmonitor", "false")
    git(place, "config", "status.branch", "true")
    git(place, "config", "log.showSignature", "true")

    assert before is not None
    assert (before.branch, before.main_branch, before.status, len(before.commits)) == ("main", "main", (" M a",), 1)
    assert git_facts(str(place), unconfined) == before


def test_a_work_tree_and_a_submodule_show_their_own_state(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    git(place, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "tree"))
    outer = repository(tmp_path / "outer")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(place), "inner")
    (tmp_path / "tree" / "new").touch()
    (outer / "inner" / "a").unlink()
    facts = [git_facts(str(folder), unconfined) for folder in (tmp_path / "tree", outer / "inner", outer)]

    assert [(each.branch, each.status, len(each.commits)) for each in facts if each is not None] == [
        ("topic", ("?? new",), 1),
        ("main", (" D a",), 1),
        # What is in a submodule is not asked from outside.
        ("main", ("A  .gitmodules", " M a"), 1),
    ]


def test_a_repository_that_leads_out_of_its_folder_is_unknown(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    (place / ".git/commondir").write_text("../other\n")
    assert git_facts(str(place), unconfined) == GitFacts("(unknown)", "", UNREAD)


def test_a_repository_with_a_named_pipe_among_its_references_is_unknown_at_once(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    deep = place / ".git/refs/tags" / "deep"
    (place / ".git/refs/heads/gone").symlink_to("nothing")
    assert git_facts(str(place), unconfined) != GitFacts("(unknown)", "", UNREAD)
    deep.mkdir(parents=True)
    os.mkfifo(deep / "pipe")
    # Git would wait for the other end until its time is over.
    with pytest.raises(StoreError, match="this is not a regular file"), borrowed_git(place, seconds=600):
        pass
    assert git_facts(str(place), unconfined) == GitFacts("(unknown)", "", UNREAD)


def test_git_gets_no_key_of_the_environment_and_runs_where_it_is_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "k-secret")
    place = repository(tmp_path / "repo")
    program = ("sh", "-c", f'env >> {tmp_path}/seen; exec "$@"', "sh")

    assert git_facts(str(place), lambda arguments: (*program, *arguments)) is not None
    seen = (tmp_path / "seen").read_text()
    assert "GIT_TERMINAL_PROMPT=0" in seen
    assert "k-secret" not in seen


def test_a_long_status_is_cut_and_the_rest_of_what_git_says_is_kept(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    for number in range(800):
        (place / f"{number:03}{'x' * 100}").touch()
    facts = git_facts(str(place), unconfined)

    assert facts is not None
    assert (facts.branch, facts.main_branch, len(facts.commits)) == ("main", "main", 1)
    assert facts.status == (" M a", *(f"?? {number:03}{'x' * 100}" for number in range(199)))


def test_a_command_of_git_that_does_not_end_is_killed_and_the_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = repository(tmp_path / "repo")
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    stuck = f'case "$*" in *"status --porcelain"*) tail -f /dev/null;; *) exec {shutil.which("git")} "$@";; esac'
    program.write_text(f"#!/bin/sh\n{stuck}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    facts = git_facts(str(place), unconfined)

    assert facts is not None
    assert (facts.branch, facts.main_branch, facts.status, len(facts.commits)) == ("main", "main", UNREAD, 1)


def test_git_is_asked_once_for_an_observation(tmp_path: Path) -> None:
    here = world(tmp_path)
    assert here.git() is None
    git(tmp_path, "init", "-q", "-b", "main")

    assert here.git() is None
    assert here.observing(here.state).git() == GitFacts("main")


def test_the_date_is_that_of_the_clock_without_a_time_of_day(tmp_path: Path) -> None:
    assert world(tmp_path).today() in {"2023-11-14", "2023-11-15"}


class Pages(BaseHTTPRequestHandler):
    """Serves `/page`, redirects `/moved` to it, and fails otherwise."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Host"]))  # type: ignore[attr-defined]
        found = {"/page": 200, "/moved": 302}.get(self.path, 404)
        self.send_response(found)
        if found == 302:
            self.send_header("Location", "/page")
        self.end_headers()
        self.wfile.write("rules über alles".encode() if found == 200 else b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the parent
        pass


@contextmanager
def served() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    with HTTPServer(("127.0.0.1", 0), Pages) as server:
        asked: list[tuple[str, str]] = []
        server.asked = asked  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.states("OC-35")
def test_a_page_is_fetched_once_within_its_limit_and_failures_add_nothing(tmp_path: Path) -> None:
    with served() as (address, asked):
        here = world(tmp_path, private_pages=True)
        host = address.removeprefix("http://")

        assert here.fetch(f"{address}/moved", 1_000) == "rules über alles"
        assert here.fetch(f"{address}/page", 7) == "rules \ufffd"
        assert here.fetch(f"{address}/missing", 1_000) is None
        assert here.observing(here.state).fetch(f"{address}/missing", 1_000) is None
        assert asked == [("/moved", host), ("/page", host), ("/page", host), ("/missing", host)]
        assert [file.text for file in configured_files(here, (f"{address}/moved", f"{address}/missing"))] == ["rules über alles"]
        assert here.observing(here.state).unfetched == {f"{address}/missing": "the server answered 404"}


@pytest.mark.states("OC-35")
def test_a_dead_page_costs_at_most_its_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        here = world(tmp_path, private_pages=True, fetch_seconds=0.2)

        page = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        assert here.fetch(page, 10) is None
        assert here.unfetched == {page: "it took more than 0.2 seconds"}
    assert FETCH_SECONDS == 5.0
    assert {field.name: field.default for field in fields(LocalWorld)}["fetch_seconds"] == FETCH_SECONDS


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254", "0.0.0.0"])  # noqa: S104  # a name only
def test_private_addresses_are_not_asked(tmp_path: Path, host: str) -> None:
    with served() as (address, asked):
        port = address.rpartition(":")[2]

        assert world(tmp_path).fetch(f"http://{host}:{port}/page", 100) is None
        assert asked == []


def test_a_file_or_a_page_of_another_scheme_is_not_fetched(tmp_path: Path) -> None:
    assert world(tmp_path, private_pages=True).fetch("file:///etc/passwd", 100) is None
    assert world(tmp_path, private_pages=True).fetch("http://", 100) is None


def test_the_state_of_a_session_holds_no_variable_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    monkeypatch.setenv("SHELL", "/bin/zsh")
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    session = work(profile("palimpsest"))
    state = session_state(session, tmp_path, mode="plan")

    assert (state.cwd, state.shell_name, state.timezone) == (str(tmp_path.resolve()), "zsh", "Asia/Shanghai")
    assert (state.model, state.window, state.mode) == ("claude-sonnet-4-5", session.card.window, "plan")
    assert "sk-ant-secret" not in repr(state)
    monkeypatch.setenv("TZ", "<secret>0")
    assert local_timezone() != "<secret>0"


def test_instruction_files_of_a_real_project_do_not_lead_out_of_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (tmp_path / "secret.md").write_text("key")
    (project / "CLAUDE.md").write_text("@docs/a.md @../secret.md @link.md")
    (project / "docs").mkdir()
    (project / "docs" / "a.md").write_text("style")
    (project / "link.md").symlink_to(tmp_path / "secret.md")

    assert [file.text for file in claude_files(world(project))] == ["@docs/a.md @../secret.md @link.md", "style"]
