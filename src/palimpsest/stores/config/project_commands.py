"""The commands that the files of a project want started with the user's authority; each runs only if the user trusts it."""

from pathlib import Path

from palimpsest.stores.config.mcp_servers import project_servers
from palimpsest.stores.config.project_hooks import project_hooks
from palimpsest.stores.permissions.trust import ProjectCommand


def project_commands(folder: Path, user_file: Path | None = None) -> tuple[ProjectCommand, ...]:
    """All commands that the project of a folder wants started, in the order of its files.

    `user_file` is the user's own configuration, which is no file of a project. A file that cannot be read has none.
    """
    return (*(hook.command for hook in project_hooks(folder, user_file)), *project_servers(folder))
