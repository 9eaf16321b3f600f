"""What `pal context` counts for the sessions of a list; the index keeps it until their log, its bases or the model cards change."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec.structs import replace

from palimpsest.apps.cli.opening.home import AnyHome, find_session
from palimpsest.apps.cli.opening.logs import open_log, window_of
from palimpsest.core.errors import PalimpsestError, StoreError
from palimpsest.core.ports import CountedContext, Index, LogStat, SessionRow
from palimpsest.wire.models.cards import ModelCard

# Profiles that count what was reported as it is: that of the engine, which also counts imported sessions.
_PLAINLY_COUNTED: Final = frozenset({"", "palimpsest"})


def with_contexts(home: AnyHome, index: Index, rows: Sequence[SessionRow], cards: tuple[ModelCard, ...]) -> list[SessionRow]:
    """Return the rows with what `pal context` counts as `counted`; `None` if the log cannot be read.

    A log is opened only if the index cannot tell, and what is counted then is kept in the index.
    """
    has_forks = any(row.base is not None for row in rows)
    stats = {stat.session: stat for stat in home.store.stats()} if has_forks else {}
    bases = {row.id: row.base.session for row in index.list(refresh=False) if row.base is not None} if has_forks else {}
    card_digest = blake2b(msgspec.json.encode(cards), digest_size=16).hexdigest()
    found: list[SessionRow] = []
    new: list[SessionRow] = []
    for row in rows:
        rules = card_digest + _base_stats(row.id, bases, stats)
        if row.counted is not None and row.counted.rules == rules:
            found.append(row)
        elif row.context is not None and row.profile in _PLAINLY_COUNTED:
            found.append(replace(row, counted=CountedContext(row.context, window_of(row.model, cards), rules)))
        else:
            found.append(replace(row, counted=_counted(home, row.id, rules, cards)))
            new += found[-1:]
    if new:
        # A list is right without it, and the next one tries again.
        with suppress(StoreError):
            index.keep_counts(new)
    return found


def _base_stats(session: str, bases: Mapping[str, str], stats: Mapping[str, LogStat]) -> str:
    """Return size and time of the last change of each log that a fork continues, whose items are in its view too."""
    known: list[str] = []
    seen = {session}
    while (base := bases.get(session)) is not None and base not in seen:
        seen.add(base)
        known.append(f" {stats[base].size}@{stats[base].changed}" if base in stats else " -")
        session = base
    return "".join(known)


def _counted(home: AnyHome, session: str, rules: str, cards: tuple[ModelCard, ...]) -> CountedContext | None:
    from palimpsest.apps.cli.opening.counting import budget_of, view_tokens  # loads the engine, which most lists do not need
    from palimpsest.profiles.named import PROFILES

    try:
        location = find_session(home, session)
        with open_log(location) as log:
            tokens, window = view_tokens(log.view, log, location.blobs, cards), budget_of(log.view, cards).window
            # The code of a profile that is not ours may count otherwise next time.
            is_lasting = log.view.profile in {"", *PROFILES}
    except PalimpsestError:
        return None
    return CountedContext(tokens, window, rules if is_lasting else "")
