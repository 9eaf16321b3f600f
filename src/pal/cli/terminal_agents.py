"""The agents, logs and session list of a terminal."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pal.cli.agents import chosen_session
from pal.cli.output import short_time
from pal.cli.settings import config_path, working_folder
from pal.terminal.choosing import Row, RowSource
from pal.terminal.conversation import earlier_pieces, last_words
from pal.terminal.surroundings import Approve, FollowedLog, OpenedAgent, RenewedSettings, SessionList
from palimpsest.core.log import Log
from palimpsest.core.text import counted
from palimpsest.stores.config_files import Settings, resolve
from palimpsest.stores.home import Home

if TYPE_CHECKING:
    from palimpsest.agent.agent import Agent
    from palimpsest.core.ports import SessionRow
    from palimpsest.wire.models import ModelCard


_LOCAL: Final = "local"
# A script of replies stands in for every model.
_SCRIPT: Final = "PAL_SCRIPT"
_MOST_HITS: Final = 50


class TerminalAgents:
    """Makes the agents of one terminal, all with the same settings. `options` are those of the command line by key."""

    def __init__(
        self,
        home: Home,
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

    def open(self, resume: str, fork: str, approve: Approve) -> OpenedAgent:
        """Return the agent of a session, of a fork of one, or of a new one if both are empty, with its latest conversation.

        Raises `Locked` if another process has the session.
        """
        from pal.cli.logs import cards_of  # loaded while the user may type already
        from palimpsest.agent.jobs import standard_jobs
        from palimpsest.coding.build import coding_agent, coding_settings, mode_notice, recorded_choice

        home, settings = self._home, self._settings
        notices: list[str] = []
        with chosen_session(home, resume=resume, fork=fork) as chosen:
            recorded = recorded_choice(home, chosen)
            coding = coding_settings(settings, recorded, allow=self._allow, deny=self._deny, folders=self._folders)
            jobs = standard_jobs(settings.config.jobs, home)
            agent = coding_agent(
                home,
                settings,
                coding,
                cards=cards_of(home),
                notify=notices.append,
                session=chosen,
                recorded=recorded,
                jobs=jobs,
                approve=approve,
            )
            notices += (*agent.parts.notices, *mode_notice(settings, coding))
        # A long log without a checkpoint was read as a whole; with this one the next start reads its end only.
        agent.session.log.sync()
        missing = self._missing(agent.session.card)
        if not (resume or fork):
            return OpenedAgent(agent, tuple(notices), (), missing)
        return OpenedAgent(agent, (*notices, *_differences(agent.session.log)), earlier_pieces(agent.session.log), missing)

    def renew(self, agent: "Agent") -> RenewedSettings:
        """Read the settings again, and let an agent use their providers and model cards from its next call on.

        Raises `BadInput` if a file has a problem; the settings are then as before.
        """
        from palimpsest.coding.providers import RunProviders  # few sessions change their settings

        settings = resolve(config_path(self._home), working_folder(), os.environ, self._options)
        settings.require_valid()
        self._settings = settings
        providers = RunProviders(settings, lambda _: None, keeps_open=True)
        agent.session.environment = replace(agent.session.environment, provider=providers, cards=self._home.cards())
        agent.resources.push_async_callback(providers.aclose)
        return RenewedSettings(self._missing(agent.session.card), settings.config.terminal)

    def follow(self, session: str) -> FollowedLog:
        """Open a session for reading, with its latest conversation. Raises `PalimpsestError` if it cannot be read."""
        log = Log.open(self._home.store, session, self._home.clock)
        return FollowedLog(log, lambda: self._home.store.has_writer(session), earlier_pieces(log))

    def sessions(self) -> SessionList:
        """Return the list of sessions, own and imported ones, newest first; a typed text is searched for in what they say."""
        with self._home.index() as index:
            found = {row.id: row for row in index.list() if row.opener is None and row.turns}
        return SessionList(
            [_session_row(row) for row in found.values()], RowSource(self._preview, lambda typed: self._search(typed, found))
        )

    def _search(self, typed: str, known: "dict[str, SessionRow]") -> Sequence[Row]:
        with self._home.index() as index:
            hits = index.search(typed, limit=_MOST_HITS)
        return [_session_row(known[session]) for session in dict.fromkeys(hit.session for hit in hits) if session in known]

    def _preview(self, row: Row) -> str:
        """Return what was said last in a session, below the line about it."""
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


def _session_row(row: "SessionRow") -> Row:
    origin = f"{row.origin}  " if row.origin else ""
    about = f"{origin}{row.cwd}  {row.model}  {counted(row.turns, 'turn')}  {row.id}"
    return Row(row.id, f"{short_time(row.updated)}  {row.title or row.id}", about)
