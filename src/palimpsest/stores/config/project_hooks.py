"""The hooks of a project's own configuration file, and what the user trusts of a project."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from palimpsest.stores.config.hook_config import HookConfig
from palimpsest.stores.config.reading import read_config
from palimpsest.stores.config.settings import find_project_file, git_root
from palimpsest.stores.permissions.trust import ProjectCommand, ProjectTrust

_HOOKS = "hooks"


class ProjectHook(NamedTuple):
    """A hook of a project's file, and the command that the user has to trust."""

    config: HookConfig
    command: ProjectCommand


def project_hooks(folder: Path, user_file: Path | None = None) -> tuple[ProjectHook, ...]:
    """The hooks of the project's `.palimpsest/config.toml`; none if it cannot be read.

    `user_file` is the user's own configuration, which is no file of a project.
    """
    path = find_project_file(folder, user_file)
    declared = () if path is None else read_config(path).values.get(_HOOKS, ())
    hooks = [hook for hook in declared if isinstance(hook, HookConfig)] if isinstance(declared, tuple) else []
    return tuple(ProjectHook(hook, ProjectCommand("hook", hook.called, _definition(hook))) for hook in hooks)


def trust_of(home: Path | None, folder: Path) -> ProjectTrust:
    """What the user trusts of the project of a folder: that of its git root, or of the folder itself outside of git."""
    return ProjectTrust(home, git_root(folder))


def _definition(hook: HookConfig) -> bytes:
    """All fields as JSON, also those at their default, so that another default in a later version is a change too."""
    return msgspec.json.encode(hook, order="deterministic")
