"""The texts that a fold adds, computed from the log: evidence, names and older messages of the user."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Final

from palimpsest.core.items import Item, Piece, seq_of
from palimpsest.core.situation import Evidence, Ran, Said
from palimpsest.core.tokens.estimate import estimate

MESSAGES: Final = "older messages"
EVIDENCE: Final = "evidence"
NAMES: Final = "names"
SEEN: Final = "names seen"
NARRATIVE: Final = "narrative"
# A message of the user that is shown in part: this and its id.
PARTIAL_MESSAGE: Final = "message "

_COMPUTED = frozenset({MESSAGES, EVIDENCE, NAMES, SEEN})


def is_computed(piece: Piece | Item) -> bool:
    """Whether code wrote it from the log, and no model had a hand in it."""
    return piece.kind == "summary" and (piece.source in _COMPUTED or piece.source.startswith(PARTIAL_MESSAGE))


def is_fold_part(piece: Piece | Item) -> bool:
    """Whether it belongs to a fold of ours."""
    return is_computed(piece) or (piece.kind == "summary" and piece.source == NARRATIVE)


def lines_by_folder(paths: Sequence[str]) -> list[str]:
    """One line for each beginning, the newest path first; each path shows as it was written or by its last two parts."""
    groups: dict[str, list[str]] = {}
    for path in reversed(paths):
        beginning, rest = _split_path(path)
        groups.setdefault(beginning, []).append(rest)
    return [f"- {beginning}: {', '.join(rests)}" if beginning else f"- {', '.join(rests)}" for beginning, rests in groups.items()]


def counts_by_folder(paths: Sequence[str]) -> list[str]:
    """One line for each folder with how many of the paths lie in it, the newest folder first."""
    counts: dict[str, int] = {}
    for path in reversed(paths):
        folder = _folder(path)
        counts[folder] = counts.get(folder, 0) + 1
    return [f"- {folder}: {count} more" for folder, count in counts.items()]


def path_lines(paths: Sequence[str], room: int, size: Callable[[str], int]) -> list[str]:
    """Lines within a room: all paths, or the newest that fit and the others by folder with counts, or by number alone."""
    whole = lines_by_folder(paths)
    if size("\n".join(whole)) <= room:
        return whole
    low, high = 0, len(paths)
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


def _folder(path: str) -> str:
    sign = "\\" if "\\" in path and "/" not in path else "/"
    folder, found, _ = path.rpartition(sign)
    return folder + sign if found else "."


EVIDENCE_TOKENS: Final = 4_000
NAMES_TOKENS: Final = 2_400
TURNS: Final = 3
LONG, SHORT = 160, 60


def evidence_block(
    evidence: Evidence,
    tokens: int = EVIDENCE_TOKENS,
    *,
    elsewhere: AbstractSet[int] = frozenset(),
    turns: int = TURNS,
    factor: float = 1.0,
) -> str:
    """What the log proves, within a room in tokens.

    Paths come before commands, which take what is left: those of the last turns, newest first. Where not all of them fit, those whose
    results (by event) show `elsewhere` go first.
    """
    block = _SectionedText(tokens, factor)
    block.add("tests", [_command_line(evidence.tests, LONG)] if evidence.tests is not None else [])
    block.add("tasks", _whole_or_short([f"- {task}" for task in evidence.tasks], block.room(0.25), block.size))
    block.add("edited", path_lines(evidence.edited, block.room(0.6), block.size) if evidence.edited else [])
    block.add("read", path_lines(evidence.read, block.room(0.4), block.size) if evidence.read else [])
    errors = _lines_that_fit([_command_line(ran, SHORT) for ran in reversed(evidence.errors)], block.room(0.1), block.size)
    block.add("errors", errors)
    block.add("commands", _commands(_commands_of_last_turns(evidence, turns, elsewhere), elsewhere, block.room(1.0), block.size))
    return block.text()


def names_block(names: Sequence[str], tokens: int = NAMES_TOKENS, *, factor: float = 1.0) -> str:
    """The names that the model used itself, most recent first, as many as fit."""
    shown: list[str] = []
    room = float(tokens)
    for name in reversed(names):
        room -= estimate(f", {name}", factor)
        if room < 0:
            break
        shown.append(name)
    return ", ".join(shown)


def older_messages_block(said: Iterable[Said], shown: AbstractSet[str] = frozenset(), *, opening: int = 80) -> str:
    """Messages of the user that do not show any more: id, time and opening words of each, oldest first."""
    return "\n".join(f"- {each.id}, {time_of(each.at)}: {each.opening[:opening]}" for each in said if each.id not in shown)


def time_of(at: int) -> str:
    """A moment as people read it, to the minute."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")


_TITLES: Final = {
    "edited": "Edited:",
    "read": "Read:",
    "commands": "Commands, newest first, with exit codes:",
    "tests": "Last test:",
    "errors": "Open errors:",
    "tasks": "Open tasks:",
}


class _SectionedText:
    """Parts of a text that share one room."""

    def __init__(self, tokens: int, factor: float) -> None:
        self._remaining = tokens
        self._factor = factor
        self._sections: dict[str, list[str]] = {}

    def size(self, text: str) -> int:
        return estimate(text, self._factor)

    def room(self, share: float) -> int:
        """So much of what is left, less what a title needs."""
        return max(0, int((self._remaining - 14) * share))

    def add(self, part: str, lines: list[str]) -> None:
        if lines:
            need = self.size("\n".join((_TITLES[part], *lines))) + 1
            if need <= self._remaining:
                self._sections[part] = lines
                self._remaining -= need

    def text(self) -> str:
        """The parts that are there, in the order of their titles."""
        return "\n".join("\n".join((title, *self._sections[part])) for part, title in _TITLES.items() if part in self._sections)


def _command_line(ran: Ran, length: int) -> str:
    """The code stands first, so that a command ends its line as it was written."""
    code = "?" if ran.exit is None else str(ran.exit)
    note = f"{ran.note[:length]} | " if ran.note else ""
    return f"- [{code}] {note}{truncated(ran.command, length)}"


def truncated(text: str, length: int) -> str:
    """A text up to a length, and a mark if there was more."""
    return text if len(text) <= length else f"{text[:length]}…"


def _commands(commands: Sequence[Ran], elsewhere: AbstractSet[int], room: int, size: Callable[[str], int]) -> list[str]:
    """Newest first: all of them at length, or all of them short, or the newest of them short; of those that begin alike the newest."""
    newest = list(reversed(commands))
    long = [_command_line(Ran(ran.command, ran.exit), LONG) for ran in newest]
    if size("\n".join(long)) <= room:
        return long
    alike: dict[str, Ran] = {}
    for ran in newest:
        alike.setdefault(ran.command[:SHORT], ran)
    short = [short_command_line(ran) for ran in alike.values()]
    if size("\n".join(short)) <= room:
        return short
    return _lines_that_fit([short_command_line(ran) for ran in alike.values() if ran.seq not in elsewhere], room, size)


def short_command_line(ran: Ran) -> str:
    """The exit code and the beginning of a command, with nothing around them: where this is used every token counts."""
    return f"{'?' if ran.exit is None else ran.exit} {ran.command[:SHORT]}"


def first_event_of_turns(evidence: Evidence, turns: int = TURNS, elsewhere: AbstractSet[int] = frozenset()) -> int:
    """The event with which the last turns begin; one without a command, or whose commands all show `elsewhere`, does not count."""
    starts = [seq_of(said.id) for said in evidence.said if not said.steering]
    newest = max((ran.seq for ran in evidence.commands if ran.seq not in elsewhere), default=-1)
    while starts and starts[-1] > newest:
        starts.pop()
    return starts[-turns] if len(starts) >= turns else -1


def _commands_of_last_turns(evidence: Evidence, turns: int, elsewhere: AbstractSet[int]) -> list[Ran]:
    begins = first_event_of_turns(evidence, turns, elsewhere)
    return [ran for ran in evidence.commands if ran.seq >= begins]


def _whole_or_short(lines: list[str], room: int, size: Callable[[str], int]) -> list[str]:
    if size("\n".join(lines)) <= room:
        return lines
    return _lines_that_fit([truncated(line, SHORT + 2) for line in lines], room, size)


def _lines_that_fit(lines: list[str], room: int, size: Callable[[str], int]) -> list[str]:
    """As many lines from the beginning as fit."""
    kept: list[str] = []
    for line in lines:
        room -= size(line + "\n")
        if room < 0:
            break
        kept.append(line)
    return kept
