"""Texts that a fold adds to the view, computed from the log: evidence, names and older user messages."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

from palimpsest.core.items import Item, Piece, seq_of
from palimpsest.core.plans import CommandRun, Evidence, UserMessage
from palimpsest.core.text import utc_text
from palimpsest.core.tokens import estimate
from palimpsest.core.truncate import truncate_middle

MESSAGES: Final = "older messages"
EVIDENCE: Final = "evidence"
COMMANDS: Final = "commands"
# A list of names that the model used; by default only folds of earlier versions have one.
NAMES: Final = "names"
# Names in results that are gone, which folds of earlier versions listed.
SEEN: Final = "names seen"
NARRATIVE: Final = "narrative"
# Prefix of the source of a user message that is shown in part; the id of the message follows.
PARTIAL_MESSAGE: Final = "message "
# Prefix of the source of a text that a file has after its recorded edits; the path follows.
FILE_TEXT: Final = "file "

_COMPUTED = frozenset({MESSAGES, EVIDENCE, COMMANDS, NAMES, SEEN})


def is_computed(piece: Piece | Item) -> bool:
    """Whether a summary was computed from the log, without a model."""
    return piece.kind == "summary" and (piece.source in _COMPUTED or piece.source.startswith((PARTIAL_MESSAGE, FILE_TEXT)))


def is_fold_part(piece: Piece | Item) -> bool:
    """Whether a piece was written by our fold: a computed text or its narrative."""
    return is_computed(piece) or (piece.kind == "summary" and piece.source == NARRATIVE)


def lines_by_folder(paths: Sequence[str]) -> list[str]:
    """One line per parent folder, newest path first; a path is shown whole or by its last two parts."""
    groups: dict[str, list[str]] = {}
    for path in reversed(paths):
        beginning, rest = _split_path(path)
        groups.setdefault(beginning, []).append(rest)
    return [f"- {beginning}: {', '.join(rests)}" if beginning else f"- {', '.join(rests)}" for beginning, rests in groups.items()]


def counts_by_folder(paths: Sequence[str]) -> list[str]:
    """One line per folder with its number of paths, newest folder first."""
    counts: dict[str, int] = {}
    for path in reversed(paths):
        folder = _folder(path)
        counts[folder] = counts.get(folder, 0) + 1
    return [f"- {folder}: {count} more" for folder, count in counts.items()]


def path_lines(paths: Sequence[str], room: int, size: Callable[[str], int]) -> list[str]:
    """Lines of at most `room` tokens: all paths, or the newest that fit and counts by folder for the rest, or only the total."""
    most = min(len(paths), room * _MOST_PER_TOKEN)
    whole = lines_by_folder(paths) if most == len(paths) else []
    if whole and size("\n".join(whole)) <= room:
        return whole
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if size("\n".join(_newest_and_counts(paths, middle))) <= room:
            low = middle
        else:
            high = middle - 1
    lines = _newest_and_counts(paths, low)
    if size("\n".join(lines)) <= room:
        return lines
    line = f"- {len(paths)} paths"
    return [line] if size(line) <= room else []


_MOST_FOLDERS = 30
# More paths than these cannot fit; trying would take longer with each file that a long session has edited.
_MOST_PER_TOKEN = 4


def _newest_and_counts(paths: Sequence[str], newest: int) -> list[str]:
    cut = len(paths) - newest
    rest = counts_by_folder(paths[:cut])
    if len(rest) > _MOST_FOLDERS:
        rest = [*rest[:_MOST_FOLDERS], f"- {len(rest) - _MOST_FOLDERS} more folders"]
    return [*lines_by_folder(paths[cut:]), *rest]


def _split_path(path: str) -> tuple[str, str]:
    sign = "\\" if "\\" in path and "/" not in path else "/"
    parts = path.split(sign)
    if len(parts) <= 3:
        return "", path
    return sign.join(parts[:-2]) + sign, sign.join(parts[-2:])


@lru_cache(maxsize=8_192)
def _folder(path: str) -> str:
    sign = "\\" if "\\" in path and "/" not in path else "/"
    folder, found, _ = path.rpartition(sign)
    return folder + sign if found else "."


EVIDENCE_TOKENS: Final = 4_000
EVIDENCE_TITLE: Final = "Beside the summary, from the log and not from a model:"
TURNS: Final = 3
LONG, SHORT = 160, 60
_OPENING: Final = 80


def evidence_block(
    evidence: Evidence,
    tokens: int = EVIDENCE_TOKENS,
    *,
    elsewhere: AbstractSet[int] = frozenset(),
    turns: int = TURNS,
    factor: float = 1.0,
) -> str:
    """The evidence as text of at most `tokens` tokens.

    Commands get the tokens that the other sections leave: those of the last `turns` turns, newest first. If not all of them fit, those
    whose results are visible `elsewhere` (sequence numbers) are left out first. `factor` scales token estimates.
    """
    block = _SectionedText(tokens, factor)
    block.add("tests", [_command_line(evidence.tests, LONG)] if evidence.tests is not None else [])
    block.add("tasks", _whole_or_short([f"- {task}" for task in evidence.tasks], block.room(0.25), block.size))
    block.add("edited", path_lines(evidence.edited, block.room(0.6), block.size) if evidence.edited else [])
    block.add("read", path_lines(evidence.read, block.room(0.4), block.size) if evidence.read else [])
    errors = _lines_that_fit([_command_line(ran, SHORT) for ran in reversed(evidence.errors)], block.room(0.1), block.size)
    block.add("errors", errors)
    tools = [f"- {tool[:SHORT]}: {count} calls" if count > 1 else f"- {tool[:SHORT]}" for tool, count in reversed(evidence.other_tools)]
    block.add("other_tools", _lines_that_fit(tools, block.room(0.1), block.size))
    first_event = first_event_of_turns(evidence, turns, elsewhere)
    recent = [ran for ran in evidence.commands if ran.seq >= first_event]
    block.add("commands", _commands(recent, elsewhere, block.room(1.0), block.size))
    return block.text()


def evidence_text(evidence: Evidence, shown_ids: AbstractSet[str], tokens: int) -> str:
    """Return the evidence in at most `tokens` tokens, and a list of the user messages not in `shown_ids` in half as many."""
    if not tokens:
        return ""
    older = older_messages_block(evidence.user_messages, shown_ids)
    if earlier := count_earlier_messages(evidence, shown_ids):
        older = f"- {earlier} before these\n{older}"
    parts = [evidence_block(evidence, tokens)]
    if older:
        parts.append(f"Older messages of the user, by id, time and opening words:\n{truncate_middle(older, tokens // 2).text}")
    return "\n".join(part for part in parts if part)


def older_messages_block(messages: Iterable[UserMessage], shown: AbstractSet[str] = frozenset()) -> str:
    """User messages that are not in `shown`: id, time and first 80 characters of each, oldest first."""
    return "\n".join(
        f"- {message.id}, {time_of(message.at)}: {message.opening[:_OPENING]}" for message in messages if message.id not in shown
    )


def count_earlier_messages(evidence: Evidence, shown: AbstractSet[str]) -> int:
    """The number of user messages that are older than those in the evidence and not in `shown`."""
    if not evidence.earlier:
        return 0
    oldest = seq_of(evidence.user_messages[0].id)
    # An item of an edit has an id of three numbers, and is no message of the user.
    return evidence.earlier - sum(name.count(".") == 1 and seq_of(name) < oldest for name in shown)


def time_of(at: int) -> str:
    """A timestamp in milliseconds as UTC date and time, to the minute."""
    return utc_text(at)


_TITLES: Final = {
    "edited": "Edited:",
    "read": "Read:",
    "commands": "Commands, newest first, with exit codes:",
    "tests": "Last test:",
    "errors": "Open errors:",
    "tasks": "Open tasks:",
    "other_tools": "Other tools that were called:",
}


class _SectionedText:
    """Sections that share one limit in tokens."""

    def __init__(self, tokens: int, factor: float) -> None:
        self._remaining = tokens
        self._factor = factor
        self._sections: dict[str, list[str]] = {}

    def size(self, text: str) -> int:
        return estimate(text, self._factor)

    def room(self, share: float) -> int:
        """A share of the remaining tokens, less 14 for a title."""
        return max(0, int((self._remaining - 14) * share))

    def add(self, part: str, lines: list[str]) -> None:
        if lines:
            need = self.size("\n".join((_TITLES[part], *lines))) + 1
            if need <= self._remaining:
                self._sections[part] = lines
                self._remaining -= need

    def text(self) -> str:
        """The sections in the order of their titles."""
        return "\n".join("\n".join((title, *self._sections[part])) for part, title in _TITLES.items() if part in self._sections)


def _command_line(ran: CommandRun, length: int) -> str:
    """The exit code comes first, so that the command ends its line verbatim."""
    code = "?" if ran.exit is None else str(ran.exit)
    note = f"{ran.note[:length]} | " if ran.note else ""
    return f"- [{code}] {note}{truncated(ran.command, length)}"


def truncated(text: str, length: int) -> str:
    """The first `length` characters of a text, with an ellipsis if it is longer."""
    return text if len(text) <= length else f"{text[:length]}…"


def _commands(commands: Sequence[CommandRun], elsewhere: AbstractSet[int], room: int, size: Callable[[str], int]) -> list[str]:
    """Commands, newest first: all in long form, else in short form without repeated beginnings, as many as fit."""
    newest = list(reversed(commands))
    long = [_command_line(CommandRun(ran.command, ran.exit), LONG) for ran in newest]
    if size("\n".join(long)) <= room:
        return long
    by_beginning: dict[str, CommandRun] = {}
    for ran in newest:
        by_beginning.setdefault(ran.command[:SHORT], ran)
    short = [short_command_line(ran) for ran in by_beginning.values()]
    if size("\n".join(short)) <= room:
        return short
    return _lines_that_fit([short_command_line(ran) for ran in by_beginning.values() if ran.seq not in elsewhere], room, size)


def short_command_line(ran: CommandRun) -> str:
    """The exit code and the first 60 characters of a command, without any markup, to save tokens."""
    return f"{'?' if ran.exit is None else ran.exit} {ran.command[:SHORT]}"


def first_event_of_turns(evidence: Evidence, turns: int = TURNS, elsewhere: AbstractSet[int] = frozenset()) -> int:
    """The sequence number of the first event of the last `turns` turns, or -1.

    Turns at the end without a command, or whose commands are all visible `elsewhere`, do not count.
    """
    newest = max((ran.seq for ran in evidence.commands if ran.seq not in elsewhere), default=-1)
    for message in reversed(evidence.user_messages):
        start = seq_of(message.id)
        if not message.steering and start <= newest:
            turns -= 1
            if not turns:
                return start
    return -1


def _whole_or_short(lines: list[str], room: int, size: Callable[[str], int]) -> list[str]:
    if size("\n".join(lines)) <= room:
        return lines
    return _lines_that_fit([truncated(line, SHORT + 2) for line in lines], room, size)


def _lines_that_fit(lines: list[str], room: int, size: Callable[[str], int]) -> list[str]:
    """The first lines that fit into `room` tokens."""
    fitting_lines: list[str] = []
    for line in lines:
        room -= size(line + "\n")
        if room < 0:
            break
        fitting_lines.append(line)
    return fitting_lines
