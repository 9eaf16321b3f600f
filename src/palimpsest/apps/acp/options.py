"""What the user of an editor can choose in a session: mode, model, and the commands that start with a slash."""

from collections.abc import Iterable
from typing import Final

from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    UnstructuredCommandInput,
)

from palimpsest.apps.acp.texts import valid
from palimpsest.core.errors import BadInput
from palimpsest.core.items import Part, Text
from palimpsest.engine.coding.providers import configured_provider
from palimpsest.stores.config.settings import Settings
from palimpsest.tools.permissions.decision import MODE_TEXTS
from palimpsest.tools.tool import one_line
from palimpsest.wire.models.cards import ModelCard

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
