"""Import paths of 0.2 that its documents name: each works until 0.5, with a warning that says where its names are now."""

from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final
from warnings import warn

# Old module: where its documented names are now.
MOVED: Final = {
    "palimpsest.audit.pins": "palimpsest.audit.gate",
    "palimpsest.core.edits": "palimpsest.core.items",
    "palimpsest.core.events.deltas": "palimpsest.core.deltas",
    "palimpsest.core.log.undo": "palimpsest.core.undo",
    "palimpsest.core.policy": "palimpsest.core.plans",
    "palimpsest.core.situation": "palimpsest.core.plans",
    "palimpsest.engine.calls.call": "palimpsest.agent.calls",
    "palimpsest.engine.coding.equip": "palimpsest.coding.build",
    "palimpsest.engine.coding.settings": "palimpsest.coding.settings",
    "palimpsest.engine.environment": "palimpsest.agent.session",
    "palimpsest.engine.session": "palimpsest.agent.session",
    "palimpsest.foreign.exporting.markdown": "palimpsest.exchange.html",
    "palimpsest.foreign.exporting.request": "palimpsest.exchange.resume",
    "palimpsest.memory.recall.index": "palimpsest.memory.recall_index",
    "palimpsest.memory.recall.ranking": "palimpsest.memory.recall_ranking",
    "palimpsest.memory.recall.selection": "palimpsest.memory.recall_selection",
    "palimpsest.memory.recall.units": "palimpsest.memory.recall_terms",
    "palimpsest.profiles.profile": "palimpsest.policies.profile",
    "palimpsest.sources.reconcile": "palimpsest.sources.source",
    "palimpsest.sources.state": "palimpsest.sources.progress",
    "palimpsest.stores.ephemeral": "palimpsest.stores.in_memory",
    "palimpsest.tools.permissions.decision": "palimpsest.agent.decision",
    "palimpsest.tools.tool": "palimpsest.agent.tool",
    "palimpsest.wire.models.cards": "palimpsest.wire.models",
    "palimpsest.wire.models.prices": "palimpsest.wire.models",
    "palimpsest.wire.past_requests": "palimpsest.wire.encode",
}


def old_spec(name: str) -> ModuleSpec | None:
    """Return how to import an old module, or a package on the way to one; `None` for any other name."""
    is_package = any(old.startswith(f"{name}.") for old in MOVED)
    return ModuleSpec(name, _OldModule(), is_package=is_package) if is_package or name in MOVED else None


class _OldModule(Loader):
    """Makes a module that has the names of the new one."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        new = MOVED.get(module.__name__)
        if new is not None:
            module.__dict__["__getattr__"] = _MovedNames(module.__name__, new)


class _MovedNames:
    """Gets the names of an old module from the new one."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def __call__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        found: object = getattr(import_module(self._new), name)
        warn(f"{self._old} has moved: import {name} from {self._new}; the old path goes with 0.5", DeprecationWarning, stacklevel=2)
        return found
