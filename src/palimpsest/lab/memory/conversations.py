"""Reads conversations with questions and their evidence, in the format of LoCoMo, and the corrections of an audit of that data."""

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.memory.recall.units import RecallUnit

CATEGORIES: Final[Mapping[int, str]] = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ADVERSARIAL: Final = 5
# Larger files are no data of this kind.
_MOST_BYTES: Final = 256 * 1024 * 1024
_SESSION: Final = re.compile(r"session_(\d+)")
# Some strings of evidence hold several ids, or are malformed: `D8:6; D9:17`, `D:11:26`, `D30:05`.
_EVIDENCE: Final = re.compile(r"D:?\s*(\d+)\s*:\s*0*(\d+)")
_DATE: Final = re.compile(r"(\d{1,2}) (\w{3})\w*,? (\d{4})")
_AUDITED: Final = re.compile(r"locomo_(\d+)_qa(\d+)")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class Question(Value, frozen=True):
    """A question with the ids of the units that answer it, as published and as corrected by an audit; `number` is its place in the file."""

    number: int
    text: str
    category: int
    evidence: tuple[str, ...]
    corrected: tuple[str, ...]


class AskedConversation(Value, frozen=True):
    """One index: its units in order, and the questions that have evidence in it."""

    name: str
    units: tuple[RecallUnit, ...]
    questions: tuple[Question, ...]


class EvaluationData(Value, frozen=True):
    """All conversations of a file, and the SHA-256 of its bytes; `form` is the name of its format."""

    name: str
    digest: str
    conversations: tuple[AskedConversation, ...]
    form: str = "LoCoMo"


def read_conversations(path: Path, audit: Path | None = None) -> EvaluationData:
    """Return the conversations of a file. Raises `BadInput` if it or the audit cannot be read as such."""
    data, samples = read_samples(path)
    corrections = {} if audit is None else _corrections(audit)
    try:
        found = tuple(_conversation(place, sample, corrections) for place, sample in enumerate(samples))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadInput(f"this is no conversation in the format of LoCoMo: {type(error).__name__} {error}", where=str(path)) from error
    return EvaluationData(path.name, sha256(data).hexdigest(), found)


def read_samples(path: Path) -> tuple[bytes, list[dict[str, Any]]]:
    """Return the bytes of a file and the samples that it lists. Raises `BadInput` if it is no list of samples."""
    data = _bytes(path)
    return data, _decoded(path, data)


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BadInput(f"the file has more than {_MOST_BYTES >> 20} MB", where=str(path))
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"the file cannot be read ({error.strerror})", where=str(path)) from error


def _decoded(path: Path, data: bytes) -> list[dict[str, Any]]:
    try:
        return msgspec.json.decode(data, type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise BadInput(f"this is no list of conversations: {error}", where=str(path)) from error


def _conversation(place: int, sample: Mapping[str, Any], corrections: Mapping[tuple[int, int], tuple[str, ...]]) -> AskedConversation:
    conversation = sample["conversation"]
    units = tuple(_units(conversation))
    known = {unit.id for unit in units}
    questions: list[Question] = []
    for number, entry in enumerate(sample["qa"]):
        evidence = evidence_ids(entry.get("evidence") or (), known)
        if evidence:
            corrected = evidence_ids(corrections.get((place, number), ()), known)
            questions.append(Question(number, entry["question"], entry["category"], evidence, corrected or evidence))
    return AskedConversation(str(sample.get("sample_id", place)), units, tuple(questions))


def _units(conversation: Mapping[str, Any]) -> Iterator[RecallUnit]:
    numbers = sorted(int(found[1]) for found in map(_SESSION.fullmatch, conversation) if found is not None)
    for number in numbers:
        date = iso_date(conversation.get(f"session_{number}_date_time", ""))
        for position, turn in enumerate(conversation[f"session_{number}"]):
            (turn_id,) = evidence_ids((turn["dia_id"],))
            caption = turn.get("blip_caption")
            text = f"{turn['text']} [image: {caption}]" if caption else turn["text"]
            yield RecallUnit(turn_id, text, turn["speaker"], session=f"D{number}", position=position, date=date)


def evidence_ids(strings: Iterable[str], known: set[str] | None = None) -> tuple[str, ...]:
    """Return the distinct ids `D<session>:<turn>` in strings, in order, without those that are not known."""
    found = (f"D{int(session)}:{int(turn)}" for string in strings for session, turn in _EVIDENCE.findall(string))
    return tuple(dict.fromkeys(each for each in found if known is None or each in known))


def iso_date(text: str) -> str:
    """Return the ISO date of a text such as `1:56 pm on 8 May, 2023`; empty if there is none."""
    found = _DATE.search(text)
    if found is None or found[2].lower() not in _MONTHS:
        return ""
    return f"{found[3]}-{_MONTHS.index(found[2].lower()) + 1:02d}-{int(found[1]):02d}"


def _corrections(path: Path) -> dict[tuple[int, int], tuple[str, ...]]:
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for entry in _decoded(path, _bytes(path)):
        named = _AUDITED.fullmatch(str(entry.get("question_id")))
        if named is not None:
            found[int(named[1]), int(named[2])] = tuple(map(str, entry.get("correct_evidence") or ()))
    return found
