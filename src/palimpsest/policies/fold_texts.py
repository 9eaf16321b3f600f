"""The texts that a fold adds: older messages, evidence, names, each under a line that says what it is."""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from palimpsest.audit.block import SHORT, cut_to, evidence_block, names_block, older_messages_block, short_line, time_of, turns_begin
from palimpsest.audit.entities import names_of
from palimpsest.audit.parts import EVIDENCE, MESSAGES, NAMES, SEEN
from palimpsest.core.edits import Put
from palimpsest.core.items import Item, Text, text_of
from palimpsest.core.redact import redact
from palimpsest.core.situation import Situation
from palimpsest.core.tokens import estimate
from palimpsest.policies.fold_bounds import Bounds

_OLDER = "[Earlier messages of the user: id, time and opening words; `recall` with the id shows one whole]"
_EVIDENCE = "[Work so far, listed from the log by a program; results that are gone can be read again or recalled]"
_MORE = "[More commands of the last turns, newest first, with exit codes]"
_NAMES = "[Names used lately, newest first]"
_SEEN = "[Names in results that are gone, newest first]"
_TASK = 60
_SHORTEST_NAME = 3
# Nobody looks for names in more of one result than this.
_LOOKED_AT = 40_000
_LONGEST_NAME, _LONGEST_WORD, _LONGEST_MIXED = 80, 40, 20
_WORDS = re.compile(r"[^A-Za-z0-9+=]+")
_DIGITS = re.compile(r"[0-9].*[0-9]")
_NONE: frozenset[int] = frozenset()


def older_put(situation: Situation, shown: AbstractSet[str], room: int | None = None) -> tuple[Put, ...]:
    """Messages of the user that do not show any more: id, time and opening words of each, or of the newest that fit a room."""
    told = [older_messages_block((said,)) for said in situation.evidence.said if said.id not in shown]
    if room is not None:
        told = _newest(told, room - estimate(_OLDER, situation.tokens.factor) - 16, situation.tokens.factor)
    return (_put(MESSAGES, "\n".join((_OLDER, *told))),) if told else ()


def _newest(told: Sequence[str], room: float, factor: float) -> list[str]:
    """The last ones that fit, after a line that counts the others."""
    fitting: list[str] = []
    for line in reversed(told):
        room -= estimate(line, factor) + factor
        if room < 0:
            break
        fitting.append(line)
    left = len(told) - len(fitting)
    return [*([f"- and {left} before them"] if left else []), *reversed(fitting)]


def evidence_put(situation: Situation, bounds: Bounds, kept: AbstractSet[int] = _NONE) -> tuple[Put, ...]:
    """What the log proves about the work so far. Open tasks show always.

    Results of the events `kept` show as they are, so that their commands need no room where it is short.
    """
    evidence, factor = situation.evidence, situation.tokens.factor
    room = bounds.evidence - estimate(_EVIDENCE, factor) - 8
    text = evidence_block(evidence, room, elsewhere=kept, factor=factor) if room > 0 else ""
    missing = [f"- {cut_to(task, _TASK)}" for task in evidence.tasks if task[:_TASK] not in text]
    if missing:
        text = "\n".join((*(text,) * bool(text), "Open tasks:", *missing))
    return (_put(EVIDENCE, f"{_EVIDENCE}\n{text}"),) if text else ()


def names_put(situation: Situation, bounds: Bounds, told: Iterable[Put], kept: AbstractSet[int] = _NONE) -> tuple[Put, ...]:
    """The names that the model used itself, the most recent first; commands for which the evidence had no room take up to half of it."""
    factor = situation.tokens.factor
    room = bounds.names - estimate(_NAMES, factor) - 8
    more = _more_commands(situation, "\n".join(text_of(piece.content) for piece in told), kept, room // 2)
    text = names_block(situation.evidence.names, room - estimate(more, factor), factor=factor) if room > 0 else ""
    lines = [line for line in (more, text and f"{_NAMES}\n{text}") if line]
    return (_put(NAMES, "\n".join(lines)),) if lines else ()


def seen_put(situation: Situation, bounds: Bounds, gone: Sequence[Item]) -> tuple[Put, ...]:
    """Names in results that go, the newest first, which the model has not used itself: it can name them without reading again."""
    factor = situation.tokens.factor
    room = float(bounds.seen - estimate(_SEEN, factor) - 8)
    known = set(situation.evidence.names)
    found: list[str] = []
    for item in reversed(gone):
        if room < _SHORTEST_NAME:
            break
        if item.mask is None and (item.kind == "result" or item.source == SEEN):
            for name in names_of(text_of(item.content).removeprefix(_SEEN)[:_LOOKED_AT]):
                if name not in known and is_telling(name):
                    known.add(name)
                    room -= estimate(f", {name}", factor) + factor
                    if room < 0:
                        break
                    found.append(name)
    return (_put(SEEN, redact(f"{_SEEN}\n{', '.join(found)}")),) if found else ()


def is_telling(name: str) -> bool:
    """Whether a name tells something: not a digest, a key or a piece of base64, which nobody types."""
    if len(name) > _LONGEST_NAME:
        return False
    longest = max((len(word) for word in _WORDS.split(name)), default=0)
    return longest <= _LONGEST_WORD and not (_DIGITS.search(name) and longest > _LONGEST_MIXED)


def _more_commands(situation: Situation, told: str, kept: AbstractSet[int], room: int) -> str:
    """Commands of the last turns that are not told yet, newest first, as many as fit."""
    evidence, factor = situation.evidence, situation.tokens.factor
    begins = turns_begin(evidence, elsewhere=kept)
    lines: list[str] = []
    for ran in reversed(evidence.commands):
        if ran.seq >= begins and ran.seq not in kept and ran.command[:SHORT] not in told:
            line = short_line(ran)
            room -= estimate(line, factor) + 1
            if room < estimate(_MORE, factor):
                break
            lines.append(line)
    return "\n".join((_MORE, *lines)) if lines else ""


def message_head(situation: Situation, item_id: str, cut: int) -> str:
    """The line above a message that is shown in part."""
    at = next((f", {time_of(said.at)}" for said in situation.evidence.said if said.id == item_id), "")
    return f"[Message {item_id} of the user{at}: {cut} tokens in the middle are left out, `recall` with the id shows it whole]"


def _put(source: str, text: str) -> Put:
    return Put("summary", Text(text), source)
