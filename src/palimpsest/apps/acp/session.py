"""One session of an editor: its agent, its turns one at a time, and the updates that the editor gets."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Final

from acp import RequestError
from acp.interfaces import Client
from acp.schema import ConfigOptionUpdate as OptionUpdate
from acp.schema import (
    Cost,
    CurrentModeUpdate,
    PromptResponse,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    StopReason,
    UsageUpdate,
)
from acp.schema import Usage as TurnUsage

from palimpsest.apps.acp.calls import file_text
from palimpsest.apps.acp.options import COMPACT, available_commands, command_of, config_options
from palimpsest.apps.acp.permissions import EditorApproval
from palimpsest.apps.acp.replay import replay
from palimpsest.apps.acp.updates import SessionUpdates, Update, agent_text
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Event, InputWithdrawn, Interrupted, ModeChanged, ModelReplied, PermissionAsked, TurnEnded
from palimpsest.core.format.texts import dollars, percent_of
from palimpsest.core.items import Part, ToolCall
from palimpsest.core.pairs import pending_calls
from palimpsest.core.tokens.budget import window_rows
from palimpsest.core.tokens.spending import total_of
from palimpsest.engine.agent import Agent

CANCELLED: Final = "cancelled"
# Seconds that the answers to open prompts have when a session is closed.
_LAST_SECONDS: Final = 2.0
_STOPS: Final[Mapping[str, StopReason]] = {
    "done": "end_turn",
    "max_tokens": "max_tokens",
    "context_window": "max_tokens",
    "max_calls": "max_turn_requests",
    "max_tools": "max_turn_requests",
    "max_seconds": "max_turn_requests",
    "max_usd": "max_turn_requests",
    "loop": "max_turn_requests",
    "max_total_tokens": "max_turn_requests",
    "price_unknown": "max_turn_requests",
    "refusal": "refusal",
    "blocked": "refusal",
    "interrupted": CANCELLED,
}


class EditorSession:
    """A session that an editor has open. `models` are the names of the models that it can switch to."""

    def __init__(self, agent: Agent, client: Client, models: tuple[str, ...] = ()) -> None:
        self.agent = agent
        self.models = models
        self._client = client
        self._log = agent.session.log
        root, blobs = agent.toolbox.workspace.root, agent.session.environment.blobs
        self._updates = SessionUpdates(root, blobs.get, lambda name: file_text(agent.toolbox.workspace, name))
        self.approve = EditorApproval(client, self._log, self._updates, self._until_shown, self.send)
        self._turn = asyncio.Lock()
        self._command: asyncio.Task[None] | None = None
        self._cancels = 0
        self._stop: StopReason = "end_turn"
        self._model = ""
        self._shown: dict[str, asyncio.Event] = {}
        self._commands: tuple[tuple[str, str], ...] | None = None

    async def send(self, update: Update) -> None:
        """Send one update. Raises `ConnectionError` if the editor is gone."""
        await self._client.session_update(session_id=self._log.session, update=update)

    async def announce(self) -> None:
        """Send the commands and how full the window is, to an editor that has just opened the session."""
        await self._tell_commands()
        await self.send(self._usage())

    async def _tell_commands(self) -> None:
        prompts = self.agent.prompts()
        if prompts != self._commands:
            self._commands = prompts
            await self.send(available_commands(prompts))

    async def replay(self) -> None:
        """Send the conversation so far. Calls that wait for the turn to go on stay open."""
        is_idle = not self._turn.locked()
        past = self._updates if is_idle else SessionUpdates(self.agent.toolbox.workspace.root, self.agent.session.environment.blobs.get)
        for update in await asyncio.to_thread(replay, self._log, past):
            await self.send(update)

    async def show_pending(self) -> None:
        """Send the calls that wait for the turn to go on, to an editor that knows the rest of the conversation."""
        for item in pending_calls(self._log.view.items):
            if isinstance(item.content, ToolCall):
                await self.send(self._updates.called(item.content))

    async def prompt(self, parts: tuple[Part, ...]) -> PromptResponse:
        """Run a turn on the input, or let it join the turn that runs. Raises `RequestError` if the turn fails."""
        cancels, command = self._cancels, command_of(parts)
        if command is not None:
            async with self._turn:
                return await self._run_command(*command) if self._cancels == cancels else PromptResponse(stop_reason=CANCELLED)
        typed = self.agent.say(*await self.agent.expand(parts)).seq
        async with self._turn:
            # A turn that ran meanwhile has taken the input.
            if typed not in self._log.inbox and self._cancels == cancels:
                return PromptResponse(stop_reason=self._stop)
            try:
                if self._cancels == cancels:
                    await self._run(cancels)
            finally:
                if self._cancels != cancels and typed in self._log.inbox:
                    # Else what the user took back would be said with the next prompt.
                    self._log.append(InputWithdrawn(typed, "user", "the prompt was cancelled in the editor"))
            return self._response(cancels, typed)

    async def cancel(self) -> None:
        """End the turn, or the command, and every prompt that waits."""
        self._cancels += 1
        if self._command is not None:
            self._command.cancel()
        await self.agent.interrupt()

    def change_mode(self, mode: str) -> None:
        """Change the mode at once. Raises `BadInput` if there is no such mode."""
        if self.agent.mode is None:
            raise BadInput("this agent has no modes", where=self._log.session)
        self.agent.mode.change(mode)

    async def choose_model(self, name: str) -> None:
        """Switch to another model now, or before the next turn if one runs. Raises `BadInput` if it is not offered."""
        if name not in self.models and name != self.agent.session.card.name:
            raise BadInput(f"there is no model {name!r} here; {', '.join(self.models) or 'none'} can be chosen", where="model")
        self._model = name
        if not self._turn.locked():
            async with self._turn:
                await self._switch()

    @property
    def mode(self) -> str:
        """The mode of now."""
        return "ask" if self.agent.mode is None else self.agent.mode.current

    def options(self) -> list[SessionConfigOptionSelect | SessionConfigOptionBoolean]:
        """The options with their values; a model that was chosen during a turn counts already."""
        return config_options(self.mode, self._model or self.agent.session.card.name, self.models)

    async def tell_options(self) -> None:
        """Send mode and options after one of them has changed."""
        await self.send(CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self.mode))
        await self.send(OptionUpdate(session_update="config_option_update", config_options=self.options()))

    async def close(self, *, at_once: bool) -> None:
        """End the turn and everything that belongs to the session. With `at_once` jobs are not waited for."""
        await self.cancel()
        # Prompts are answered before the log is closed, but an editor that reads no more must not keep the agent.
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS), self._turn:
                pass
        if at_once:
            await self.agent.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)
        else:
            await self.agent.__aexit__(None, None, None)

    async def _run(self, cancels: int) -> None:
        """Run one turn and send what happens."""
        await self._switch()
        self._stop = "end_turn"
        try:
            async with aclosing(self.agent.run()) as pieces:
                async for piece in pieces:
                    for update in self._updates.live(piece):
                        await self.send(update)
                    if isinstance(piece, Event):
                        await self._follow(piece)
                    if self._cancels != cancels:
                        await self.agent.interrupt()
        except PalimpsestError as error:
            if self._cancels == cancels:
                raise RequestError(-32603, str(error), {"kind": error.kind}) from error
        finally:
            self._shown.clear()
        await self._tell_commands()

    async def _follow(self, event: Event) -> None:
        match event.body:
            case PermissionAsked(call_id=call_id):
                self._shown.setdefault(call_id, asyncio.Event()).set()
            case ModelReplied(purpose="turn"):
                await self.send(self._usage())
            case ModeChanged():
                await self.tell_options()
            case TurnEnded(stop=stop):
                self._stop = _STOPS.get(stop, "end_turn")
            case _:
                return

    async def _until_shown(self, asked: PermissionAsked) -> None:
        """Wait until everything before the question was sent, so that the editor knows the call that it is about."""
        await self._shown.setdefault(asked.call_id, asyncio.Event()).wait()

    def _response(self, cancels: int, first: int) -> PromptResponse:
        ended = [event.body for event in self._log.reader.run(first, self._log.tip) if isinstance(event.body, ModelReplied | Interrupted)]
        beside = [each.usage for body in ended if isinstance(body, ModelReplied) for each in body.beside]
        used = total_of((*(body.usage for body in ended), *beside))
        usage = TurnUsage(
            total_tokens=used.prompt + used.output,
            input_tokens=used.input,
            output_tokens=used.output,
            thought_tokens=used.reasoning,
            cached_read_tokens=used.cache_read,
            cached_write_tokens=used.cache_write + used.cache_write_long,
        )
        return PromptResponse(stop_reason=self._stop if self._cancels == cancels else CANCELLED, usage=usage)

    async def _run_command(self, word: str, rest: str) -> PromptResponse:
        work = self._compact(rest) if word == COMPACT else self._context()
        self._command = asyncio.ensure_future(work)
        try:
            await self._command
        except asyncio.CancelledError:
            if not self._command.cancelled():
                raise
            return PromptResponse(stop_reason=CANCELLED)
        except PalimpsestError as error:
            raise RequestError(-32603, str(error), {"kind": error.kind}) from error
        finally:
            self._command = None
        return PromptResponse(stop_reason="end_turn")

    async def _compact(self, focus: str) -> None:
        earlier = self.agent.unseen()
        first, before = self._log.tip + 1, self.agent.session.used
        await self.agent.compact(focus)
        for event in (*earlier, *self._log.reader.run(first, self._log.tip)):
            for update in self._updates.live(event):
                await self.send(update)
        # The next turn does not bring them again.
        self.agent.unseen()
        await self.send(agent_text(f"The context had {before:,} tokens and has {self.agent.session.used:,} now."))
        await self.send(self._usage())

    async def _context(self) -> None:
        session, usage = self.agent.session, self._usage()
        share = percent_of(usage.used, usage.size)
        spent = dollars(None if usage.cost is None else usage.cost.amount)
        rows = (
            ("window", f"{usage.used:,} of {usage.size:,} tokens ({share} %)"),
            ("model", session.card.name),
            ("profile", session.profile.name),
            ("mode", self.mode),
            ("cost", spent),
            ("session", f"{self._log.session} (`pal context {self._log.session}` shows every item)"),
        )
        filled = window_rows(self._log.view, session.counter, session.tools_tokens, session.profile.rows)
        filled |= {"Free space": max(0, usage.size - usage.used - session.budget.buffer), "Autocompact buffer": session.budget.buffer}
        shares = [(name, f"{tokens:,} tokens ({percent_of(tokens, usage.size)} %)") for name, tokens in filled.items()]
        await self.send(agent_text("\n".join(f"- {name}: {value}" for name, value in (*rows, *shares))))

    async def _switch(self) -> None:
        if self._model and self._model != self.agent.session.card.name:
            await self.agent.switch(self._model)
        self._model = ""

    def _usage(self) -> UsageUpdate:
        session = self.agent.session
        spent = self.agent.cost_usd()
        cost = None if spent is None else Cost(amount=round(spent, 6), currency="USD")
        return UsageUpdate(session_update="usage_update", used=session.used, size=session.card.window, cost=cost)
