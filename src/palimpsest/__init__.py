"""Context you can audit, undo and price."""

import sys
from importlib import import_module

# Type checkers know this name; the module `typing` would cost more to import than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

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
    "palimpsest.agent.agent": ("Agent", "Answer"),
    "palimpsest.agent.calls": ("call",),
    "palimpsest.agent.hooks": ("Hook", "HookCall", "HookResult"),
    "palimpsest.agent.limits": ("Limits",),
    "palimpsest.agent.named_profiles": ("profile",),
    "palimpsest.agent.session": ("Environment", "Session"),
    "palimpsest.agent.tool": ("AgentTool", "ToolOutput", "tool_from"),
    "palimpsest.core.deltas": ("TextDelta",),
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
    "palimpsest.core.items": ("Fold", "Insert", "Item", "Keep", "Mask", "Put", "Text", "ToolCall", "ToolResult", "Unmask"),
    "palimpsest.core.log": ("Log", "recover"),
    "palimpsest.core.undo": ("restore", "rewind", "undo"),
    "palimpsest.core.view": ("View",),
    "palimpsest.follow.conversation": ("Compacted", "Conversation", "EditRecord", "compact"),
    "palimpsest.policies.profile": ("Profile",),
    "palimpsest.providers.scripted": ("Scripted",),
    "palimpsest.stores.home": ("Home",),
    "palimpsest.wire.encode": ("Encoder", "encode"),
    "palimpsest.wire.models": ("card", "cost"),
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


class _OldNames:
    """Finds modules under the names that the documents of 0.2 gave them; asked only for what is found nowhere else."""

    @staticmethod
    def find_spec(name: str, *_: object) -> "ModuleSpec | None":
        if not name.startswith("palimpsest."):
            return None
        from palimpsest.old_names import old_spec  # noqa: PLC0415 - only programs written for 0.2 need it

        return old_spec(name)


sys.meta_path.append(_OldNames)
