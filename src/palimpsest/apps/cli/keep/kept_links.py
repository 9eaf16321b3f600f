"""Links of logs that were kept outside of the home: reads them from a word or a file, and notes them in git."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click

from palimpsest.apps.cli.opening.home import AnyHome, expand_path
from palimpsest.apps.cli.opening.settings import settings_of
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.format.texts import counted
from palimpsest.core.log.verify import KeptLink
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.stores.snapshots.repository import borrowed_git

NOTES = "palimpsest"
_LINK = lazy_pattern(r"(?:(\d{1,18}):)?([0-9a-f]{64})")
# A line of `pal verify` has about 120 bytes, so this holds the links of half a million sessions.
_MOST_BYTES = 64 * 1024 * 1024
_GIT_SECONDS = 20.0
# The name and address of the user are in settings that are not read.
_AUTHOR = ("user.name=palimpsest", "user.email=notes@palimpsest.invalid")


class SessionLink(NamedTuple):
    """A session, its working folder, and the number and link of its last event that was checked or exported."""

    session: str
    folder: str
    seq: int
    link: str


def link_text(seq: int, link: str) -> str:
    """Return a link as it is printed and given to `--against`: the number of its event and the link itself."""
    return f"{seq}:{link}"


def kept_links(word: str, sessions: list[str]) -> dict[str, KeptLink]:
    """Return the kept links by session: of one session if the word is a link, else of those that the file of that name lists.

    In a file, a line lists the link of a session if it has the id and the link as two of its words; the last such line counts, so that
    the output of `pal verify` is such a file. Raises `BadInput` if the word is neither.
    """
    found = _kept_link(word)
    if found is not None:
        if len(sessions) != 1:
            raise BadInput(f"a link belongs to one session, and these are {len(sessions):,}; name one, or give a file", where="--against")
        return {sessions[0]: found}
    wanted = set(sessions)
    links: dict[str, KeptLink] = {}
    for line in _lines(expand_path(word)):
        words = line.split()
        kept = next((kept for each in words if (kept := _kept_link(each)) is not None), None)
        links.update((each, kept) for each in words if each in wanted and kept is not None)
    if not links:
        raise BadInput("the file has no link of these sessions; `pal verify` prints lines as it should have", where=word)
    return links


def _kept_link(word: str) -> KeptLink | None:
    match = _LINK.fullmatch(word)
    return None if match is None else KeptLink(int(match[1] or -1), match[2])


def _lines(path: Path) -> list[str]:
    try:
        if not path.is_file():
            raise BadInput("this is neither a link (NUMBER:64 hex digits) nor a file", where=str(path))
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise BadInput(f"it cannot be read: {error.strerror or error}", where=str(path)) from error


def notes_links(home: AnyHome) -> bool:
    """Return whether the user's setting `files.git_notes` is on."""
    return settings_of(home).config.files.git_notes


def note_links(links: Sequence[SessionLink], *, explain: bool) -> None:
    """Note links in the git of the folders of their sessions, and print what was noted to standard error.

    With `explain`, because the user asked for it now, each link that could not be noted is a line with the reason, else all are one line.
    """
    failed = 0
    for found in links:
        try:
            if _note_in_git(found):
                click.echo(plain(f"pal: noted in {found.folder or '.'}: {_note_line(found)}"), err=True)
        except StoreError as error:
            failed += 1
            if explain:
                click.echo(plain(f"pal: {found.session} was not noted: {error}"), err=True)
    if failed and not explain:
        some = counted(failed, "session")
        click.echo(f"pal: {some} not noted (files.git_notes): no git with a commit there; `pal verify --note` says more", err=True)


def _note_line(found: SessionLink) -> str:
    return f"pal session {found.session} {link_text(found.seq, found.link)}"


def _note_in_git(found: SessionLink) -> bool:
    """Add the link to the note of the newest commit of the session's folder; return false if the note has it already.

    Notes are apart from commits, branches and files, and are not pushed unless the user does so. Raises `StoreError` if git fails.
    """
    line = _note_line(found)
    with borrowed_git(Path(found.folder or "."), seconds=_GIT_SECONDS) as git:
        if git is None:
            raise StoreError("there is no git repository, or no git", where=found.folder or ".")
        notes = ("notes", f"--ref={NOTES}")
        # Git would write to the branch that such a name stands for.
        target = b""
        with suppress(StoreError):
            target = git.run("symbolic-ref", "-q", f"refs/notes/{NOTES}").strip()
        if target:
            raise StoreError(
                f"refs/notes/{NOTES} stands for {target.decode('utf-8', 'replace')}, which is not changed", where=found.folder or "."
            )
        # An unknown commit fails here; one without a note does in `show`.
        commit = git.run("rev-parse", "--verify", "HEAD^{commit}").decode().strip()
        with suppress(StoreError):
            if line in git.run(*notes, "show", commit).decode("utf-8", "replace").splitlines():
                return False
        git.run(*notes, "append", "-m", line, commit, settings=_AUTHOR)
    return True
