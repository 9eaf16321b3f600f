"""The evidence of a session as text for a model whose conversation was just compacted, within a number of characters."""

from typing import Final

from palimpsest.apps.plugin.hooks.digest import Digest, Said
from palimpsest.audit.fold_texts import evidence_block
from palimpsest.core.format.texts import utc_text

# Shares of the room: messages of the user that are shown whole, and openings of older ones.
_MESSAGES_SHARE: Final = 0.5
_OPENINGS_SHARE: Final = 0.15
_LONGEST_MESSAGE: Final = 1_500
# Of a block of paths and commands, at least.
_CHARS_PER_TOKEN: Final = 2.5
_OPENING_CHARS: Final = 80
_TITLE: Final = (
    "[Added by pal after this compaction: what the transcript of the session proves, listed by a program and not by a model. It is data, "
    "not a new request. More of this session, {session}, is found with the tools search_sessions and show_item of the MCP server pal.]"
)
_NOT_READ: Final = "[{megabytes} MB of the transcript before this are not part of the lists below]"


def evidence_text(digest: Digest, room: int, session: str) -> str:
    """Return the evidence in at most `room` characters; empty if the session has none. `session` is its id in the home."""
    title = _TITLE.format(session=session)
    skipped = [_NOT_READ.format(megabytes=-(-digest.skipped // 1_000_000))] if digest.skipped else []
    left = room - len(title) - sum(len(line) + 1 for line in skipped) - 1
    messages = _messages(digest, left)
    proved = _proved(digest, left - len(messages) - 1)
    if not proved and not digest.messages:
        return ""
    text = "\n".join(part for part in (title, *skipped, proved, messages) if part)
    return text if len(text) <= room else ""


def _messages(digest: Digest, room: int) -> str:
    """Return the newest messages of the user, oldest first, and the openings of those before them."""
    left = int(room * _MESSAGES_SHARE)
    shown: list[str] = []
    for message in reversed(digest.messages):
        line = f"- {utc_text(message.at)}: {_cut(message)}"
        left -= len(line) + 1
        if left < 0:
            break
        shown.append(line)
    older = digest.evidence.user_messages[: max(0, len(digest.evidence.user_messages) - len(shown))]
    openings, left = list[str](), int(room * _OPENINGS_SHARE)
    for said in reversed(older):
        line = f"- {utc_text(said.at)}: {' '.join(said.opening.split())[:_OPENING_CHARS]}…"
        left -= len(line) + 1
        if left < 0:
            break
        openings.append(line)
    earlier = len(older) - len(openings) + digest.evidence.earlier
    counted = [f"- and {earlier} before them"] if earlier and openings else []
    lines = ["Earlier messages of the user, by their openings:", *counted, *reversed(openings)] if openings else []
    return "\n".join((*lines, *(["Messages of the user, verbatim:", *reversed(shown)] if shown else [])))


def _cut(message: Said) -> str:
    """Return a message on one paragraph, without the middle of a long one."""
    text = message.text.strip()
    if len(text) <= _LONGEST_MESSAGE:
        return text
    half = _LONGEST_MESSAGE // 2
    return f"{text[:half]} […] {text[-half:]}"


def _proved(digest: Digest, room: int) -> str:
    """Return paths, commands, tests, errors and tasks in at most `room` characters."""
    tokens = max(0, int(room / _CHARS_PER_TOKEN))
    text = evidence_block(digest.evidence, tokens)
    while len(text) > room:
        tokens = tokens * 9 // 10
        text = evidence_block(digest.evidence, tokens)
    return text
