"""How each profile builds its budget from the numbers of a card and its own settings."""

from palimpsest.core.tokens.budget import Budget

CLAUDE_REPLY = 32_000
CLAUDE_MARGIN = 13_000
CLAUDE_WARNING = 20_000
CLAUDE_ERROR = 20_000
CLAUDE_LAST_ROOM = 3_000
CLAUDE_REPLY_CAP = 20_000
OPENCODE_REPLY = 32_000
OPENCODE_RESERVED = 20_000


def palimpsest_budget(window: int, reply: int, bytes_at: int | None = None, *, input_limit: int | None = None) -> Budget:
    """Ours: fold at the latest a fifth before the end of the room, or 40,000 tokens where that is less.

    Some cards allow replies longer than that, which hardly any call needs: whoever sends a request asks for no longer reply than
    there is room for. An `input_limit` is for the prompt alone: the reply has its own room.
    """
    room = min(window, input_limit or window)
    compact_at = room - min(40_000, room // 5)
    return Budget(
        window=room,
        reply=reply,
        buffer=room - compact_at,
        warn_at=compact_at - min(20_000, room // 10),
        compact_at=compact_at,
        block_at=room - min(3_000, room // 50),
        bytes_at=bytes_at,
    )


def claude_budget(
    window: int = 200_000,
    max_output: int = CLAUDE_REPLY,
    *,
    auto: bool = True,
    percent: int | None = None,
    block_at: int | None = None,
    bytes_at: int | None = None,
) -> Budget:
    """As documented: the whole reply is reserved, and blocking starts 3,000 before the window's end.

    In a small window each reserve takes at most half of what it is taken from, so that all levels stay above zero and in order.
    """
    reply = min(max_output if max_output > 0 else CLAUDE_REPLY, window // 2)
    available = window - reply
    compact_at = _claude_compact_at(available, percent)
    effective = compact_at if auto else available
    warn_at = _before(effective, CLAUDE_WARNING)
    return Budget(
        window=window,
        reply=reply,
        buffer=window - _before(available, CLAUDE_MARGIN),
        warn_at=warn_at,
        clear_at=warn_at,
        compact_at=compact_at if auto else None,
        block_at=block_at if block_at is not None and block_at > 0 else _before(window, CLAUDE_LAST_ROOM, 4),
        bytes_at=bytes_at,
        error_at=_before(effective, CLAUDE_ERROR),
    )


def claude_measured_budget(
    window: int = 200_000,
    max_output: int = CLAUDE_REPLY,
    *,
    auto: bool = True,
    percent: int | None = None,
    auto_window: int | None = None,
    bytes_at: int | None = None,
) -> Budget:
    """As measured on 2.1.325: at most 20,000 are reserved for the reply, and nothing is cleared by tokens.

    Small windows as in `claude_budget`.
    """
    window = auto_window if auto_window is not None and auto_window > 0 else window
    reply = min(max_output if max_output > 0 else CLAUDE_REPLY, CLAUDE_REPLY_CAP, window // 2)
    available = window - reply
    compact_at = _claude_compact_at(available, percent)
    effective = compact_at if auto else available
    return Budget(
        window=window,
        reply=reply,
        buffer=window - _before(available, CLAUDE_MARGIN),
        warn_at=_before(effective, CLAUDE_WARNING),
        compact_at=compact_at if auto else None,
        block_at=_before(available, CLAUDE_LAST_ROOM, 4),
        bytes_at=bytes_at,
        error_at=_before(effective, CLAUDE_ERROR),
    )


def _claude_compact_at(available: int, percent: int | None) -> int:
    level = _before(available, CLAUDE_MARGIN)
    if percent is None or not 1 <= percent <= 100:
        return level
    return max(1, min(level, available * percent // 100))


def _before(level: int, reserve: int, most: int = 2) -> int:
    """A level less a reserve, of which the reserve takes one part in `most` at the most."""
    return level - min(reserve, level // most)


def codex_effective(window: int) -> int:
    """The part of the window that codex plans with."""
    return window * 95 // 100


def codex_budget(window: int = 272_000, *, limit: int | None = None, prefix: int = 0, bytes_at: int | None = None) -> Budget:
    """Compact at nine tenths of the window, or at a lower limit.

    With a `prefix` only what came after it counts, but the effective window is never passed.
    """
    effective = codex_effective(window)
    level = window * 9 // 10
    if limit is not None:
        level = min(level, limit)
    if prefix > 0:
        level = min(level + prefix, effective)
    return Budget(window=window, reply=window - effective, buffer=window - level, compact_at=level, bytes_at=bytes_at)


def opencode_budget(
    window: int,
    reply_limit: int | None = None,
    input_limit: int | None = None,
    *,
    auto: bool = True,
    bytes_at: int | None = None,
) -> Budget:
    """As documented: compact once more is used than the input limit, or than the window without the reply."""
    reply = _opencode_reply(reply_limit)
    usable = input_limit or window - reply
    return _opencode(window, reply, usable, usable + 1 if auto else None, bytes_at)


def opencode_measured_budget(
    window: int,
    reply_limit: int | None = None,
    input_limit: int | None = None,
    *,
    reserved: int | None = None,
    auto: bool = True,
    bytes_at: int | None = None,
) -> Budget:
    """As 1.18 does it: a reserve is taken off an input limit, and only there; the usable room itself triggers."""
    reply = _opencode_reply(reply_limit)
    if input_limit:
        usable = max(0, input_limit - (min(OPENCODE_RESERVED, reply) if reserved is None else reserved))
    else:
        usable = max(0, window - reply)
    return _opencode(window, reply, usable, usable if auto else None, bytes_at)


def _opencode_reply(reply_limit: int | None) -> int:
    return min(reply_limit, OPENCODE_REPLY) if reply_limit else OPENCODE_REPLY


def _opencode(window: int, reply: int, usable: int, level: int | None, bytes_at: int | None) -> Budget:
    # A card without a window says that nobody knows it: such a model is never compacted for.
    compact_at = level if window else None
    return Budget(window=window, reply=reply, buffer=max(0, window - usable), compact_at=compact_at, bytes_at=bytes_at)
