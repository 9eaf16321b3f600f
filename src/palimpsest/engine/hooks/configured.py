"""Makes hooks of what configuration files declare: the user's own, and those of a project that the user trusts."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from palimpsest.core.errors import BadInput
from palimpsest.engine.hooks.hook import MARK, Hook
from palimpsest.stores.config.hook_config import HookConfig
from palimpsest.stores.config.project_hooks import ProjectHook
from palimpsest.stores.permissions.trust import ProjectTrust
from palimpsest.tools.shell.environment import CommandEnvironment


class ConfiguredHooks(NamedTuple):
    """The hooks that run, and lines for the user about those that do not."""

    hooks: tuple[Hook, ...] = ()
    notices: tuple[str, ...] = ()


def configured_hooks(
    own: Iterable[HookConfig],
    project: Iterable[ProjectHook],
    trust: ProjectTrust,
    *,
    cwd: Path,
    environment: Mapping[str, str],
    withheld: frozenset[str] = frozenset(),
) -> ConfiguredHooks:
    """Return the hooks of the user, then the trusted ones of the project. They run in `cwd` with the environment without secrets.

    Within a command of a hook there are none, because an agent that a hook starts would start it again without end. Raises `BadInput` for
    a hook of the user that is not valid; one of the project is left out with a notice.
    """
    if MARK in environment:
        return ConfiguredHooks()
    variables = CommandEnvironment(environment, withhold=withheld)
    hooks = [_hook(config, cwd, variables) for config in own]
    notices: list[str] = []
    untrusted: list[str] = []
    for config, command in project:
        if not trust.trusts(command):
            untrusted.append(config.called)
            continue
        try:
            hooks.append(_hook(config, cwd, variables))
        except BadInput as error:
            notices.append(f"a hook of the project is not valid and does not run: {error}")
    if untrusted:
        names = ", ".join(dict.fromkeys(untrusted))
        notices.append(f"hooks of the project do not run, because you have not trusted them: {names}; `pal trust` shows them")
    return ConfiguredHooks(tuple(hooks), tuple(notices))


def _hook(config: HookConfig, cwd: Path, variables: Mapping[str, str]) -> Hook:
    from palimpsest.engine.hooks.commands import command_hook

    return command_hook(
        config.moment,
        config.command,
        cwd=cwd,
        environment=variables,
        name=config.called,
        tool=config.tool,
        seconds=config.seconds,
    )
