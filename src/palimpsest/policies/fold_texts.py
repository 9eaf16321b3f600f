"""The texts that a fold adds: older messages, evidence, names, each in a frame that says what it is."""

from datetime import UTC, datetime

from palimpsest.audit.parts import EVIDENCE, MESSAGES, NAMES
from palimpsest.core.edits import Put
from palimpsest.core.items import Text
from palimpsest.core.situation import Situation
from palimpsest.policies.fold_bounds import Bounds


def older_put(situation: Situation, shown: frozenset[str]) -> tuple[Put, ...]:
    """Messages of the user that do not show any more: id, time and opening words of each."""
    lines = [f"- {said.id}, {_time(said.at)}: {said.opening}" for said in situation.evidence.said if said.id not in shown]
    return (_put(MESSAGES, "Earlier messages of the user:\n" + "\n".join(lines)),) if lines else ()


def evidence_put(situation: Situation, whole: frozenset[str], bounds: Bounds) -> tuple[Put, ...]:
    """What the log proves about the work so far; `whole` are the user's items that show verbatim."""
    evidence = situation.evidence
    lines = [
        *(f"- {quote.kind}: {quote.text} ({quote.id})" for quote in evidence.quotes if quote.id not in whole),
        *(f"- edited: {path}" for path in evidence.edited),
        *(f"- read: {path}" for path in evidence.read),
    ]
    return (_put(EVIDENCE, "What the log shows of the work so far:\n" + "\n".join(lines)),) if lines and bounds.evidence else ()


def names_put(situation: Situation, bounds: Bounds) -> tuple[Put, ...]:
    """The names that the model used itself, the most recent first."""
    names = situation.evidence.names
    return (_put(NAMES, "Names in use: " + ", ".join(reversed(names))),) if names and bounds.names else ()


def message_head(situation: Situation, item_id: str, cut: int) -> str:
    """The line above a message that is shown in part."""
    at = next((f", {_time(said.at)}" for said in situation.evidence.said if said.id == item_id), "")
    return f"[message of the user {item_id}{at}; {cut} tokens in the middle are left out, `recall` {item_id} shows it whole]"


def _put(source: str, text: str) -> Put:
    return Put("summary", Text(text), source)


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")
