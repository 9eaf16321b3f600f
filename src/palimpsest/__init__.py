"""Context you can audit, undo and price."""

from importlib import import_module

# Type checkers know this name; the module `typing` would cost more to import than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from palimpsest.agent.agent import Agent, Answer
    from palimpsest.agent.calls import call
    from palimpsest.agent.hooks import Hook, HookCall, HookResult
    from palimpsest.agent.limits import Limits
    from palimpsest.agent.named_profiles import profile
    from palimpsest.agent.session import Environment, Session
    from palimpsest.agent.tool import AgentTool, ToolOutput, tool_from
    from palimpsest.core.deltas import TextDelta
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
    from palimpsest.core.items import Fold, Insert, Item, Keep, Mask, Put, Text, ToolCall, ToolResult, Unmask
    from palimpsest.core.log import Log, recover
    from palimpsest.core.undo import restore, rewind, undo
    from palimpsest.core.view import View
    from palimpsest.follow.conversation import Compacted, Conversation, EditRecord, compact
    from palimpsest.policies.profile import Profile
    from palimpsest.providers.scripted import Scripted
    from palimpsest.stores.home import Home
    from palimpsest.wire.encode import Encoder, encode
    from palimpsest.wire.models import card, cost
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
    "palimpsest.core.items": ("Fold", "Insert", "Keep", "Mask", "Put", "Unmask"),
    "palimpsest.core.errors": ("PalimpsestError",),
    "palimpsest.core.events": (
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
    "palimpsest.core.deltas": ("TextDelta",),
    "palimpsest.core.items": ("Item", "Text", "ToolCall", "ToolResult"),
    "palimpsest.core.log": ("Log",),
    "palimpsest.core.log": ("recover",),
    "palimpsest.core.undo": ("restore", "rewind", "undo"),
    "palimpsest.core.view": ("View",),
    "palimpsest.agent.agent": ("Agent", "Answer"),
    "palimpsest.agent.calls": ("call",),
    "palimpsest.follow.conversation": ("Conversation", "compact"),
    "palimpsest.follow.conversation": ("Compacted", "EditRecord"),
    "palimpsest.agent.session": ("Environment",),
    "palimpsest.agent.hooks": ("Hook", "HookCall", "HookResult"),
    "palimpsest.agent.limits": ("Limits",),
    "palimpsest.agent.named_profiles": ("profile",),
    "palimpsest.agent.session": ("Session",),
    "palimpsest.policies.profile": ("Profile",),
    "palimpsest.providers.scripted": ("Scripted",),
    "palimpsest.stores.home": ("Home",),
    "palimpsest.agent.tool": ("tool_from",),
    "palimpsest.agent.tool": ("AgentTool", "ToolOutput"),
    "palimpsest.wire.models": ("card",),
    "palimpsest.wire.encode": ("Encoder", "encode"),
    "palimpsest.wire.models": ("cost",),
    "palimpsest.wire.request": ("Params", "Tool"),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    """A public name, found in its room on first use and kept."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
