"""Links of logs that were kept outside of the home: reads them from a word or a file, and notes them in git."""

import subprocess
from pathlib import Path

from palimpsest.apps.cli.opening.home import expand_path
from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.log.verify import KeptLink
from palimpsest.core.tokens.patterns import lazy_pattern

NOTES = "palimpsest"
_LINK = lazy_pattern(r"(?:(\d{1,18}):)?([0-9a-f]{64})")
# A line of `pal verify` has about 120 bytes, so this holds the links of half a million sessions.
_MOST_BYTES = 64 * 1024 * 1024
_GIT_SECONDS = 20


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


def note_in_git(folder: str, session: str, seq: int, link: str) -> str:
    """Add the link to the note of the newest commit of the session's folder, and return the line that was added.

    Notes are apart from commits, branches and files, and are not pushed unless the user does so. Raises `StoreError` if git fails.
    """
    line = f"pal session {session} {link_text(seq, link)}"
    command = ["git", "-C", folder, "notes", f"--ref={NOTES}", "append", "-m", line, "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=_GIT_SECONDS)  # noqa: S603 - no shell, and the folder is one argument
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"git could not be run: {error}", where=folder) from error
    if done.returncode:
        why = done.stderr.strip().splitlines()
        raise StoreError(f"git could not note the link: {why[-1] if why else 'without a reason'}", where=folder)
    return line
