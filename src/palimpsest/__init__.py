"""Context you can audit, undo and price."""

from importlib import import_module

# Type checkers know this name; the module `typing` would cost more to import than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from palimpsest.core.edits import Fold, Insert, Keep, Mask, Put, Unmask
    from palimpsest.core.errors import PalimpsestError
    from palimpsest.core.events import (
        ContextStated,
        Event,
        ModelReplied,
        SessionOpened,
        Statement,
        ToolReturned,
        ToolStarted,
        UserSaid,
        ViewEdited,
    )
    from palimpsest.core.events.deltas import TextDelta
    from palimpsest.core.items import Item, Text, ToolCall, ToolResult
    from palimpsest.core.log.log import Log
    from palimpsest.core.log.recovery import recover
    from palimpsest.core.log.undo import restore, rewind, undo
    from palimpsest.core.view import View
    from palimpsest.engine.agent import Agent, Answer
    from palimpsest.engine.calls.call import call
    from palimpsest.engine.conversation.conversation import Conversation, compact
    from palimpsest.engine.conversation.records import Compacted, EditRecord
    from palimpsest.engine.environment import Environment
    from palimpsest.engine.hooks.hook import Hook, HookCall, HookResult
    from palimpsest.engine.loop.limits import Limits
    from palimpsest.engine.named_profiles import profile
    from palimpsest.engine.session import Session
    from palimpsest.profiles.profile import Profile
    from palimpsest.providers.scripted import Scripted
    from palimpsest.stores.home import Home
    from palimpsest.tools.functions import tool_from
    from palimpsest.tools.tool import AgentTool, ToolOutput
    from palimpsest.wire.encode import Encoder, encode
    from palimpsest.wire.models.cards import card
    from palimpsest.wire.models.prices import cost
    from palimpsest.wire.request import Params, Tool

__all__ = [
    "Agent",
    "AgentTool",
    "Answer",
    "Compacted",
    "ContextStated",
    "Conversation",
    "EditRecord",
    "Encoder",
    "Environment",
    "Event",
    "Fold",
    "Home",
    "Hook",
    "HookCall",
    "HookResult",
    "Insert",
    "Item",
    "Keep",
    "Limits",
    "Log",
    "Mask",
    "ModelReplied",
    "PalimpsestError",
    "Params",
    "Profile",
    "Put",
    "Scripted",
    "Session",
    "SessionOpened",
    "Statement",
    "Text",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolOutput",
    "ToolResult",
    "ToolReturned",
    "ToolStarted",
    "Unmask",
    "UserSaid",
    "View",
    "ViewEdited",
    "call",
    "card",
    "compact",
    "cost",
    "encode",
    "profile",
    "recover",
    "restore",
    "rewind",
    "tool_from",
    "undo",
]

# Where each name lives: a room is opened when its first name is used, so that importing the package costs next to nothing.
_ROOMS = {
    "core.edits": ("Fold", "Insert", "Keep", "Mask", "Put", "Unmask"),
    "core.errors": ("PalimpsestError",),
    "core.events": (
        "ContextStated",
        "Event",
        "ModelReplied",
        "SessionOpened",
        "Statement",
        "ToolReturned",
        "ToolStarted",
        "UserSaid",
        "ViewEdited",
    ),
    "core.events.deltas": ("TextDelta",),
    "core.items": ("Item", "Text", "ToolCall", "ToolResult"),
    "core.log.log": ("Log",),
    "core.log.recovery": ("recover",),
    "core.log.undo": ("restore", "rewind", "undo"),
    "core.view": ("View",),
    "engine.agent": ("Agent", "Answer"),
    "engine.calls.call": ("call",),
    "engine.conversation.conversation": ("Conversation", "compact"),
    "engine.conversation.records": ("Compacted", "EditRecord"),
    "engine.environment": ("Environment",),
    "engine.hooks.hook": ("Hook", "HookCall", "HookResult"),
    "engine.loop.limits": ("Limits",),
    "engine.named_profiles": ("profile",),
    "engine.session": ("Session",),
    "profiles.profile": ("Profile",),
    "providers.scripted": ("Scripted",),
    "stores.home": ("Home",),
    "tools.functions": ("tool_from",),
    "tools.tool": ("AgentTool", "ToolOutput"),
    "wire.models.cards": ("card",),
    "wire.encode": ("Encoder", "encode"),
    "wire.models.prices": ("cost",),
    "wire.request": ("Params", "Tool"),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    """A public name, found in its room on first use and kept."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
