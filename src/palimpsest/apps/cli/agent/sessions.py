"""The session that an agent goes on with: the newest of this folder, one by its name, a fork, or a new one."""

from pathlib import Path

from palimpsest.apps.cli.opening.home import NEWEST, AnyHome, find_session
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.log.log import Log
from palimpsest.stores.home import new_id


def session_of(home: AnyHome, *, continues: bool, resume: str, fork: str) -> str:
    """Return the id of the session to go on with; empty for a new one. A fork is made here."""
    if sum((continues, bool(resume), bool(fork))) > 1:
        raise BadInput("--continue, --resume and --fork exclude each other", where="pal")
    if fork:
        word, _, event = fork.partition("@")
        if event and not event.isdecimal():
            raise BadInput(f"the event of --fork must be a number, not {event!r}", where="--fork")
        found = find_session(home, word)
        with Log.open(found.store, found.session, found.clock) as log:
            forked = log.fork(home.store, new_id(home), int(event) if event else None)
        with forked:
            return forked.session
    if continues:
        return _newest_here(home)
    return find_session(home, resume).session if resume else ""


def _newest_here(home: AnyHome) -> str:
    """Return the newest session whose folder is the working directory; none of a sub-agent. Raises `BadInput` if there is none."""
    here = str(Path.cwd())
    for stat_ in sorted(home.store.stats(), key=lambda each: -each.changed):
        try:
            with Log.open(home.store, stat_.session, home.clock) as log:
                if log.opened.cwd == here and log.opened.opener is None:
                    return stat_.session
        except PalimpsestError:
            continue
    raise BadInput(f"there is no session of this folder; `pal sessions` lists all, --resume {NEWEST} takes the newest", where=here)
