"""The transcript format of aider: its chat history in Markdown, one session for each start of the program."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

from palimpsest.core.events import Body, FilesSnapshotted, ForeignNoted, ModelReplied, SessionOpened, Usage, UserSaid, UserTyped, ViewEdited
from palimpsest.core.items import Mask, Text, Value
from palimpsest.core.ports import Blobs
from palimpsest.exchange.files import GrowingDocument, digest_of, head_of, rest_of, sources_below
from palimpsest.exchange.transcript import (
    ImportContext,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
    call_of,
    milliseconds,
)

Kind = Literal["user", "assistant", "tool"]
_USER, _TOOL, _FENCE = "####", ">", "```"


class ChatBlock(Value, frozen=True):
    """Consecutive text of the user, the model or the program."""

    kind: Kind
    text: str


def blocks_in(text: str) -> list[ChatBlock]:
    """The blocks in order. Lines that look like another block belong to a reply if they are within a closed code fence."""
    found: list[ChatBlock] = []
    lines = text.splitlines()
    kind: Kind | None = None
    block_lines: list[str] = []
    fenced_until = -1

    def close() -> None:
        block_text = "\n".join(block_lines)
        block_text = block_text.strip() if kind != "assistant" else block_text.strip("\n")
        if kind is not None and block_text.strip():
            found.append(ChatBlock(kind, block_text))
        block_lines.clear()

    for number, line in enumerate(lines):
        line_kind = _aider_kind(line) if number > fenced_until else "assistant"
        if line_kind is None:
            # An empty line ends a block of the user or the program; within a reply it is text.
            if kind == "assistant":
                block_lines.append(line)
            else:
                close()
                kind = None
            continue
        if line_kind != kind:
            close()
            kind = line_kind
        block_lines.append(line if line_kind == "assistant" else _without_prefix(line, line_kind))
        if line_kind == "assistant" and number > fenced_until and line.startswith(_FENCE):
            fenced_until = _fence_end(lines, number)
    close()
    return found


def _aider_kind(line: str) -> Kind | None:
    if not line.strip():
        return None
    if line == _USER or line.startswith(f"{_USER} "):
        return "user"
    return "tool" if line == _TOOL or line.startswith(f"{_TOOL} ") else "assistant"


def _without_prefix(line: str, kind: Kind) -> str:
    """The line without its prefix, and without the two trailing spaces of a Markdown line break."""
    sign = _USER if kind == "user" else _TOOL
    return line.removeprefix(sign).removeprefix(" ").removesuffix("  ")


def _fence_end(lines: list[str], opening: int) -> int:
    """The index of the line that closes a fence; that of the opening line if the user speaks before."""
    for number in range(opening + 1, len(lines)):
        if lines[number].rstrip() == _FENCE:
            return number
        # Input of the user follows an empty line and ends in two spaces; a heading in code seldom does.
        if _aider_kind(lines[number]) == "user" and lines[number].endswith("  ") and not lines[number - 1].strip():
            break
    return opening


_MAX_BYTES = 1 << 30
_START = re.compile(rb"^# aider chat started at (\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)[ \t\r]*$", re.MULTILINE)
_MODEL = re.compile(r"^(?:Main model|Models?): (\S+?),?(?: with|$)")
_VERSION = re.compile(r"^Aider v(\S+)")
_TOKENS = re.compile(r"^Tokens: ([\d.,]+k?M?) sent(?:, ([\d.,]+k?M?) cache write)?(?:, ([\d.,]+k?M?) cache hit)?, ([\d.,]+k?M?) received")
_OLD_TOKENS = re.compile(r"^([\d,]+) prompt tokens, ([\d,]+) completion tokens")
_COMMIT = re.compile(r"^Commit ([0-9a-f]{6,40}) ")
_EDITED = re.compile(r"^(?:Applied edit to|Wrote) (.+)$")
# Commands whose text is sent to the model; all others are for the program.
_PROMPT_COMMANDS = ("/ask ", "/code ", "/architect ", "/context ", "/help ", "/ok")


class _Section(Value, frozen=True):
    """One run of aider: its session id, its start in milliseconds, and its bytes in the file."""

    session: str
    at: int
    start: int
    data: bytes
    last: bool


class AiderFormat:
    """aider: `.aider.chat.history.md` in the folder of a project."""

    name = "aider"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The history file that the environment names, or else the one in the home folder; each project has its own."""
        configured = environment.get("AIDER_CHAT_HISTORY_FILE")
        return (Path(configured),) if configured else (home / ".aider.chat.history.md",)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each start of aider."""
        return sources_below(path, (".aider.chat.history.md",), _aider_sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The messages of a session, and what the program reported."""
        path = Path(source.path)
        section = next((each for each in _sections(path) if each.session == source.session), None)
        if section is None:
            yield ReadProblem(source.path, "this session is not in the file any more")
            return
        text = section.data.decode("utf-8", "replace")
        if "\ufffd" in text:
            yield ReadProblem(source.path, f"the session of {section.session} has bytes that are not UTF-8; they are shown as \ufffd")
        blocks = blocks_in(text)
        if section.last and blocks and blocks[-1].kind == "assistant":
            # The usage of a reply follows it, so a last reply without anything after it may still be incomplete.
            blocks = blocks[:-1]
        messages: list[object] = [[block.kind, block.text] for block in blocks]
        growing = GrowingDocument(position)
        block_reader = _BlockReader(section, blocks)
        yield from growing.new_events(messages, block_reader.opened(source, path), block_reader.events_of)
        yield growing.position(messages)


def _aider_sources(path: Path) -> Iterator[TranscriptSource]:
    for section in _sections(path):
        yield TranscriptSource("aider", str(path), section.session, f"{section.start}-{digest_of(section.data)}")


def _sections(path: Path) -> Iterator[_Section]:
    """The runs in a file; a line that is still being written is left out."""
    head = head_of(path, 4096)
    if not _START.search(head):
        return
    data = head_of(path, _MAX_BYTES)
    data = data[: data.rfind(b"\n") + 1]
    found = list(_START.finditer(data))
    starts: dict[str, int] = {}
    for index, start in enumerate(found):
        started = start[1].decode().replace(" ", "T")
        starts[started] = starts.get(started, 0) + 1
        suffix = f"-{starts[started]}" if starts[started] > 1 else ""
        last = index + 1 == len(found)
        stop = len(data) if last else found[index + 1].start()
        name = f"{path.absolute().parent.name}-{started.replace(':', '-')}{suffix}"
        yield _Section(name, _local_time(started), start.start(), data[start.end() : stop], last)


def _local_time(started: str) -> int:
    """The time of a heading in milliseconds since 1970: aider writes that of the machine, without its zone; 0 if it is no time."""
    try:
        return milliseconds(datetime.fromisoformat(started).astimezone().isoformat())
    except (OverflowError, ValueError, OSError):
        return 0


class _BlockReader:
    """One pass over the blocks of a session."""

    def __init__(self, section: _Section, blocks: list[ChatBlock]) -> None:
        self._at = section.at
        self._blocks = blocks
        self._model = ""
        self._edited: list[str] = []

    def opened(self, source: TranscriptSource, path: Path) -> ReadEvent:
        """`SessionOpened` with the version and the model that the program reported."""
        lines = self._blocks[0].text.splitlines() if self._blocks and self._blocks[0].kind == "tool" else []
        model = next((found[1] for line in lines if (found := _MODEL.match(line))), "")
        version = next((found[1] for line in lines if (found := _VERSION.match(line))), "")
        meta = {"version": version} if version else {}
        return ReadEvent(SessionOpened(source.session, str(path.absolute().parent), "aider", model=model, meta=meta), self._at, "opened")

    def events_of(self, index: int, _message: object) -> Iterator[ReadEvent]:
        """The events of one block."""
        block, key = self._blocks[index], str(index)
        match block.kind:
            case "user":
                is_command = block.text.startswith(("/", "!")) and not block.text.startswith(_PROMPT_COMMANDS)
                parts = (Text(block.text),)
                yield ReadEvent(UserTyped(parts) if is_command else UserSaid(parts), self._at, key)
            case "assistant":
                yield ReadEvent(call_of(self._model), self._at, f"{key}/call")
                yield ReadEvent(
                    ModelReplied((Text(block.text, "assistant"),), usage=self._aider_usage(index), stop="end_turn", model=self._model),
                    self._at,
                    key,
                )
            case "tool":
                yield from self._report(block, key)

    def _report(self, block: ChatBlock, key: str) -> Iterator[ReadEvent]:
        """What the program reported: commits, and that the chat was cleared; all other lines are only stored."""
        bodies: list[Body] = []
        cleared = False
        for line in block.text.splitlines():
            if model := _MODEL.match(line):
                self._model = model[1]
            elif edited := _EDITED.match(line):
                self._edited.append(edited[1])
            elif commit := _COMMIT.match(line):
                bodies.append(FilesSnapshotted(commit[1], tuple(dict.fromkeys(self._edited))))
                self._edited.clear()
            cleared = cleared or "chat history cleared" in line
        for index, body in enumerate(bodies):
            yield ReadEvent(body, self._at, f"{key}/{index}")
        if cleared:
            yield ReadEvent(_clear_chat, self._at, f"{key}/cleared")
        yield ReadEvent(ForeignNoted("aider"), self._at, key, line=rest_of({"text": block.text}))

    def _aider_usage(self, index: int) -> Usage:
        """The usage of a reply, which is reported after it."""
        for block in self._blocks[index + 1 :]:
            if block.kind != "tool":
                break
            for line in block.text.splitlines():
                if old := _OLD_TOKENS.match(line):
                    return Usage(_count(old[1]), output=_count(old[2]))
                if new := _TOKENS.match(line):
                    sent, written, hit, received = (_count(each or "0") for each in new.groups())
                    return Usage(max(0, sent - written - hit), hit, written, output=received)
        return Usage()


def _clear_chat(context: ImportContext) -> Body:
    """The edit that hides the whole chat."""
    ids = context.view.ids
    return ViewEdited((Mask(ids),), "aider", "the chat was cleared") if ids else ForeignNoted("aider")


def _count(text: str) -> int:
    """A number as the program rounds it: 950, 2.5k, 12k, 1.1M."""
    scale = {"k": 1000, "M": 1_000_000}.get(text[-1:], 1)
    try:
        return round(float(text.rstrip("kM").replace(",", "")) * scale)
    except ValueError:
        return 0
