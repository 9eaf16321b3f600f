"""The tool `skill`: loads the instructions of a skill by its name; it reads files of the skill's folder and runs nothing."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from palimpsest.agent.confined_files import IrregularFile, opened_file, roots_of
from palimpsest.agent.tool import AgentTool, ToolError, ToolOutput, bounded, define, one_line
from palimpsest.agent.workspace import Workspace
from palimpsest.core.front_matter import read_front_matter

SKILL: Final = "skill"
"""The name of the tool; policies that mask old results leave its results alone."""
SKILL_FILE: Final = "SKILL.md"
LARGEST_SKILL: Final = 100_000
"""Bytes of a body, or of another file of a skill, that are shown."""
MOST_FILES: Final = 10
_DEEPEST: Final = 4
LARGEST_LISTING: Final = 10_000
"""Bytes of the list of skills in the description of the tool."""
_LONGEST_LINE: Final = 300


class KnownSkill(Struct, frozen=True):
    """A skill that the context lists: its name, what it is for, and its file. Without a description it is loadable and not listed."""

    name: str
    description: str
    path: str


FindsSkills: TypeAlias = Callable[[], Iterable[KnownSkill]]
"""Returns the skills of now; of two with one name the later one counts."""


class SkillArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a skill; with `file`, the content of another file of its folder instead of its instructions."""

    name: Annotated[str, Meta(max_length=200)]
    file: Annotated[str, Meta(max_length=500)] = ""


def skill_tool(find: FindsSkills, *, hides: Callable[[str], bool], lists: bool = False) -> AgentTool:
    """The tool. The list of skills is stated elsewhere, so that the declaration stays the same when a skill is added.

    With `lists` its description holds the list of now, for profiles that state it nowhere else. `hides` tells which files a rule
    restricts: a call names a skill, so that the permissions do not see which file it reads.
    """
    listing = f"\n\nThe skills:\n{bounded(_listing(find), LARGEST_LISTING)}" if lists else ""

    async def load(arguments: SkillArguments, workspace: Workspace) -> ToolOutput:
        return await asyncio.to_thread(_load, find, arguments, workspace, hides)

    return define(
        SkillArguments,
        load,
        name=SKILL,
        description=(
            "Load the instructions of a skill: a description of how a certain kind of work is done here. Give the name from the list of "
            f"skills; follow the instructions where they fit the task. `file` reads another file of the skill. At most "
            f"{LARGEST_SKILL // 1000} kB are returned.{listing}"
        ),
        kind="reads",
        parallel=True,
    )


def _listing(find: FindsSkills) -> str:
    """Name and description of each skill that has one, one line each: what the model reads before it asks for a body."""
    skills = _by_name(find).values()
    return "\n".join(f"{skill.name}: {one_line(skill.description, _LONGEST_LINE)}" for skill in skills if skill.description)


def _by_name(find: FindsSkills) -> dict[str, KnownSkill]:
    return dict(sorted({skill.name: skill for skill in find()}.items()))


def _load(find: FindsSkills, arguments: SkillArguments, workspace: Workspace, hides: Callable[[str], bool]) -> ToolOutput:
    skills = _by_name(find)
    # A catalogue may name the file, which tells skills of one name apart.
    by_path = {skill.path: skill for skill in find()}
    skill = skills.get(arguments.name) or by_path.get(arguments.name)
    if skill is None:
        known = bounded(", ".join(skills), 2_000) or "none"
        raise ToolError(f"there is no skill {one_line(arguments.name, 80)}; known are {known}")
    folder = Path(skill.path).parent.resolve()
    path = (folder / arguments.file).resolve() if arguments.file else Path(skill.path).resolve()
    if hides(str(path)):
        raise ToolError(f"a rule restricts reading {path.name}", where=str(path))
    # A skill of the project is reached from the top of it, since a command may put a link in the place of a folder at any time.
    roots = (*roots_of(workspace), folder, path.parent)
    if arguments.file:
        if folder not in path.parents:
            raise ToolError("the path leads out of the folder of the skill", where=arguments.file)
        return ToolOutput(bounded(_file_text(roots, path, arguments.file), LARGEST_SKILL))
    names = [str(path.relative_to(folder)) for path in _files(folder) if path.name != SKILL_FILE]
    more = [f"[{len(names) - MOST_FILES} more files]"] if len(names) > MOST_FILES else []
    files = "\n".join(("Files, to be read with `file`:", *names[:MOST_FILES], *more)) if names else ""
    text = f"# Skill {skill.name}\nFolder: {folder}\n\n{bounded(_body(roots, path), LARGEST_SKILL)}"
    return ToolOutput(f"{text.rstrip()}\n\n{files}" if files else text)


def _body(roots: tuple[Path, ...], path: Path) -> str:
    text = _content(roots, path, str(path)).decode("utf-8", "replace")
    front = read_front_matter(text)
    return (text if front is None else front.body).strip("\n")


def _file_text(roots: tuple[Path, ...], path: Path, name: str) -> str:
    data = _content(roots, path, name)
    if b"\0" in data:
        raise ToolError(f"{name} is a binary file", where=name)
    return data.decode("utf-8", "replace")


def _content(roots: tuple[Path, ...], path: Path, name: str) -> bytes:
    try:
        with opened_file(roots, path) as file:
            return file.read(LARGEST_SKILL * 2)
    except (FileNotFoundError, IrregularFile) as error:
        raise ToolError(f"the skill has no file {name}", where=name) from error
    except OSError as error:
        raise ToolError(f"{name} cannot be read: {error.strerror or error}", where=name) from error


def _files(folder: Path, depth: int = 0) -> Iterator[Path]:
    """The regular files below a folder, sorted; links are not followed."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink() or entry.name.startswith("."):
            continue
        if entry.is_file():
            yield entry
        elif entry.is_dir() and depth < _DEEPEST:
            yield from _files(entry, depth + 1)
