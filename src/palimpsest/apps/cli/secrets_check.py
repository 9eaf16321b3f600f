"""What `pal doctor` knows about secrets in imported sessions."""

from collections import Counter

from palimpsest.apps.cli.checks import Check
from palimpsest.apps.cli.home import AnyHome
from palimpsest.foreign.cursors import Cursors

_NAMED = 3


def check_secrets(home: AnyHome) -> Check:
    """Keys, tokens and passwords that imports brought along, by class and by session."""
    there = set(home.store.sessions())
    kinds: Counter[str] = Counter()
    sessions: Counter[str] = Counter()
    for seen in Cursors.load(home.imports).all():
        if seen.log in there and seen.secrets:
            kinds.update(seen.secrets)
            sessions[seen.log] += sum(seen.secrets.values())
    if not sessions:
        return Check("secrets", "ok", "none known in imported sessions")
    named = ", ".join(f"{session} ({count})" for session, count in sessions.most_common(_NAMED))
    more = f" and {len(sessions) - _NAMED:,} more" if len(sessions) > _NAMED else ""
    classes = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    message = f"{kinds.total():,} in {len(sessions):,} imported sessions: {classes}; most in {named}{more}"
    return Check("secrets", "warn", message, "renew them; `pal delete ID` and `pal import PATH --redact` take a session in without them")
