"""Roles of sub-agents: what each is for and how much less than its parent it may do, built in or from files of user and project."""

import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.core.format.front_matter import read_front_matter
from palimpsest.engine.loop.limits import NO_LIMITS, Limits
from palimpsest.tools.permissions.decision import Mode
from palimpsest.tools.tool import bounded, one_line

Origin: TypeAlias = Literal["built-in", "user", "project"]

DEFAULT_ROLE: Final = "default"
LARGEST_FILE: Final = 64 * 1024
"""Bytes of a role file."""
MOST_FILES: Final = 100
"""Role files that are read of one folder."""
LONGEST_INSTRUCTIONS: Final = 20_000
_LONGEST_DESCRIPTION: Final = 500
_OWN_FOLDER: Final = ".config/palimpsest/agents"
_SHARED_FOLDERS: Final = (".agents/agents", ".claude/agents")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LIST_LETTERS: Final = re.compile(r"[\s,\[\]\"']+")
# From the mode that allows least to the one that allows most.
_MODES: Final[tuple[Mode, ...]] = ("plan", "ask", "edits", "auto")
_INHERIT: Final = "inherit"
_SERVED: Final = "mcp__"
_READING_TOOLS: Final = frozenset({"read", "grep", "glob", "bash", "bash_output", "kill", "recall", "skill", "todo", "compact"})


class AgentRole(Struct, frozen=True):
    """A role. `tools` are the only ones it has, `None` for all of its parent's; `mode` is the widest it works in, `None` for its parent's.

    An empty `model` or `profile` is that of the parent. `instructions` are stated to the sub-agent.
    """

    name: str
    description: str
    instructions: str = ""
    tools: frozenset[str] | None = None
    mode: Mode | None = None
    model: str = ""
    profile: str = ""
    limits: Limits = NO_LIMITS
    origin: Origin = "built-in"


BUILT_IN: Final = (
    AgentRole(DEFAULT_ROLE, "Any task that can be described in one message; has all tools."),
    AgentRole(
        "explorer",
        "Answers a question about the project by searching and reading; changes nothing.",
        "Search widely first, then read what matters. Answer the question with paths and line numbers, and say what you did not look at.",
        tools=_READING_TOOLS,
        mode="plan",
    ),
    AgentRole(
        "worker",
        "Makes one bounded change and checks it; name the files that it may change.",
        "Change only what the task names. Run the checks that show whether it works, and report each changed file.",
    ),
)


def narrower_mode(parent: Mode, wanted: Mode | None) -> Mode:
    """Return the mode that allows less; that of the parent if none is wanted."""
    return parent if wanted is None else min(parent, wanted, key=_MODES.index)


def narrower_limits(*given: Limits) -> Limits:
    """Return the lowest of each limit."""
    return Limits(
        *(
            min((value for limits in given if (value := getattr(limits, name)) is not None), default=None)
            for name in Limits.__struct_fields__
        )
    )


def load_roles(user: Path, project: Path, hides: Callable[[str], bool] = lambda _: False) -> tuple[dict[str, AgentRole], tuple[str, ...]]:
    """Return the roles by name, and a line for each file that is none. `user` is the home folder of the user.

    Of the project, files that a rule `hides` are left out.

    A role of the user takes the place of a built-in one; one of the project takes the place of neither, since it comes with the files.
    """
    roles = {role.name: role for role in BUILT_IN}
    problems: list[str] = []
    places: list[tuple[Path, Origin]] = [(user / name, "user") for name in (_OWN_FOLDER, *_SHARED_FOLDERS)]
    places += [(project / name, "project") for name in _SHARED_FOLDERS if project != user]
    for folder, origin in places:
        for path in _role_files(folder, project if origin == "project" else None):
            if origin == "project" and hides(str(path)):
                problems.append(f"{path} is left out: a rule restricts reading it")
                continue
            try:
                role = parse_role(path, _read(path), origin)
            except BadInput as error:
                problems.append(f"{path} is no role: {error.message}")
                continue
            known = roles.get(role.name)
            if known is not None and (origin == "project" or known.origin == "user"):
                problems.append(f"{path} is left out: there is a role {role.name!r} already")
            else:
                roles[role.name] = role
    return roles, tuple(problems)


def parse_role(path: Path, text: str, origin: Origin = "user") -> AgentRole:
    """Return the role of a Markdown file with front matter; its name is that of the file unless it gives one.

    Raises `BadInput` without front matter or description, or for a value that cannot be read: a limit that was not understood must not be
    taken for none.
    """
    front = read_front_matter(text)
    if front is None:
        raise BadInput("it does not begin with front matter between lines of ---")
    fields = front.texts()
    name = fields.get("name") or path.stem
    if _NAME.fullmatch(name) is None:
        raise BadInput("its name may have letters, digits, dashes and underscores, at most 64")
    description = one_line(fields.get("description", ""), _LONGEST_DESCRIPTION)
    if not description:
        raise BadInput("it has no description")
    return AgentRole(
        name,
        description,
        bounded(front.body.strip(), LONGEST_INSTRUCTIONS),
        tools=_tools(fields),
        mode=_mode(fields.get("mode", "")),
        model="" if fields.get("model", "") == _INHERIT else fields.get("model", ""),
        profile=fields.get("profile", ""),
        limits=_limits(fields),
        origin=origin,
    )


def _tools(fields: Mapping[str, str]) -> frozenset[str] | None:
    """The tools that a role names; names of other agents such as `Read` are those of ours in lower case.

    Tools of MCP servers keep their letters, because servers choose them.
    """
    words = [word for word in _LIST_LETTERS.split(fields.get("tools", "*")) if word not in ("", "-")]
    return None if words == ["*"] else frozenset(word if word.startswith(_SERVED) else word.lower() for word in words)


def _mode(text: str) -> Mode | None:
    found = next((mode for mode in _MODES if mode == text), None)
    if text and found is None:
        raise BadInput(f"its mode must be one of {', '.join(get_args(Mode))}")
    return found


def _limits(fields: Mapping[str, str]) -> Limits:
    def number(name: str) -> float | None:
        text = fields.get(name, "")
        try:
            value = float(text) if text else None
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise BadInput(f"its {name} is no number")
        return value

    calls, tools, tokens = (None if (found := number(name)) is None else int(found) for name in ("max_turns", "max_tools", "max_tokens"))
    return Limits(calls, tools, number("max_seconds"), number("max_usd"), tokens)


def _role_files(folder: Path, project: Path | None) -> Iterator[Path]:
    """The Markdown files of a folder, sorted. Of a project, links and a folder that leads out of it are skipped."""
    try:
        if project is not None and not folder.resolve().is_relative_to(project.resolve()):
            return
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".md"))[:MOST_FILES]
    except (OSError, RuntimeError):
        return
    for name in names:
        path = folder / name
        if project is None or not path.is_symlink():
            yield path


def _read(path: Path) -> str:
    try:
        # Opening a pipe would wait for its other end.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadInput("it is no regular file")
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise BadInput(f"it cannot be read: {error.strerror or error}") from error
    if len(data) > LARGEST_FILE:
        raise BadInput(f"it has more than {LARGEST_FILE // 1024} KiB")
    return data.decode("utf-8", "replace")
