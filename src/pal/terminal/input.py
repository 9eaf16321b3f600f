"""User input: the line, lists above it, pasted texts and images, the clipboard, completion, unsent drafts, and the history."""

import asyncio
import json
import os
import re
import shlex
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import History
from prompt_toolkit.input.vt100 import Vt100Input

from pal.terminal.choosing import ENTER, NO_KEYS, NO_SOURCE, Chooser, Row, RowChoice, RowSource
from palimpsest.agent.workspace import program_outside
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.items import Text
from palimpsest.stores.files import write_private

LONGEST_INLINE: Final = 1_000
MOST_LINES_INLINE: Final = 8
# Characters of one paste that a message contains itself; a longer one goes to a file.
LONGEST_SENT: Final = 100_000
# Characters of one paste, and bytes of one image.
LONGEST_PASTE: Final = 8_000_000
LARGEST_IMAGE: Final = 10_000_000
MEDIA: Final = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
_MARK: Final = re.compile(r"\[(?:pasted #(\d{1,6}), [\d,]+ (?:lines|characters)|image #(\d{1,6}))\]")
_LONGEST_PATH: Final = 4_096


class PastedImage(NamedTuple):
    """An image: its media type and its bytes."""

    media: str
    data: bytes


MessagePart: TypeAlias = str | Text | PastedImage


def texts_of(parts: Iterable[MessagePart]) -> Iterator[str]:
    """Yield the texts among the parts of a message."""
    return (part if isinstance(part, str) else part.text for part in parts if not isinstance(part, PastedImage))


class Attachments:
    """The pasted texts and images of one message by their marks."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._images: dict[int, PastedImage] = {}

    def __bool__(self) -> bool:
        """Whether anything is attached."""
        return bool(self._texts or self._images)

    def folded(self, text: str) -> str:
        """Return what the input line shows for a pasted text: itself, a mark if it is long, or a mark if it is the path of an image."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        image = _image_at(text)
        if image is not None:
            return self.image(image)
        lines = text.count("\n") + 1
        if len(text) <= LONGEST_INLINE and lines <= MOST_LINES_INLINE:
            return text
        number = len(self._texts) + 1
        self._texts[number] = text[:LONGEST_PASTE]
        return f"[pasted #{number}, {lines:,} lines]" if lines > 1 else f"[pasted #{number}, {len(text):,} characters]"

    def image(self, image: PastedImage) -> str:
        """Keep an image and return its mark."""
        number = len(self._images) + 1
        self._images[number] = image
        return f"[image #{number}]"

    def files(self, line: str, keep: Callable[[str, bytes], str]) -> None:
        """Write the longest texts of a message to files by `keep`, which returns the path; the message then names the file."""
        for mark in _MARK.finditer(line):
            number = int(mark[1] or 0)
            text = self._texts.get(number, "")
            if len(text) > LONGEST_SENT:
                lines = text.count("\n") + 1
                path = keep(f"pasted-{number}.txt", text.encode("utf-8", "replace"))
                self._texts[number] = f"[the text that I pasted has {lines:,} lines and is in the file {path}; read it in parts]"

    def unfolded(self, line: str) -> str:
        """Return an input line with each mark of a text replaced by the text. Marks of no paste are the user's own words."""
        return "".join(texts_of(self.parts(line, keep_images=True)))

    def parts(self, line: str, *, keep_images: bool = False) -> Iterator[MessagePart]:
        """Yield the texts and images of a message in order. With `keep_images` the marks of images stay in the text.

        A text that begins with a paste is marked as attached: its beginning is nothing that the user typed.
        """
        for place, part in enumerate(self._parts(line, keep_images=keep_images)):
            first = _MARK.match(line.lstrip()) if place == 0 else None
            is_pasted = first is not None and first[1] is not None and int(first[1]) in self._texts
            yield Text(part, attached=True) if is_pasted and isinstance(part, str) else part

    def _parts(self, line: str, *, keep_images: bool) -> Iterator[str | PastedImage]:
        end = 0
        pending = ""
        for mark in _MARK.finditer(line):
            pending += line[end : mark.start()]
            end = mark.end()
            image = None if mark[2] is None or keep_images else self._images.get(int(mark[2]))
            if image is None:
                pending += self._texts.get(int(mark[1]), mark[0]) if mark[1] is not None else mark[0]
                continue
            if pending.strip():
                yield pending
            pending = ""
            yield image
        pending += line[end:]
        if pending.strip():
            yield pending

    def clear(self) -> None:
        """Drop all: their message was sent."""
        self._texts.clear()
        self._images.clear()


def _image_at(text: str) -> PastedImage | None:
    """Return the image of a file whose path was pasted or dropped, perhaps in quotes; `None` if it is something else."""
    if len(text) > _LONGEST_PATH or "\n" in text.strip():
        return None
    try:
        words = shlex.split(text.strip())
    except ValueError:
        return None
    path = Path(words[0].removeprefix("file://")).expanduser() if len(words) == 1 else None
    media = None if path is None else MEDIA.get(path.suffix.lower())
    if path is None or media is None:
        return None
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_IMAGE + 1)
    except OSError:
        return None
    return PastedImage(media, data) if data and len(data) <= LARGEST_IMAGE else None


_PNG: Final = "image/png"
_COMMANDS: Final = (
    ("wl-paste", "--no-newline", "--type", _PNG),
    ("xclip", "-selection", "clipboard", "-t", _PNG, "-o"),
    ("pngpaste", "-"),
)
_SECONDS: Final = 3
_PNG_START: Final = b"\x89PNG\r\n"


def clipboard_image() -> PastedImage | None:
    """Return the image of the clipboard; `None` if it has none, or no program for it is installed."""
    for name, *words in _COMMANDS:
        program = program_outside(name, Path.cwd())
        if program is None:
            continue
        try:
            done = subprocess.run((program, *words), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603 - fixed words
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout.startswith(_PNG_START) and len(done.stdout) <= LARGEST_IMAGE:
            return PastedImage(_PNG, done.stdout)
    return None


_MOST: Final = 50
# Entries of the project that are looked at for one completion.
_MOST_LOOKED_AT: Final = 20_000
_LEFT_OUT: Final = frozenset({".git", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", "target"})


class TerminalCompleter(Completer):
    """Completes in the input line. `commands` yields what completes a line of a command, `root` is the folder of the project."""

    def __init__(self, commands: Callable[[str], Iterable[tuple[str, str]]], root: Path) -> None:
        self._commands = commands
        self._root = root

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield completions of the word before the cursor."""
        line = document.text_before_cursor
        if line.startswith("/") and "\n" not in line:
            word = line.rpartition(" ")[2]
            for text, meta in self._commands(line):
                yield Completion(text, -len(word), display_meta=meta)
            return
        word = document.get_word_before_cursor(WORD=True)
        if word.startswith("@"):
            for path in files_like(self._root, word[1:]):
                yield Completion(f"@{path}", -len(word))


def files_like(root: Path, typed: str) -> Iterable[str]:
    """Yield paths below a folder whose names contain the typed text in order, those that begin with it first; bounded."""
    folded = typed.casefold()
    found: list[tuple[int, int, str]] = []
    looked_at = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(files):
            looked_at += 1
            path = (Path(folder) / name).relative_to(root).as_posix()
            # A direction character in a name would turn the line round.
            rank = _rank(path.casefold(), folded) if path.isprintable() else None
            if rank is not None:
                found.append((rank, len(path), path))
        if looked_at > _MOST_LOOKED_AT:
            break
    return [path for _, _, path in sorted(found)[:_MOST]]


def _rank(path: str, typed: str) -> int | None:
    """Return how well a path fits, 0 is best; `None` if it does not contain the typed letters in order."""
    name = path.rpartition("/")[2]
    if path.startswith(typed) or name.startswith(typed):
        return 0
    if typed in path:
        return 1
    letters = iter(path)
    return 2 if all(letter in letters for letter in typed) else None


_LARGEST: Final = 4 * 1024 * 1024


class UnsentText:
    """The draft of one session. A draft that cannot be kept is no reason to stop typing: failures are ignored."""

    def __init__(self, folder: Path | None, session: str) -> None:
        self._path = None if folder is None else folder / "drafts" / f"{session}.txt"

    @classmethod
    def of_project(cls, folder: Path | None, root: Path) -> Self:
        """Return the draft of what is typed in a project while no session is open."""
        return cls(folder, f"project-{sha256(os.fsencode(root)).hexdigest()[:16]}")

    def read(self) -> str:
        """Return the draft; empty if there is none."""
        if self._path is None:
            return ""
        try:
            with self._path.open("rb") as file:
                return file.read(_LARGEST).decode("utf-8", "replace")
        except OSError:
            return ""

    def keep(self, text: str) -> None:
        """Keep a text; an empty one removes the draft."""
        if self._path is None:
            return
        if not text:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            return
        with suppress(PalimpsestError, OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Not synchronised: a draft must survive the end of a process, and a disk that is slow must not be felt while typing.
            write_private(self._path, text.encode("utf-8", "replace")[:_LARGEST], sync=False)


# Bytes of the newest entries that a session loads, and characters of one entry: a paste of a megabyte is no line to repeat.
_NEWEST_BYTES: Final = 512 * 1024
_LONGEST_ENTRY: Final = 20_000


class HistoryFile(History):
    """Entries as lines of JSON. Writers append one line each in one step, so that terminals beside each other lose nothing."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path

    async def load(self) -> AsyncGenerator[str, None]:
        """Yield the entries of other sessions, newest first; the file is read when they are first asked for."""
        if not self._loaded:
            self._loaded_strings = list(self.load_history_strings())
            self._loaded = True
        for entry in self._loaded_strings:
            yield entry

    def load_history_strings(self) -> Iterable[str]:
        """Yield the entries of the file, newest first. A file that cannot be read has none."""
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _NEWEST_BYTES))
                lines = file.read().split(b"\n")
        except OSError:
            return
        # The first line may have been cut.
        for line in reversed(lines if size <= _NEWEST_BYTES else lines[1:]):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, str):
                yield entry

    def store_string(self, string: str) -> None:
        """Append an entry. One that cannot be written is lost for later sessions only."""
        if self._path is None or len(string) > _LONGEST_ENTRY:
            return
        line = json.dumps(string, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            os.write(handle, line)
        except OSError:
            return
        finally:
            os.close(handle)


class Keyboard(Vt100Input):
    """The input of a terminal.

    With `stays_raw` it remains in raw mode where prompt_toolkit would give the terminal to another program: otherwise an Enter that is
    typed then would come as a new line, however short the time is.
    """

    stays_raw: bool = False

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Return what gives the terminal to another program, or nothing to do if it stays in raw mode."""
        return nullcontext() if self.stays_raw else super().cooked_mode()


# Characters of a draft that is written with each key, which takes 0.1 ms; seconds from a key to the writing of a longer one.
_KEPT_AT_ONCE: Final = 10_000
_DRAFT_SECONDS: Final = 0.3


class TakenInput(NamedTuple):
    """A message: its text with marks, its parts, and the line as it was typed."""

    text: str
    parts: tuple[MessagePart, ...]
    line: str


class InputLine:
    """What the user types. `folder` keeps history and drafts; `None` keeps nothing.

    `waiting` are messages that were sent before the session was open; they are part of the draft until they are recorded. While no
    session is open, the draft is that of the project `root`, and the next terminal there shows what a killed one has left.
    """

    def __init__(self, folder: Path | None, root: Path, completer: Completer) -> None:
        self._folder = folder
        self._root = root
        self.waiting: list[tuple[MessagePart, ...]] = []
        self.attachments = Attachments()
        self.buffer = Buffer(
            multiline=True,
            history=HistoryFile(None if folder is None else folder / "history.jsonl"),
            completer=ThreadedCompleter(completer),
            complete_while_typing=True,
            enable_history_search=True,
            tempfile_suffix=".md",
            on_text_changed=lambda _: self._keep_soon(),
        )
        self._draft = UnsentText.of_project(folder, root)
        self._timer: asyncio.TimerHandle | None = None
        self._set_aside: str | None = None
        self.put(self._draft.read())

    @property
    def text(self) -> str:
        """What is typed, with marks."""
        return self.buffer.text

    def put(self, text: str) -> None:
        """Replace what is typed, with the cursor behind it."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    def of_session(self, session: str) -> None:
        """Keep drafts of this session from now on, and show its draft before what is typed already."""
        before, self._draft = self._draft, UnsentText(self._folder, session)
        if draft := self._draft.read():
            self.put(f"{draft}\n{self.text}" if self.text else draft)
        self.keep()
        # Only now, so that at each moment one of the two files has what is typed.
        before.keep("")

    def of_project(self) -> None:
        """Keep drafts of the project from now on, because its session ends without a message."""
        before, self._draft = self._draft, UnsentText.of_project(self._folder, self._root)
        self.keep()
        before.keep("")

    def leave_session(self) -> None:
        """Empty the line and keep its text as the draft of the session that is left."""
        self.keep()
        self._draft = UnsentText.of_project(self._folder, self._root)
        self.put("")

    def take(self, keep: Callable[[str, bytes], str] | None) -> TakenInput:
        """Return the message that is typed; the line keeps it until `sent`.

        `keep` writes what is too long for a message to a file, and returns its path.
        """
        text = self.text.strip()
        if keep is not None:
            self.attachments.files(text, keep)
        return TakenInput(text, tuple(self.attachments.parts(text)), self.text)

    def sent(self, taken: TakenInput) -> None:
        """Empty the line after its message was recorded; it goes into the history. What was put into the line meanwhile stays."""
        if self.text != taken.line:
            return
        self.buffer.append_to_history()
        self.buffer.reset()
        self.attachments.clear()
        self.keep()

    def clear(self) -> None:
        """Empty the line; its text goes into the history, so that the arrow up brings it back."""
        self.buffer.append_to_history()
        self.buffer.reset()
        self.keep()

    def paste(self, text: str) -> None:
        """Insert a pasted text; a long one, or the path of an image, as a mark."""
        self.buffer.insert_text(self.attachments.folded(text))

    def insert(self, text: str) -> None:
        """Insert a text at the cursor."""
        self.buffer.insert_text(text)

    def attach(self, image: PastedImage) -> None:
        """Insert the mark of an image."""
        self.buffer.insert_text(self.attachments.image(image) + " ")

    def set_aside(self) -> None:
        """Take the text out of the line for as long as it is used for something else, such as the filter of a list."""
        if self._set_aside is None:
            self._set_aside = self.text
            self.put("")

    def bring_back(self) -> None:
        """Put back what was set aside."""
        if self._set_aside is not None:
            text, self._set_aside = self._set_aside, None
            self.put(text)

    def keep(self) -> None:
        """Keep the draft now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text = self.text if self._set_aside is None else self._set_aside
        waiting = (text for parts in self.waiting for text in texts_of(parts))
        self._draft.keep("\n".join(filter(None, (*waiting, self.attachments.unfolded(text)))))

    def _keep_soon(self) -> None:
        if len(self.text) <= _KEPT_AT_ONCE and not self.attachments:
            self.keep()
        elif self._timer is None:
            with suppress(RuntimeError):
                self._timer = asyncio.get_running_loop().call_later(_DRAFT_SECONDS, self.keep)


class Lists:
    """Opens one list at a time above an input line; `changed` is called when the screen must be painted again."""

    def __init__(self, line: InputLine, changed: Callable[[], None]) -> None:
        self._line = line
        self._changed = changed
        self.open: Chooser | None = None

    async def choose(
        self, title: str, rows: Sequence[Row], keys: Mapping[str, str] = NO_KEYS, source: RowSource = NO_SOURCE, at: str = ""
    ) -> RowChoice | None:
        """Return the row that the user chooses and the key; `None` if none. What was typed before is put back. `at` is the first row.

        Raises `BadInput` if another list is open.
        """
        if self.open is not None:
            raise BadInput("another list is open; Esc closes it")
        self.open = Chooser(title, rows, keys, source, self._changed)
        self.open.go_to(at)
        self._line.set_aside()
        self._changed()
        try:
            return await self.open.chosen()
        finally:
            self.open = None
            self._line.bring_back()
            self._changed()

    def shown(self) -> Chooser | None:
        """The open list, filtered by what is typed."""
        if self.open is not None:
            self.open.filter(self._line.text)
        return self.open

    def step(self, by: int) -> None:
        """Move in the open list."""
        if self.open is not None:
            self.open.step(by)

    def take(self, key: str = ENTER) -> None:
        """Choose the row under the cursor of the open list by a key."""
        if self.open is not None:
            self.open.take(key)

    def offers(self, key: str) -> bool:
        """Whether the open list has a use for a letter."""
        return self.open is not None and key in self.open.keys
