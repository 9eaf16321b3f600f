"""The one count of tokens of a view that all commands print: that of the engine, under the profile that the session recorded."""

from collections.abc import Mapping
from typing import NamedTuple

import click

from pal.cli.opening import SessionLocation
from pal.text import plain
from palimpsest.agent.named_profiles import is_profile_name, profile
from palimpsest.agent.session import tools_size
from palimpsest.audit.sizes import SIZE_RULES
from palimpsest.core.budget import Budget
from palimpsest.core.errors import BadInput, MissingBlob
from palimpsest.core.ledger import LedgerProjection
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import Calibration
from palimpsest.core.view import View
from palimpsest.policies.named import DEFAULT
from palimpsest.policies.profile import Count, Profile
from palimpsest.wire.encode import recorded_tools
from palimpsest.wire.models import CARDS, DEFAULT_MODEL, ModelCard, recorded_card, resized
from palimpsest.wire.request import Tool

# Only our own estimate is calibrated; the rules of imitated programs count as the originals do.
_CALIBRATED = "palimpsest"


class ViewCount(NamedTuple):
    """Counts the views of one session: `counter` for items, `tools` tokens of the tool declarations, and the `rule` for a request."""

    counter: TokenCounter
    tools: int
    rule: Count

    def used(self, view: View) -> int:
        """Return the tokens of the next request with a view: what was reported last and an estimate of what changed since."""
        return self.rule(view, self.counter, self.tools)


def count_of(view: View, log: Log, blobs: Blobs, cards: tuple[ModelCard, ...] = CARDS) -> ViewCount:
    """Return what counts a view of a log, calibrated by the replies on the path to it."""
    session_profile = profile_of(view)
    model = recorded_card(view.model or DEFAULT_MODEL, cards)
    is_calibrated = session_profile.size_rule == _CALIBRATED
    learned = _calibration(view, log) if is_calibrated else None
    factor = 1.0 if learned is None else learned.factor(model.name)
    counter = TokenCounter(SIZE_RULES[session_profile.size_rule], factor, drops_cached=model.cache_edits)
    size = tools_size(_tools(view, blobs))
    tools_tokens = counter.scaled(size) if learned is None else learned.tools_tokens(model.name, size)
    return ViewCount(counter, tools_tokens, session_profile.count)


def budget_of(
    view: View, cards: tuple[ModelCard, ...] = CARDS, window: int | None = None, environment: Mapping[str, str] | None = None
) -> Budget:
    """Return the budget of the profile and the model of a session, or of the default ones; `environment` has settings of profiles.

    A model without a card gets the budget of its stand-in. `window` is that of another model.
    """
    found = recorded_card(view.model or DEFAULT_MODEL, cards)
    return profile_of(view, environment).budget(found if window is None else resized(found, window))


def view_tokens(view: View, log: Log, blobs: Blobs, cards: tuple[ModelCard, ...] = CARDS) -> int:
    """Return the tokens of the next request with a view."""
    return count_of(view, log, blobs, cards).used(view)


def require_room(after: View, log: Log, found: SessionLocation, cards: tuple[ModelCard, ...]) -> tuple[int, int]:
    """Return the tokens of a future view and the tokens that fit. Raises `BadInput` with both numbers if it does not fit."""
    tokens = view_tokens(after, log, found.blobs, cards)
    budget = budget_of(after, cards)
    room = budget.block_at or budget.window
    if tokens >= room:
        numbers = f"it would have {tokens:,} tokens, and the window of {budget.window:,} takes {room:,}"
        raise BadInput(f"the resulting view would not fit: {numbers}, so {tokens - room + 1:,} are too many", where=found.session)
    return tokens, room


def _tools(view: View, blobs: Blobs) -> tuple[Tool, ...]:
    """Return the tools of the last call; none, with a warning, if their declarations cannot be read."""
    call = view.call
    if call is None or not call.tools:
        return ()
    try:
        return recorded_tools(call.tools, blobs.get)
    except MissingBlob as error:
        click.echo(plain(f"pal: {error}; the tools of the last request are not counted"), err=True)
        return ()


def profile_of(view: View, environment: Mapping[str, str] | None = None) -> Profile:
    """Return the profile that a session recorded, the default one if it cannot be told."""
    return profile(view.profile if is_profile_name(view.profile) else DEFAULT, environment)


def _calibration(view: View, log: Log) -> Calibration:
    """Return what the replies on the path to a view taught; the log knows it of all branches together."""
    seq = min(max(view.seq, 0), log.tip)
    path = log.reader.path(seq)
    if seq == log.tip and len(path.ranges) == 1:
        return log.ledger.calibration
    ledger = LedgerProjection()
    for event in log.reader.along(path):
        if type(event.body) in LedgerProjection.watches:
            ledger.take(event)
    return ledger.value().calibration
