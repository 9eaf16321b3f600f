"""Everything that follows from a log, as one value that two logs can be compared by."""

from msgspec.json import decode

from palimpsest.agent.session import AuditProjections, Session
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.stores.in_memory import MemoryFile
from palimpsest.wire.models import recorded_card


def derived_state(log: Log) -> tuple[View, dict[str, object]]:
    """The view, and the snapshots of all other projections by their names."""
    log.catch_up()
    # Decoded, because a whole number that was restored as a float is the same number.
    return log.view, {name: decode(each.snapshot()) for name, each in log._projections.by_name.items() if name != "view"}


def projections_of(session: Session) -> AuditProjections:
    """New projections of audit with the settings of a session, to be registered with another log."""
    return AuditProjections(session.card, recorded_card, session.profile.size_rule, session.profile.parts)


def reopened(session: Session, *, rebuilt: bool = False) -> Log:
    """A session's log read once more: from its checkpoint on, or `rebuilt` from the first line."""
    store, clock = session.environment.store, session.environment.clock
    if rebuilt:
        lines = store.open(session.log.session)
        assert isinstance(lines, MemoryFile)
        lines._file.checkpoint = None
    return Log.open(store, session.log.session, clock, derived=projections_of(session))
