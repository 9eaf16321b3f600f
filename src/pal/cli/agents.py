"""Options that every command which runs the agent has, and the agents, logs and session list of a terminal."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import click

from pal.cli.opening import NEWEST, find_session, list_sessions, newest_row, not_empty
from pal.cli.settings import config_path, working_folder
from palimpsest.agent.decision import Mode
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.log import Log
from palimpsest.core.text import counted, whole_number
from palimpsest.stores.config_files import Settings, resolve
from palimpsest.stores.home import AnyHome, new_id, remove
from palimpsest.wire.models import DEFAULT_MODEL

if TYPE_CHECKING:
    from pal.terminal.choosing import Row
    from pal.terminal.surroundings import Approve, FollowedLog, OpenedAgent, RenewedSettings, SessionList
    from palimpsest.agent.agent import Agent
    from palimpsest.core.ports import SessionRow
    from palimpsest.wire.models import ModelCard


Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

MODES: Final = """\b
Modes, for calls that no rule decides:
  plan   nothing is changed, whatever rules allow
  ask    reads run, changes are asked about
  edits  also changes of files in the project run
  auto   also commands that a sandbox confines run"""
"""What the modes allow, for the end of a help."""

_SESSION: Final[tuple[Decorator, ...]] = (
    click.option("--continue", "-c", "continues", is_flag=True, help="Go on with the newest session of this folder."),
    click.option("--resume", "-r", default="", callback=not_empty, metavar="ID", help="Go on with this session, or with `last`."),
    click.option(
        "--fork", default="", callback=not_empty, metavar="ID[@EVENT]", help="Start a new session from this one, or from one of its events."
    ),
    click.option(
        "--model", default="", metavar="NAME", help=f"Model; default: that of PAL_MODEL, the session, the config, or {DEFAULT_MODEL}."
    ),
    click.option(
        "--profile",
        "profile_name",
        default="",
        metavar="NAME|MODULE:FUNCTION",
        help="Profile; default: that of PAL_PROFILE, the session, the config, or palimpsest.",
    ),
)
_PERMISSION: Final[tuple[Decorator, ...]] = (
    click.option(
        "--mode", type=click.Choice(get_args(Mode)), default=None, help="What may run, see below; default: the setting, else ask."
    ),
    click.option("--allow", multiple=True, metavar="RULE", help="Allow calls in this run: 'bash(pytest:*)', 'edit(src/**)'; repeatable."),
    click.option(
        "--deny", multiple=True, metavar="RULE", help="Deny calls in this run; the more specific rule wins, then deny; repeatable."
    ),
    click.option(
        "--add-dir",
        "folders",
        multiple=True,
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="One more folder to work in; repeatable.",
    ),
)


def session_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of the session: `continues`, `resume`, `fork`, `model` and `profile_name`."""
    return _with(command, _SESSION)


def permission_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of what the agent may do: `mode`, `allow`, `deny` and `folders`."""
    return _with(command, _PERMISSION)


def _with(command: Callable[..., Any], options: tuple[Decorator, ...]) -> Callable[..., Any]:
    # Decorators apply from the last to the first, so that the help lists them in order.
    return reduce(lambda decorated, option: option(decorated), reversed(options), command)


@contextmanager
def chosen_session(home: AnyHome, *, continues: bool = False, resume: str = "", fork: str = "") -> Iterator[str]:
    """The id of the session to go on with; empty for a new one. A fork is made here, and removed if it cannot be used."""
    if sum((continues, bool(resume), bool(fork))) > 1:
        raise BadInput("--continue, --resume and --fork exclude each other", where="pal")
    if not fork:
        yield newest_here(home) if continues else find_session(home, resume).session if resume else ""
        return
    made = _forked(home, fork)
    try:
        yield made
    except BaseException:
        with suppress(PalimpsestError, OSError):
            remove(home.store, made)
        raise


@contextmanager
def closed_on_error(agent: "Agent") -> Iterator[None]:
    """Close an agent that cannot be equipped, so that its session is not locked, and not kept if it is new."""
    try:
        yield
    except BaseException:
        agent.close()
        raise


def newest_here(home: AnyHome) -> str:
    """The newest session of the working directory. Raises `BadInput` if there is none."""
    here = Path.cwd()
    row = newest_row(home, list_sessions(home), here)
    if row is None:
        raise BadInput(f"there is no session of this folder; `pal sessions` lists all, --resume {NEWEST} takes the newest", where=str(here))
    return row.id


def _forked(home: AnyHome, fork: str) -> str:
    word, _, event = fork.partition("@")
    number = whole_number(event)
    if event and number is None:
        raise BadInput(f"the event of --fork must be a number, not {event!r}", where="--fork")
    found = find_session(home, word)
    with Log.open(found.store, found.session, found.clock) as log:
        forked = log.fork(home.store, new_id(home), number)
    with forked:
        return forked.session


_LOCAL: Final = "local"
# A script of replies stands in for every model.
_SCRIPT: Final = "PAL_SCRIPT"
_MOST_HITS: Final = 50


class TerminalAgents:
    """Makes the agents of one terminal, all with the same settings. `options` are those of the command line by key."""

    def __init__(
        self,
        home: AnyHome,
        settings: Settings,
        options: Mapping[str, object],
        *,
        allow: tuple[str, ...],
        deny: tuple[str, ...],
        folders: tuple[Path, ...],
    ) -> None:
        self._home = home
        self._settings = settings
        self._options = options
        self._allow = allow
        self._deny = deny
        self._folders = folders

    def open(self, resume: str, fork: str, approve: "Approve") -> "OpenedAgent":
        """Return the agent of a session, of a fork of one, or of a new one if both are empty, with its latest conversation.

        Raises `Locked` if another process has the session.
        """
        from pal.cli.logs import cards_of  # loaded while the user may type already
        from pal.terminal.conversation import earlier_pieces
        from pal.terminal.surroundings import OpenedAgent
        from palimpsest.agent.jobs import standard_jobs
        from palimpsest.coding.build import coding_settings, configured_agent, equip, mode_notice, recorded_choice, session_hooks

        home, settings = self._home, self._settings
        notices: list[str] = []
        with chosen_session(home, resume=resume, fork=fork) as chosen:
            recorded = recorded_choice(home, chosen)
            jobs = standard_jobs(settings.config.jobs, home)
            agent = configured_agent(home, settings, cards_of(home), session=chosen, recorded=recorded, jobs=jobs, notify=notices.append)
            with closed_on_error(agent):
                coding = coding_settings(settings, recorded, allow=self._allow, deny=self._deny, folders=self._folders)
                hooks = session_hooks(home, settings, Path.cwd(), coding.withheld)
                notices += equip(agent, home, replace(coding, hooks=hooks.hooks), approve)
                notices += (*hooks.notices, *mode_notice(settings, coding))
        # A long log without a checkpoint was read as a whole; with this one the next start reads its end only.
        agent.session.log.sync()
        missing = self._missing(agent.session.card)
        if not (resume or fork):
            return OpenedAgent(agent, tuple(notices), (), missing)
        return OpenedAgent(agent, (*notices, *_differences(agent.session.log)), earlier_pieces(agent.session.log), missing)

    def renew(self, agent: "Agent") -> "RenewedSettings":
        """Read the settings again, and let an agent use their providers and model cards from its next call on.

        Raises `BadInput` if a file has a problem; the settings are then as before.
        """
        from pal.terminal.surroundings import RenewedSettings  # few sessions change their settings
        from palimpsest.coding.providers import RunProviders

        settings = resolve(config_path(self._home), working_folder(), os.environ, self._options)
        settings.require_valid()
        self._settings = settings
        providers = RunProviders(settings, lambda _: None, keeps_open=True)
        agent.session.environment = replace(agent.session.environment, provider=providers, cards=self._home.cards())
        agent.resources.push_async_callback(providers.aclose)
        return RenewedSettings(self._missing(agent.session.card), settings.config.terminal)

    def follow(self, session: str) -> "FollowedLog":
        """Open a session for reading, with its latest conversation. Raises `PalimpsestError` if it cannot be read."""
        from pal.terminal.conversation import earlier_pieces
        from pal.terminal.surroundings import FollowedLog

        log = Log.open(self._home.store, session, self._home.clock)
        return FollowedLog(log, lambda: self._home.store.has_writer(session), earlier_pieces(log))

    def sessions(self) -> "SessionList":
        """Return the list of sessions, own and imported ones, newest first; a typed text is searched for in what they say."""
        from pal.terminal.choosing import RowSource  # only the list needs it
        from pal.terminal.surroundings import SessionList

        with self._home.index() as index:
            found = {row.id: row for row in index.list() if row.opener is None and row.turns}
        return SessionList([_row(row) for row in found.values()], RowSource(self._preview, lambda typed: self._search(typed, found)))

    def _search(self, typed: str, known: "dict[str, SessionRow]") -> "Sequence[Row]":
        with self._home.index() as index:
            hits = index.search(typed, limit=_MOST_HITS)
        return [_row(known[session]) for session in dict.fromkeys(hit.session for hit in hits) if session in known]

    def _preview(self, row: "Row") -> str:
        """Return what was said last in a session, below the line about it."""
        from pal.terminal.conversation import last_words

        with Log.open(self._home.store, row.value, self._home.clock) as log:
            return "\n".join((row.preview, *last_words(log)))

    def _missing(self, model: "ModelCard") -> str:
        """Return why a model cannot be asked; empty if it can. Most often a variable has the key, and nothing has to be loaded."""
        named = (f"{model.provider.upper()}_API_KEY", _SCRIPT)
        if model.provider == _LOCAL or any(os.environ.get(name, "").strip() for name in named):
            return ""
        from pal.cli.engine_session import provider_or_reason  # most often not needed, as above

        found = provider_or_reason(model, self._settings)
        return found if isinstance(found, str) else ""


def _differences(log: Log) -> tuple[str, ...]:
    """What is different in a session that another program began, or this one in another folder."""
    opened, here = log.opened, str(Path.cwd())
    place = f"it worked in {opened.cwd} and goes on in {here}" if opened.cwd and opened.cwd != here else ""
    if opened.origin == "palimpsest":
        return (f"this session began elsewhere: {place}",) if place else ()
    tools = f"imported from {opened.origin}: from here on it has the tools and permissions of pal, and the original is not changed"
    return ("; ".join(filter(None, (tools, place))), "files that it changed there cannot be taken back with /rewind")


def _row(row: "SessionRow") -> "Row":
    from pal.cli.output import short_time
    from pal.terminal.choosing import Row

    origin = f"{row.origin}  " if row.origin else ""
    about = f"{origin}{row.cwd}  {row.model}  {counted(row.turns, 'turn')}  {row.id}"
    return Row(row.id, f"{short_time(row.updated)}  {row.title or row.id}", about)
