"""One session of an editor: turns and updates, permission questions, prompts, unsaved texts, MCP servers and options."""

import asyncio
import binascii
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from acp import RequestError
from acp.interfaces import Client
from acp.schema import (
    AcpMcpServer,
    AllowedOutcome,
    AudioContentBlock,
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    BlobResourceContents,
    ContentToolCallContent,
    Cost,
    CurrentModeUpdate,
    EmbeddedResourceContentBlock,
    HttpMcpServer,
    ImageContentBlock,
    McpServerStdio,
    PermissionOption,
    PromptResponse,
    ResourceContentBlock,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    SseMcpServer,
    StopReason,
    TextContentBlock,
    TextResourceContents,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UnstructuredCommandInput,
    UsageUpdate,
)
from acp.schema import (
    ConfigOptionUpdate as OptionUpdate,
)
from acp.schema import (
    Usage as TurnUsage,
)
from pydantic import ValidationError

from pal.acp.updates import SessionUpdates, ShownCall, Update, agent_text, fenced, file_text, replay, shown_call, text_block, valid
from palimpsest.agent.agent import Agent
from palimpsest.agent.decision import MODE_TEXTS, Approval
from palimpsest.agent.hooks import Hook, HookCall, HookResult
from palimpsest.agent.tool import one_line
from palimpsest.coding.providers import configured_provider
from palimpsest.core.budget import window_rows
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Event, InputWithdrawn, Interrupted, ModeChanged, ModelReplied, PermissionAsked, TurnEnded
from palimpsest.core.items import Document, Image, Part, Text, ToolCall, pending_calls
from palimpsest.core.log import Log
from palimpsest.core.redaction import Credential
from palimpsest.core.spending import total_of
from palimpsest.core.text import dollars, percent_of
from palimpsest.stores.config_files import Settings
from palimpsest.stores.project import McpServer
from palimpsest.wire.models import ModelCard

MODE: Final = "mode"
MODEL: Final = "model"
COMPACT: Final = "/compact"
SUMMARIZE: Final = "/summarize"
"""The name that OpenCode has for `/compact`."""
CONTEXT: Final = "/context"
_COMMANDS: Final = (
    (COMPACT, "Fold the conversation now to make room; nothing is lost. `/summarize` is the same.", "what the summary should keep"),
    (CONTEXT, "Show how full the window is, and what the session has cost.", ""),
)
_MOST_PROMPTS: Final = 100


def mode_state(current: str) -> SessionModeState:
    """Return the modes, for editors that know no options."""
    modes = [SessionMode(id=mode, name=mode.capitalize(), description=text) for mode, text in MODE_TEXTS.items()]
    return SessionModeState(current_mode_id=current, available_modes=modes)


def config_options(mode: str, model: str, models: Iterable[str]) -> list[SessionConfigOptionSelect | SessionConfigOptionBoolean]:
    """Return the options of a session with their current values."""
    modes = [SessionConfigSelectOption(value=each, name=each.capitalize(), description=text) for each, text in MODE_TEXTS.items()]
    names = [SessionConfigSelectOption(value=name, name=name) for name in dict.fromkeys((model, *models))]
    return [
        SessionConfigOptionSelect(type="select", id=MODE, name="Mode", category="mode", current_value=mode, options=modes),
        SessionConfigOptionSelect(type="select", id=MODEL, name="Model", category="model", current_value=model, options=names),
    ]


def usable_models(cards: Iterable[ModelCard], settings: Settings, *, all_of_them: bool = False) -> tuple[str, ...]:
    """Return the names of the models whose provider has what it needs, such as a key."""

    def is_usable(model: ModelCard) -> bool:
        try:
            configured_provider(model, settings)
        except BadInput:
            return False
        return True

    return tuple(model.name for model in cards if all_of_them or is_usable(model))


def available_commands(prompts: Iterable[tuple[str, str]]) -> AvailableCommandsUpdate:
    """Return our commands and the prompts of MCP servers, each by its command and description."""
    known = [*_COMMANDS, *((name, one_line(text, 300) or "Prompt of an MCP server.", "arguments") for name, text in prompts)]
    commands = [
        AvailableCommand(
            name=valid(name.removeprefix("/")),
            description=valid(text),
            input=AvailableCommandInput(root=UnstructuredCommandInput(hint=hint)) if hint else None,
        )
        for name, text, hint in known[:_MOST_PROMPTS]
    ]
    return AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)


def command_of(parts: tuple[Part, ...]) -> tuple[str, str] | None:
    """Return the command that the input begins with, and the text behind it; `None` if it is none of ours."""
    first = parts[0] if parts else None
    if not isinstance(first, Text):
        return None
    word, _, rest = first.text.strip().partition(" ")
    word = COMPACT if word == SUMMARIZE else word
    return (word, rest.strip()) if word in (COMPACT, CONTEXT) else None


_ONCE, _ALWAYS, _NO = "once", "always", "no"
# Events before the newest in which a question of this session stands; those of sub-agents stand in other logs.
_RECENT: Final = 200
_REJECTED: Final = "the user rejected it in the editor"
_DISMISSED: Final = "the user dismissed the question in the editor"


class EditorApproval:
    """Asks by `session/request_permission`. `shown` waits until the editor has seen a question's call; `send` sends an update."""

    def __init__(
        self,
        client: Client,
        log: Log,
        updates: SessionUpdates,
        shown: Callable[[PermissionAsked], Awaitable[None]],
        send: Callable[[Update], Awaitable[None]],
    ) -> None:
        self._client = client
        self._log = log
        self._updates = updates
        self._shown = shown
        self._send = send

    async def __call__(self, asked: PermissionAsked) -> Approval:
        """Return the answer of the user; a question that is dismissed or cannot be asked is answered with no."""
        if self._is_own(asked):
            await self._shown(asked)
            return await self._ask(asked, asked.call_id, self._updates.open.get(asked.call_id))
        return await self._ask_for_sub_agent(asked)

    def _is_own(self, asked: PermissionAsked) -> bool:
        """Whether the question stands in this log as it is; ids of sub-agents may be equal to ours."""
        newest = self._log.tip
        return any(event.body == asked for event in self._log.reader.run(max(1, newest - _RECENT), newest))

    async def _ask_for_sub_agent(self, asked: PermissionAsked) -> Approval:
        call_id = f"sub-agent {asked.call_id}"
        title = valid(one_line(asked.tool))
        await self._send(ToolCallStart(session_update="tool_call", tool_call_id=call_id, title=title, kind="other", status="pending"))
        answer = Approval("no", "user", _DISMISSED)
        try:
            answer = await self._ask(asked, call_id, ShownCall(title, "other", [], []))
        finally:
            status: Any = "failed" if answer.answer == "no" else "completed"
            await self._send(ToolCallProgress(session_update="tool_call_update", tool_call_id=call_id, status=status))
        return answer

    async def _ask(self, asked: PermissionAsked, call_id: str, shown: ShownCall | None) -> Approval:
        question = ContentToolCallContent(type="content", content=text_block(fenced(asked.question)))
        call = ToolCallUpdate(
            tool_call_id=call_id,
            title=valid(one_line(asked.tool)) if shown is None else shown.title,
            kind="other" if shown is None else shown.kind,
            status="pending",
            content=[question, *(() if shown is None else shown.diffs)],
            locations=None if shown is None else shown.locations or None,
            raw_input=None if shown is None else shown.raw,
        )
        try:
            response = await self._client.request_permission(session_id=self._log.session, tool_call=call, options=_options(asked))
        except (RequestError, ValidationError, ConnectionError) as error:
            return Approval("no", "editor", f"the editor could not ask the user ({one_line(str(error), 200)})")
        outcome = response.outcome
        if not isinstance(outcome, AllowedOutcome):
            return Approval("no", "user", _DISMISSED)
        if outcome.option_id == _ALWAYS and asked.rule:
            return Approval("always")
        return Approval("once") if outcome.option_id == _ONCE else Approval("no", "user", _REJECTED)


def _options(asked: PermissionAsked) -> list[PermissionOption]:
    """The answers: once, always with the rule that it creates where one is safe, and no."""
    once = PermissionOption(option_id=_ONCE, name="Allow once", kind="allow_once")
    always = PermissionOption(option_id=_ALWAYS, name=valid(f"Always allow {one_line(asked.rule, 120)}"), kind="allow_always")
    no = PermissionOption(option_id=_NO, name="Reject", kind="reject_once")
    return [once, always, no] if asked.rule else [once, no]


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
        prompts = self.agent.parts.prompts()
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
        typed = self.agent.say(*await self.agent.parts.expand(parts)).seq
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


PromptBlock: TypeAlias = TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
# Bytes of one text, and of one image or document.
_LARGEST_TEXT: Final = 4 * 1024 * 1024
_LARGEST_BLOB: Final = 16 * 1024 * 1024
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"


def prompt_parts(blocks: Sequence[PromptBlock], root: Path, keep: Callable[[bytes], str]) -> tuple[Part, ...]:
    """Return the input: one text with mentions `@path` in their places, then the attached texts and images.

    `keep` stores bytes as a blob. Raises `BadInput` for content that is too large, damaged, or that models do not read.
    """
    text, attached = "", list[Part]()
    for block in blocks:
        match block:
            case TextContentBlock():
                text += block.text
            case ResourceContentBlock():
                text += _mention(block.uri, root, block.name)
            case ImageContentBlock():
                attached.append(_image(block.mime_type, block.data, keep))
            case EmbeddedResourceContentBlock():
                text += _mention(block.resource.uri, root)
                attached.append(_resource(block.resource, root, keep))
            case AudioContentBlock():
                raise BadInput("audio is not supported; send text, images or files", where="prompt")
    if len(text) > _LARGEST_TEXT:
        raise BadInput(f"the text has more than {_LARGEST_TEXT // 1024 // 1024} MiB; attach a file instead", where="prompt")
    parts: tuple[Part, ...] = ((Text(valid(text)),) if text.strip() else ()) + tuple(attached)
    if not parts:
        raise BadInput("the prompt is empty; send a text or a file", where="prompt")
    return parts


def _shown_uri(uri: str, root: Path) -> str:
    """A URI as the model should read it: a file of the project by its path there, another file by its absolute path."""
    try:
        address = urlsplit(uri)
    except ValueError:
        return uri
    if address.scheme != "file" or address.netloc not in ("", "localhost"):
        return uri
    path = Path(unquote(address.path))
    lines = f"#{address.fragment}" if address.fragment else ""
    return f"{path.relative_to(root) if path.is_relative_to(root) else path}{lines}"


def _mention(uri: str, root: Path, name: str = "") -> str:
    shown = _shown_uri(uri, root)
    return f"[{name}]({uri})" if name and shown == uri else f"@{shown}"


def _resource(resource: TextResourceContents | BlobResourceContents, root: Path, keep: Callable[[bytes], str]) -> Part:
    shown = valid(_shown_uri(resource.uri, root))
    if isinstance(resource, TextResourceContents):
        if len(resource.text) > _LARGEST_TEXT:
            raise BadInput(f"the attached file has more than {_LARGEST_TEXT // 1024 // 1024} MiB; mention it instead", where=shown)
        return Text(f"Attached file {shown}:\n\n{valid(resource.text)}", attached=True)
    if resource.mime_type == _PDF:
        return Document(_PDF, keep(_decoded(resource.blob, shown)), name=Path(shown).name)
    return _image(resource.mime_type or "", resource.blob, keep, shown)


def _image(media: str, data: str, keep: Callable[[bytes], str], where: str = "prompt") -> Image:
    if media not in _IMAGES:
        raise BadInput(f"content of the type {media or 'unknown'} is not supported; PNG, JPEG, GIF and WebP images are", where=where)
    return Image(media, keep(_decoded(data, where)))


def _decoded(data: str, where: str) -> bytes:
    if len(data) > _LARGEST_BLOB * 4 // 3 + 4:
        raise BadInput(f"the content has more than {_LARGEST_BLOB // 1024 // 1024} MiB", where=where)
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput("the content is not valid base64", where=where) from error


# Seconds that the editor has to say what it holds; a call is not delayed for longer.
_SECONDS: Final = 5.0
_LARGEST: Final = 20_000_000
# Characters of an unsaved text that the model gets, and files of one call that are looked at.
_LONGEST: Final = 8_000
_MOST_FILES: Final = 20
_CHANGING: Final = ("write", "edit", "apply_patch")


class EditorBuffers:
    """What the editor holds of files, by its method `fs/read_text_file`, which returns unsaved text.

    Tools go on to read and change the files on disk, because snapshots, permissions and the check for changes since the last read are
    about those. An editor that does not answer, or knows no such file, holds nothing. `session` returns the id of the session that the
    editor knows; sub-agents have sessions of their own.
    """

    def __init__(self, client: Client, session: Callable[[], str]) -> None:
        self._client = client
        self._session = session

    def hooks(self) -> tuple[Hook, ...]:
        """The hooks of a session: before each tool that changes files, and after each that reads one."""
        before = tuple(Hook("before_tool", self._refuse_clash, "unsaved text", tool, _SECONDS) for tool in _CHANGING)
        return (*before, Hook("after_tool", self._show_unsaved, "unsaved text", "read", _SECONDS))

    async def _refuse_clash(self, call: HookCall) -> HookResult | None:
        for path in _files_of(call):
            if await self._unsaved(path) is not None:
                return HookResult(f"{path.name} has unsaved changes in the editor; ask the user to save or discard them, then try again")
        return None

    async def _show_unsaved(self, call: HookCall) -> HookResult | None:
        for path in _files_of(call):
            text = await self._unsaved(path)
            if text is not None:
                rest = f"\n[{len(text) - _LONGEST:,} characters left out]" if len(text) > _LONGEST else ""
                told = f"The user has unsaved changes in {path.name}. The file on disk, as shown, lacks them. The unsaved text:"
                return HookResult(context=f"{told}\n{text[:_LONGEST]}{rest}")
        return None

    async def _unsaved(self, path: Path) -> str | None:
        """Return the text of a file in the editor if it differs from that on disk."""
        try:
            held = (await self._client.read_text_file(session_id=self._session(), path=str(path))).content
        except (RequestError, ValidationError, ConnectionError):
            return None
        return held if _with_plain_line_ends(held) != _with_plain_line_ends(_on_disk(path)) else None


def _files_of(call: HookCall) -> Iterator[Path]:
    """The files inside of the project that a call names."""
    root = Path(call.cwd)
    shown = shown_call(ToolCall(call.call_id, call.tool, call.arguments), root)
    for place in shown.locations[:_MOST_FILES]:
        path = Path(place.path)
        if path.is_relative_to(root) and ".." not in path.parts:
            yield path


def _on_disk(path: Path) -> str:
    """The text of a file; empty if there is none, or it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""


def _with_plain_line_ends(text: str) -> str:
    """A text with the line ends that all editors agree on."""
    return text.replace("\r\n", "\n")


ClientServer: TypeAlias = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
_MOST = 50


def client_servers(servers: Sequence[ClientServer] | None, root: Path) -> tuple[McpServer, ...]:
    """Return the servers of a request in their order; the editor names them for its user, so they need no further trust.

    Raises `BadInput` for one that is reached through the editor itself, which is not announced, and for more than 50.
    """
    given = servers or ()
    if len(given) > _MOST:
        raise BadInput(f"the editor names {len(given)} MCP servers; at most {_MOST} are started", where="mcpServers")
    return tuple(_server(server, root) for server in given)


def _server(server: ClientServer, root: Path) -> McpServer:
    match server:
        case McpServerStdio():
            arguments = tuple(Credential(word) for word in server.args)
            env = {variable.name: Credential(variable.value) for variable in server.env}
            return McpServer(name=server.name, origin=root, definition=b"", command=server.command, args=arguments, env=env)
        case HttpMcpServer() | SseMcpServer():
            headers = {header.name: Credential(header.value) for header in server.headers}
            url = Credential(server.url)
            return McpServer(name=server.name, origin=root, definition=b"", transport=server.type, url=url, headers=headers)
        case AcpMcpServer():
            raise BadInput("MCP servers inside the editor are not supported; use one over stdio or HTTP", where=server.name)
