"""The budget rules of the profiles: levels in tokens, from the window of a model and the settings."""

from msgspec.structs import replace

from palimpsest.core.budget import Budget

CLAUDE_REPLY = 32_000
CLAUDE_MARGIN = 13_000
CLAUDE_WARNING = 20_000
CLAUDE_ERROR = 20_000
CLAUDE_BLOCK_MARGIN = 3_000
CLAUDE_REPLY_CAP = 20_000
OPENCODE_REPLY = 32_000
OPENCODE_RESERVED = 20_000
CODEX_BASELINE = 12_000
"""Tokens at the start of the window that Codex does not count."""


def palimpsest_budget(
    window: int, reply: int, bytes_at: int | None = None, *, input_limit: int | None = None, working: int | None = None
) -> Budget:
    """Return the budget of `palimpsest`: fold a fifth of the window before its end, or 40,000 tokens if that is less.

    A card may allow longer replies than that; the encoder then asks for a reply that fits. An `input_limit` is the limit of the prompt
    alone, and replaces the window. `working` is the part of it that is meant to be used, such as that below a step of the price: it is
    the window of all levels but the last, at which requests are blocked because the model would refuse them.
    """
    room = min(window, input_limit or window)
    usual = min(room, working or room)
    compact_at = usual - min(40_000, usual // 5)
    return Budget(
        window=usual,
        reply=reply,
        buffer=usual - compact_at,
        warn_at=compact_at - min(20_000, usual // 10),
        compact_at=compact_at,
        block_at=room - min(3_000, room // 50),
        bytes_at=bytes_at,
    )


def claude_budget(
    window: int = 200_000, max_output: int = CLAUDE_REPLY, *, auto: bool = True, percent: int | None = None, block_at: int | None = None
) -> Budget:
    """Return the documented budget of Claude Code: the whole reply is reserved, and requests are blocked 3,000 tokens before the end.

    In a small window each reserve is at most half of the level it is taken from, so that all levels stay above zero and in order.
    """
    reply = min(max_output if max_output > 0 else CLAUDE_REPLY, window // 2)
    blocks = block_at if block_at is not None and block_at > 0 else _before(window, CLAUDE_BLOCK_MARGIN, 4)
    budget = _claude_levels(window, reply, blocks, auto=auto, percent=percent)
    return replace(budget, clear_at=budget.warn_at)


def claude_measured_budget(
    window: int = 200_000, max_output: int = CLAUDE_REPLY, *, auto: bool = True, percent: int | None = None, auto_window: int | None = None
) -> Budget:
    """Return the budget of Claude Code 2.1.325 as measured: at most 20,000 tokens are reserved for the reply, and no level clears results.

    Small windows are as in `claude_budget`.
    """
    window = auto_window if auto_window is not None and auto_window > 0 else window
    reply = min(max_output if max_output > 0 else CLAUDE_REPLY, CLAUDE_REPLY_CAP, window // 2)
    return _claude_levels(window, reply, _before(window - reply, CLAUDE_BLOCK_MARGIN, 4), auto=auto, percent=percent)


def _claude_levels(window: int, reply: int, block_at: int, *, auto: bool, percent: int | None) -> Budget:
    available = window - reply
    compact_at = usual = _before(available, CLAUDE_MARGIN)
    if percent is not None and 1 <= percent <= 100:
        compact_at = max(1, min(usual, available * percent // 100))
    effective = compact_at if auto else available
    return Budget(
        window=window,
        reply=reply,
        buffer=window - usual,
        warn_at=_before(effective, CLAUDE_WARNING),
        compact_at=compact_at if auto else None,
        block_at=block_at,
        error_at=_before(effective, CLAUDE_ERROR),
    )


def _before(level: int, reserve: int, most: int = 2) -> int:
    """Subtract a reserve from a level; the reserve is at most one part in `most` of the level."""
    return level - min(reserve, level // most)


def codex_effective(window: int) -> int:
    """Return the tokens of a window that Codex plans with."""
    return window * 95 // 100


def codex_budget(window: int = 272_000, *, limit: int | None = None, prefix: int = 0) -> Budget:
    """Return the budget of Codex: compact at nine tenths of the window, or at a lower `limit`.

    A `prefix` of tokens that do not count raises the level, at most to the effective window.
    """
    effective = codex_effective(window)
    level = window * 9 // 10
    if limit is not None:
        level = min(level, limit)
    if prefix > 0:
        level = min(level + prefix, effective)
    return Budget(window=window, reply=window - effective, buffer=window - level, compact_at=level)


def opencode_budget(
    window: int, reply_limit: int | None = None, input_limit: int | None = None, *, auto: bool = True, reply_cap: int = OPENCODE_REPLY
) -> Budget:
    """Return the documented budget of OpenCode: compact above the input limit, or above the window less the reply."""
    reply = _opencode_reply(reply_limit, reply_cap)
    usable = input_limit or window - reply
    return _opencode_levels(window, reply, usable, usable + 1 if auto else None)


def opencode_measured_budget(
    window: int,
    reply_limit: int | None = None,
    input_limit: int | None = None,
    *,
    reserved: int | None = None,
    auto: bool = True,
    reply_cap: int = OPENCODE_REPLY,
) -> Budget:
    """Return the budget of OpenCode 1.18 as measured: compact at the input limit less a reserve, or at the window less the reply."""
    reply = _opencode_reply(reply_limit, reply_cap)
    if input_limit:
        usable = max(0, input_limit - (min(OPENCODE_RESERVED, reply) if reserved is None else reserved))
    else:
        usable = max(0, window - reply)
    return _opencode_levels(window, reply, usable, usable if auto else None)


def _opencode_reply(reply_limit: int | None, cap: int) -> int:
    return min(reply_limit, cap) if reply_limit else cap


def _opencode_levels(window: int, reply: int, usable: int, level: int | None) -> Budget:
    # A window of 0 is unknown: such a model is never compacted for.
    compact_at = level if window else None
    return Budget(window=window, reply=reply, buffer=max(0, window - usable), compact_at=compact_at)


def percent_left(total: int, effective_window: int) -> int:
    """Return the free share of the window as codex shows it, in percent: the first 12,000 tokens are not counted."""
    room = effective_window - CODEX_BASELINE
    if room <= 0:
        return 0
    left = room - max(0, total - CODEX_BASELINE)
    # Integer arithmetic that rounds halves up.
    return (200 * min(room, max(0, left)) + room) // (2 * room)
