"""The input line: its text with marks for what was pasted, its history, and its draft on disk."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, ThreadedCompleter

from palimpsest.apps.terminal.input.attachments import Attachments, MessagePart, PastedImage, texts_of
from palimpsest.apps.terminal.input.drafts import UnsentText
from palimpsest.apps.terminal.input.history import HistoryFile

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
