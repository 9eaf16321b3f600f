"""Files of two-stage memory: their forms, generation without a model, checks of a model's files, and the folder on disk."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from palimpsest.core.errors import StoreError
from palimpsest.core.items import Value
from palimpsest.core.redaction import redact
from palimpsest.core.tokens import estimate
from palimpsest.memory.evidence import escaped, iso_time
from palimpsest.memory.note import Note
from palimpsest.memory.summaries import bounded_lines
from palimpsest.stores.files import bounded_text, make_private_folder, store_errors, write_private

HANDBOOK: Final = "MEMORY.md"
SUMMARY: Final = "memory_summary.md"
RAW: Final = "raw_memories.md"
SUMMARIES: Final = "rollout_summaries"
NOTES: Final = "extensions/ad_hoc/notes"
SKILLS: Final = "skills"
MOST_HANDBOOK_TOKENS: Final = 60_000
MOST_SUMMARY_BYTES: Final = 9_999
MOST_SKILL_LINES: Final = 500
MOST_SKILLS: Final = 50
VERSION: Final = "v1"
_PLAIN: Final = ("## User Profile", "## General Tips", "## What's in Memory")
_VERSIONED: Final = ("## User Profile", "## User preferences", "## General Tips", "## What's in Memory")
# What stands below these headings is said of the user, so that it has to be the user's.
_OF_THE_USER: Final = frozenset({"## User Profile", "## User preferences"})
_POINTED: Final = re.compile(r"rollout_summaries/([A-Za-z0-9_.-]+\.md)")
_SKILL_FILE: Final = re.compile(
    r"skills/([a-z0-9][a-z0-9-]{0,40})/(SKILL\.md|(?:scripts|templates|examples)/[A-Za-z0-9][A-Za-z0-9_.-]{0,60})"
)
_KEYWORDS: Final = re.compile(r"^keywords:(.*)$", re.MULTILINE)
_BULLET: Final = re.compile(r"^\s*- (.+)$", re.MULTILINE)
_MOST_LEARNINGS, _MOST_TIPS, _NEWEST_DAYS = 8, 30, 3
# The share of the words of a line about the user that the user must have said.
_LEAST_SAID: Final = 0.5
_NOTHING_YET: Final = "None yet.\n"

Words = Callable[[str], frozenset[str]]


class StoredMemory(Value, frozen=True):
    """What stage one made of a session, as a row of the database keeps it. Times are milliseconds since 1970.

    `user` are words of the user in the session. `selected_at` is the `source_at` with which the last consolidation read it, -1 if it did
    not.
    """

    session: str
    source_at: int
    raw: str
    summary: str
    slug: str
    stem: str
    cwd: str = ""
    branch: str = ""
    user: str = ""
    made_at: int = 0
    uses: int = 0
    last_used: int = 0
    selected_at: int = -1

    @property
    def path(self) -> str:
        """The path of its summary in the folder."""
        return f"{SUMMARIES}/{self.stem}.md"

    @property
    def title(self) -> str:
        """The first heading of its summary."""
        return next((line[2:].strip() for line in self.summary.split("\n") if line.startswith("# ")), self.slug or self.stem)


class AdHocNote(Value, frozen=True):
    """A note that the user asked to keep. `is_of_user` says that it is about the user and in the user's words."""

    name: str
    text: str
    is_of_user: bool


def ad_hoc_note(note: Note) -> AdHocNote:
    """Return a note as consolidation reads it."""
    body = note.body.strip()
    text = body if body.casefold().startswith(note.about.casefold()[:20]) or not note.about else f"{note.about}\n{body}"
    return AdHocNote(note.name, redact(text).strip(), note.kind in ("user", "feedback") and note.trust == "stated")


def summary_file(memory: StoredMemory, *, versioned: bool) -> str:
    """Return the text of the summary of one session."""
    head = [("thread_id", memory.session), ("updated_at", iso_time(memory.source_at)), ("cwd", memory.cwd)]
    head += [("git_branch", memory.branch)] if versioned else []
    lines = [f"{key}: {' '.join(redact(value).split())}" for key, value in head if value.strip()]
    return "\n".join((*lines, "", memory.summary.strip(), ""))


def session_of(text: str) -> str:
    """Return the session that a summary file names; empty if it names none."""
    first = text.partition("\n")[0]
    return first.removeprefix("thread_id: ").strip() if first.startswith("thread_id: ") else ""


def raw_memories(memories: Iterable[StoredMemory]) -> str:
    """Return the raw memories of sessions as one file, latest first."""
    blocks = [
        "\n".join(
            (
                f"## Thread `{each.session}`",
                f"updated_at: {iso_time(each.source_at)}",
                f"cwd: {each.cwd}",
                f"rollout_summary_file: {each.stem}.md",
                "",
                each.raw.strip(),
                "",
            )
        )
        for each in sorted(memories, key=lambda each: (each.source_at, each.session), reverse=True)
    ]
    head = "# Raw Memories\n\nMerged from finished sessions, latest first.\n\n"
    return head + ("\n".join(blocks) or _NOTHING_YET)


def without_threads(text: str, sessions: frozenset[str]) -> str:
    """Return raw memories without those of some sessions, and any other text without the lines that name them."""
    head, *blocks = re.split(r"^(?=## Thread `)", text, flags=re.MULTILINE)
    named = tuple(f"## Thread `{session}`" for session in sessions)
    kept = "".join((head, *(block for block in blocks if not block.startswith(named))))
    return "".join(line for line in kept.splitlines(keepends=True) if not any(f"thread_id={session})" in line for session in sessions))


def rule_handbook(memories: Sequence[StoredMemory]) -> str:
    """Return MEMORY.md as the raw memories alone give it: a group for each folder of work, newest first."""
    groups: dict[str, list[StoredMemory]] = {}
    for each in sorted(memories, key=lambda each: (-each.source_at, each.session)):
        groups.setdefault(each.cwd, []).append(each)
    texts = []
    for cwd, found in groups.items():
        name = cwd.rstrip("/").rpartition("/")[2] or "other work"
        lines = [f"# Task Group: {escaped(name)}", f"scope: sessions in {escaped(cwd) or 'an unknown folder'}", ""]
        for number, each in enumerate(found, 1):
            lines += [f"## Task {number}: {each.title}", "", "### rollout_summary_files", "", _pointer(each), ""]
            lines += ["### keywords", "", f"- {_keywords(each)}", "", "### learnings", "", *_learnings(each), ""]
        texts.append("\n".join((*lines, "## General Tips", "")))
    return bounded_lines("\n".join(texts), MOST_HANDBOOK_TOKENS).strip() + "\n"


def rule_summary(memories: Sequence[StoredMemory], notes: Sequence[AdHocNote], *, versioned: bool, tokens: int) -> str:
    """Return memory_summary.md as sessions and notes alone give it, within its bounds."""
    of_user = [f"- {_one_line(note.text)}" for note in notes if note.is_of_user]
    tips = [f"- {_one_line(note.text)}" for note in notes if not note.is_of_user][:_MOST_TIPS]
    newest = sorted(memories, key=lambda each: (-each.source_at, each.session))
    known = _by_folder(newest) if versioned else _by_day(newest)
    sections = [("## User Profile", of_user), *([("## User preferences", [])] if versioned else []), ("## General Tips", tips)]
    parts = ["\n".join((heading, *lines)) for heading, lines in sections]
    head = "\n\n".join((*([VERSION] if versioned else []), *parts, "## What's in Memory"))
    kept: list[str] = []
    for line in known:
        text = "\n".join((head, *kept, line, "- … more in MEMORY.md", ""))
        if estimate(text) > tokens or len(text.encode()) > MOST_SUMMARY_BYTES:
            kept.append("- … more in MEMORY.md")
            break
        kept.append(line)
    return "\n".join((head, *kept, ""))


def check_handbook(text: str, summaries: frozenset[str]) -> str:
    """Return why a text may not become MEMORY.md; empty if it may. `summaries` are the names of the files that exist."""
    if estimate(text) > MOST_HANDBOOK_TOKENS:
        return f"MEMORY.md has more than {MOST_HANDBOOK_TOKENS:,} tokens"
    blocks = re.split(r"^# ", text, flags=re.MULTILINE)[1:]
    if not blocks or any(not block.startswith("Task Group: ") for block in blocks):
        return "MEMORY.md consists of blocks `# Task Group: …`"
    for block in blocks:
        name = block.partition("\n")[0]
        if not re.search(r"^scope: ", block, re.MULTILINE):
            return f"{name} has no line `scope:`"
        tasks = re.split(r"^## ", block, flags=re.MULTILINE)[1:]
        if not any(task.startswith("Task ") for task in tasks):
            return f"{name} has no `## Task n: …`"
        for task in tasks:
            missing = [each for each in ("rollout_summary_files", "keywords", "learnings") if f"### {each}" not in task]
            if task.startswith("Task ") and missing:
                return f"{name} has a task without `### {missing[0]}`"
    lost = next((name for name in _POINTED.findall(text) if name not in summaries), "")
    return f"MEMORY.md names {SUMMARIES}/{lost}, which does not exist" if lost else ""


def check_summary_page(text: str, *, versioned: bool) -> str:
    """Return why a text may not become memory_summary.md; empty if it may."""
    lines = text.split("\n")
    if versioned and lines[0] != VERSION:
        return "the first line of memory_summary.md is not v1"
    if len(text.encode()) > MOST_SUMMARY_BYTES:
        return f"memory_summary.md has more than {MOST_SUMMARY_BYTES:,} bytes"
    found = [line.strip() for line in lines if line.startswith("## ")]
    wanted = list(_VERSIONED if versioned else _PLAIN)
    return "" if found == wanted else f"the sections of memory_summary.md are not {', '.join(each[3:] for each in wanted)}"


def said_by_user(text: str, said: str, words: Words) -> tuple[str, int]:
    """Return a summary page without lines about the user that the user has not said, and how many these were.

    `said` are the words of the user and of the notes; `words` are the content words of a text.
    """
    known, section = words(said), ""
    kept: list[str] = []
    dropped = 0
    for line in text.split("\n"):
        if line.startswith("#"):
            section = line.strip()
        meant = words(line)
        if section in _OF_THE_USER and not line.startswith("#") and meant and len(meant & known) < _LEAST_SAID * len(meant):
            dropped += 1
        else:
            kept.append(line)
    return "\n".join(kept), dropped


def accepted_skills(files: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the files of the skills that may be kept, and why others may not be."""
    kept: dict[str, str] = {}
    refused: list[str] = []
    names = sorted({path.split("/")[1] for path in files if path.startswith(f"{SKILLS}/") and path.count("/") > 1})
    for name in names[:MOST_SKILLS]:
        own = {path: text for path, text in files.items() if path.startswith(f"{SKILLS}/{name}/")}
        page = own.get(f"{SKILLS}/{name}/SKILL.md", "")
        if not page.startswith("---\n") or "description:" not in page:
            refused.append(f"the skill {name} has no SKILL.md with a description")
        elif page.count("\n") > MOST_SKILL_LINES:
            refused.append(f"the skill {name} has more than {MOST_SKILL_LINES} lines")
        elif any(not is_writable(path) for path in own):
            refused.append(f"the skill {name} has a file at a place that skills do not have")
        else:
            kept |= {path: redact(text) for path, text in own.items()}
    return kept, (*refused, *([f"there are more than {MOST_SKILLS} skills"] if len(names) > MOST_SKILLS else []))


def is_writable(path: str) -> bool:
    """Return whether a consolidation may write at a path of the folder."""
    return path in (HANDBOOK, SUMMARY) or _SKILL_FILE.fullmatch(path) is not None


def _pointer(memory: StoredMemory) -> str:
    return f"- {memory.path} (cwd={escaped(memory.cwd)}, updated_at={iso_time(memory.source_at)}, thread_id={memory.session})"


def _keywords(memory: StoredMemory) -> str:
    found = _KEYWORDS.search(memory.raw or memory.summary)
    return _one_line(found[1].strip() if found and found[1].strip() else memory.slug.replace("_", ", ") or memory.stem)


def _learnings(memory: StoredMemory) -> list[str]:
    points = [_one_line(each) for each in _BULLET.findall(memory.raw or memory.summary)][:_MOST_LEARNINGS]
    return [f"- {point}" for point in points] or [f"- {memory.title}"]


def _by_day(newest: Sequence[StoredMemory]) -> Iterator[str]:
    days = list(dict.fromkeys(iso_time(each.source_at)[:10] for each in newest))[:_NEWEST_DAYS]
    for day in days:
        yield f"### {day}"
        for each in newest:
            if iso_time(each.source_at).startswith(day):
                yield f"- {each.title}: {_keywords(each)}"
    yield "### Older Memory Topics"
    for each in newest:
        if iso_time(each.source_at)[:10] not in days:
            yield f"- {each.title}: {_keywords(each)}"


def _by_folder(newest: Sequence[StoredMemory]) -> Iterator[str]:
    for cwd in dict.fromkeys(each.cwd for each in newest):
        yield f"### {escaped(cwd) or 'unknown folder'}"
        for each in newest:
            if each.cwd == cwd:
                yield f"- {each.title}: {_keywords(each)}"


def _one_line(text: str) -> str:
    return " ".join(escaped(redact(text)).split())[:300]


# Bytes of one file, and files of the folder, that are read.
_LARGEST: Final = 1024 * 1024
_MOST_FILES: Final = 20_000
_FOLDERS: Final = (SUMMARIES, NOTES, SKILLS)
_DIGEST: Final = 16


class StageFolder:
    """The files of one memory, by their path in its folder. Raises `StoreError` if a folder of it is a link."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> dict[str, str]:
        """Return the texts of all files; links, large files and what is no text are left out."""
        self._refuse_links()
        found: dict[str, str] = {}
        for path in self._paths():
            text = bounded_text(path, _LARGEST)
            if text is not None:
                found[path.relative_to(self.folder).as_posix()] = text
        return found

    def file(self, path: str) -> str:
        """Return the text of one file; empty if there is none that can be read."""
        return bounded_text(self.folder / path, _LARGEST) or ""

    def replace(self, wanted: Mapping[str, str], read: Mapping[str, str]) -> tuple[str, ...]:
        """Bring the folder from what was read to what is wanted. Returns the paths that others have changed meanwhile, which stay."""
        self._refuse_links()
        edited: list[str] = []
        for path in sorted({*wanted, *read}):
            if wanted.get(path) == read.get(path):
                continue
            if bounded_text(self.folder / path, _LARGEST) != read.get(path):
                edited.append(path)
            elif path in wanted:
                self._write(path, wanted[path])
            else:
                self._delete(path)
        return tuple(edited)

    def sessions(self) -> dict[str, str]:
        """Return the session of each summary, by path."""
        return {path: session_of(text) for path, text in self.read().items() if path.startswith(f"{SUMMARIES}/")}

    def state(self, *, without: tuple[str, ...] = ()) -> dict[str, str]:
        """Return the digests of all files, by path."""
        return {path: sha256(text.encode()).hexdigest()[:_DIGEST] for path, text in self.read().items() if path not in without}

    def _write(self, path: str, text: str) -> None:
        place = self.folder / path
        with store_errors(place, "create"):
            make_private_folder(place.parent)
        write_private(place, text.encode())

    def _delete(self, path: str) -> None:
        place = self.folder / path
        with store_errors(place, "delete"):
            place.unlink(missing_ok=True)
            for parent in place.relative_to(self.folder).parents:
                if parent.parts and not any((self.folder / parent).iterdir()):
                    (self.folder / parent).rmdir()

    def _paths(self) -> Iterator[Path]:
        for name in (HANDBOOK, SUMMARY, RAW):
            if os.path.lexists(self.folder / name):
                yield self.folder / name
        left = _MOST_FILES
        for name in _FOLDERS:
            for place, folders, files in os.walk(self.folder / name):
                folders[:] = sorted(each for each in folders if not (Path(place) / each).is_symlink())
                for file in sorted(files)[:left]:
                    left -= 1
                    yield Path(place) / file

    def _refuse_links(self) -> None:
        for place in (
            self.folder,
            *(self.folder / name for name in (HANDBOOK, SUMMARY, RAW, *_FOLDERS, "extensions", "extensions/ad_hoc")),
        ):
            if place.is_symlink():
                raise StoreError(
                    "this is a link, so that nothing is read or written here; replace it by a file or folder", where=str(place)
                )


def stage_folder(home: Path, root: str) -> StageFolder:
    """Return the folder of a memory in a home."""
    return StageFolder(home / "memory" / root)
