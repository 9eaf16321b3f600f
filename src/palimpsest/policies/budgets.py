"""Levels of a budget in tokens, from the window of a model and the settings."""

from palimpsest.core.budget import Budget

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


def codex_effective(window: int) -> int:
    """Return the tokens of a window that Codex plans with."""
    return window * 95 // 100


def percent_left(total: int, effective_window: int) -> int:
    """Return the free share of the window as codex shows it, in percent: the first 12,000 tokens are not counted."""
    room = effective_window - CODEX_BASELINE
    if room <= 0:
        return 0
    left = room - max(0, total - CODEX_BASELINE)
    # Integer arithmetic that rounds halves up.
    return (200 * min(room, max(0, left)) + room) // (2 * room)
