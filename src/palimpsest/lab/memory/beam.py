"""Reads chats with questions and their sources in the format of BEAM, as conversations with evidence."""

import ast
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from palimpsest.core.errors import BadInput
from palimpsest.lab.memory.conversations import (
    CATEGORIES,
    AskedConversation,
    EvaluationData,
    Question,
    iso_date,
    read_conversations,
    read_samples,
)
from palimpsest.memory.recall.units import RecallUnit, cut

# Numbers of the abilities as categories, beyond those of LoCoMo; the names are those of the data.
ABILITIES: Final = (
    "abstention",
    "contradiction_resolution",
    "event_ordering",
    "information_extraction",
    "instruction_following",
    "knowledge_update",
    "multi_session_reasoning",
    "preference_following",
    "summarization",
    "temporal_reasoning",
)
BEAM: Final = "BEAM"
FIRST_ABILITY: Final = 101
OTHER_ABILITY: Final = 199
# A message ends with marks that are no part of it, such as ` ->-> 1,12`.
_ANCHOR: Final = re.compile(r"([A-Za-z]{3,9})[-\s](\d{1,2})[-,\s]+(\d{4})")
_SUFFIX: Final = re.compile(r"\s*->->.*\Z", re.DOTALL)


def read_data(path: Path, audit: Path | None = None) -> EvaluationData:
    """Return the conversations of a file in the format of LoCoMo or of BEAM. Raises `BadInput` if it has neither."""
    data, samples = read_samples(path)
    if not samples or "chat" not in samples[0] or "probing_questions" not in samples[0]:
        return read_conversations(path, audit)
    try:
        found = tuple(beam_conversation(place, sample) for place, sample in enumerate(samples))
    except (KeyError, TypeError, AttributeError, ValueError, SyntaxError) as error:
        raise BadInput(f"this is no chat in the format of BEAM: {type(error).__name__} {error}", where=str(path)) from error
    return EvaluationData(path.name, sha256(data).hexdigest(), found, BEAM)


def category_name(category: int) -> str:
    """Return the name of a category of LoCoMo, or of an ability of BEAM."""
    if FIRST_ABILITY <= category < FIRST_ABILITY + len(ABILITIES):
        return ABILITIES[category - FIRST_ABILITY]
    return CATEGORIES.get(category, "other" if category == OTHER_ABILITY else str(category))


def message_of(unit: str) -> str:
    """Return the id of the message that a unit is a part of: units of BEAM are scored as their message."""
    session, colon, place = unit.rpartition(":")
    return f"{session}{colon}{place.partition('.')[0]}"


def beam_conversation(place: int, sample: Mapping[str, Any]) -> AskedConversation:
    """Return a chat as a conversation. Raises `KeyError`, `TypeError` or `ValueError` if it is none.

    Units are parts of messages of at most 120 words, `<message>`, `<message>.2` and so on; they are scored as their message. A batch is a
    session. Questions without a source that exists, such as those about nothing in the chat, are left out.
    """
    units = tuple(_units(sample["chat"]))
    messages = {unit.id.rpartition(":")[2].partition(".")[0]: unit.id.partition(".")[0] for unit in reversed(units)}
    asked = sample["probing_questions"]
    # Published files hold the questions as the text of a Python value.
    by_ability: Mapping[str, list[Mapping[str, Any]]] = ast.literal_eval(asked) if isinstance(asked, str) else asked
    questions: list[Question] = []
    for ability, entries in by_ability.items():
        category = FIRST_ABILITY + ABILITIES.index(ability) if ability in ABILITIES else OTHER_ABILITY
        for entry in entries:
            named = dict.fromkeys(str(each) for each in source_ids(entry.get("source_chat_ids")))
            evidence = tuple(dict.fromkeys(messages[each] for each in named if each in messages))
            if evidence:
                questions.append(Question(len(questions), str(entry["question"]), category, evidence, evidence))
    return AskedConversation(str(sample.get("conversation_id", place)), units, tuple(questions))


def source_ids(found: Any) -> Iterator[int]:
    """Yield the message ids of a number, of lists and of dictionaries of lists, in order."""
    if isinstance(found, int):
        yield found
    elif isinstance(found, list | tuple):
        for each in found:
            yield from source_ids(each)
    elif isinstance(found, dict):
        for each in found.values():
            yield from source_ids(each)


def _units(chat: Any) -> Iterator[RecallUnit]:
    batches = [batch for batch in chat if batch]
    if batches and isinstance(batches[0], dict):
        batches = [batches]
    for number, batch in enumerate(batches, 1):
        position = 0
        date = ""
        for message in batch:
            date = str(message.get("time_anchor") or date)
            for part, text in enumerate(cut(_SUFFIX.sub("", message["content"])), 1):
                name = f"b{number}:{message['id']}" + (f".{part}" if part > 1 else "")
                yield RecallUnit(name, text, role=message["role"], session=f"b{number}", position=position, date=_iso_anchor(date))
                position += 1


def _iso_anchor(text: str) -> str:
    """Return the ISO date of an anchor such as `March-15-2024`; empty if it has another form."""
    found = _ANCHOR.search(text)
    return iso_date(f"{found[2]} {found[1]} {found[3]}") if found is not None else ""
