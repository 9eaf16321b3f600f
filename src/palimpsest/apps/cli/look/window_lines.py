"""What `pal context` says beside its table: the share of the window that is left as the profile counts it, and the latest rate limits."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.calls import RateLimit
from palimpsest.core.log.log import Log
from palimpsest.core.tokens.budget import Budget
from palimpsest.core.view import View
from palimpsest.engine.named_profiles import is_profile_name, profile
from palimpsest.profiles.named import DEFAULT

# Events before the newest one in which the latest reply is looked for.
_MOST_EVENTS = 2_000


def share_left(view: View, budget: Budget, used: int) -> int | None:
    """Return the percent that are left as the profile of the session tells its user; `None` for a profile that does not."""
    left = profile(view.profile if is_profile_name(view.profile) else DEFAULT).left
    return None if left is None else left(used, budget)


def latest_limits(log: Log) -> tuple[RateLimit, ...]:
    """Return the rate limits that the newest reply with any reported; empty if none did lately."""
    newest = (log.event(seq).body for seq in range(log.tip, -1, -1))
    replies = (body for body in islice(newest, _MOST_EVENTS) if isinstance(body, ModelReplied))
    # The events of a fork whose base is gone have a first one.
    with suppress(PalimpsestError):
        return next((body.limits for body in replies if body.limits), ())
    return ()


def window_lines(left: int | None, limits: tuple[RateLimit, ...]) -> Iterator[str]:
    """Yield the lines to print."""
    if left is not None:
        yield f"{left}% of the context is left, as this profile counts: the first 12,000 tokens are not counted"
    for limit in limits:
        window = "" if limit.window_minutes is None else f" of {limit.window_minutes:,} minutes"
        # In the local time of the user.
        reset = "" if limit.resets_at is None else f", resets {datetime.fromtimestamp(limit.resets_at).astimezone():%m-%d %H:%M}"
        yield f"rate limit {limit.name}{window}: {limit.used_percent:.0f}% used{reset}"
