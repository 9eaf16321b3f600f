"""Replays a session that is loaded: its newest exchanges as updates, bounded in number and size."""

from collections import deque
from typing import Final

from acp.schema import UserMessageChunk
from msgspec import Struct

from palimpsest.apps.acp.updates import SessionUpdates, Update, agent_text
from palimpsest.core.log.log import Log


class ReplayLimits(Struct, frozen=True):
    """Events that are read, updates that are sent, and their bytes as JSON; the newest are kept."""

    events: int = 50_000
    updates: int = 5_000
    size: int = 16 * 1024 * 1024


LIMITS: Final = ReplayLimits()


def replay(log: Log, updates: SessionUpdates, limits: ReplayLimits = LIMITS) -> list[Update]:
    """Return the conversation on the current path, from a message of the user on; the first update says if older ones are left out."""
    path, first = log.path, max(1, log.tip - limits.events + 1)
    kept: deque[tuple[Update, int]] = deque()
    size, is_cut = 0, first > 1
    for event in log.reader.run(first, log.tip):
        if event.seq not in path:
            continue
        for update in updates.replayed(event):
            length = len(update.model_dump_json())
            kept.append((update, length))
            size += length
        while kept and (size > limits.size or len(kept) > limits.updates):
            size, is_cut = size - kept.popleft()[1], True
    if is_cut:
        # A result without its call, or half of an answer, would be shown as what it is not.
        while kept and not isinstance(kept[0][0], UserMessageChunk):
            kept.popleft()
    left_out = [agent_text(f"[Older messages are left out here; `pal show {log.session}` shows everything.]")] if is_cut else []
    return [*left_out, *(update for update, _ in kept)]
