"""The tool `skill`: loads the instructions of a skill by its name; it reads files of the skill's folder and runs nothing."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from palimpsest.tools.tool import AgentTool, ToolError, ToolOutput, bounded, define, one_line
from palimpsest.tools.workspace import Workspace

SKILL: Final = "skill"
"""The name of the tool; policies that mask old results leave its results alone."""
SKILL_FILE: Final = "SKILL.md"
LARGEST_SKILL: Final = 100_000
"""Bytes of a body, or of another file of a skill, that are shown."""
MOST_SKILLS: Final = 200
MOST_FILES: Final = 10
_DEEPEST: Final = 4
LARGEST_LISTING: Final = 10_000
"""Bytes of the list of skills in the description of the tool."""
_LONGEST_LINE: Final = 300


class LoadedSkill(Struct, frozen=True):
    """A skill by its name, which is that of its folder unless the file gives one. Without a description it is loadable and not listed."""

    name: str
    description: str
    folder: str
    body: str


class SkillArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a skill; with `file`, the content of another file of its folder instead of its instructions."""

    name: Annotated[str, Meta(max_length=200)]
    file: Annotated[str, Meta(max_length=500)] = ""


class SkillFolders(Struct, frozen=True):
    """The folders in which skills are looked for, at any depth up to four; of two skills with one name the later one counts.

    A folder of the `project` that is a link out of it is skipped; the user's own folders may be links.
    """

    folders: tuple[Path, ...]
    project: Path | None = None

    def skills(self) -> dict[str, LoadedSkill]:
        """The skills by name, sorted. Files that cannot be read or have no front matter are left out; `problems` lists them."""
        found = {skill.name: skill for skill in self._read() if isinstance(skill, LoadedSkill)}
        return dict(sorted(found.items()))

    def problems(self) -> tuple[str, ...]:
        """Why some skills are not available, one line each."""
        seen: dict[str, str] = {}
        lines: list[str] = []
        for skill in self._read():
            if isinstance(skill, str):
                lines.append(skill)
            elif skill.name in seen:
                lines.append(f"the skill {skill.name} in {skill.folder} replaces the one in {seen[skill.name]}")
            if isinstance(skill, LoadedSkill):
                seen[skill.name] = skill.folder
        return tuple(lines)

    def listing(self) -> str:
        """Name and description of each skill that has one, one line each: what the model reads before it asks for a body."""
        return "\n".join(
            f"{skill.name}: {one_line(skill.description, _LONGEST_LINE)}" for skill in self.skills().values() if skill.description
        )

    def _read(self) -> Iterator[LoadedSkill | str]:
        """The skills in the order of their folders, and a line for each file that is none."""
        count = 0
        for folder in filter(self._is_own, self.folders):
            for path in _skill_files(folder):
                count += 1
                if count > MOST_SKILLS:
                    yield f"{path} is left out: at most {MOST_SKILLS} skills are read"
                    return
                yield _parsed(path)

    def _is_own(self, folder: Path) -> bool:
        project = self.project
        return project is None or project not in folder.parents or folder.resolve().is_relative_to(project.resolve())


def skill_tool(folders: SkillFolders, *, lists: bool = False) -> AgentTool:
    """The tool. The list of skills is stated elsewhere, so that the declaration stays the same when a skill is added.

    With `lists` its description holds the list of now, for profiles that state it nowhere else.
    """
    listing = f"\n\nThe skills:\n{bounded(folders.listing(), LARGEST_LISTING)}" if lists else ""

    async def load(arguments: SkillArguments, _: Workspace) -> ToolOutput:
        return await asyncio.to_thread(_load, folders, arguments)

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


def _load(folders: SkillFolders, arguments: SkillArguments) -> ToolOutput:
    skills = folders.skills()
    skill = skills.get(arguments.name)
    if skill is None:
        known = bounded(", ".join(skills), 2_000) or "none"
        raise ToolError(f"there is no skill {one_line(arguments.name, 80)}; known are {known}")
    folder = Path(skill.folder)
    if arguments.file:
        return ToolOutput(bounded(_file_of(folder, arguments.file), LARGEST_SKILL))
    names = [str(path.relative_to(folder)) for path in _files(folder) if path.name != SKILL_FILE]
    more = [f"[{len(names) - MOST_FILES} more files]"] if len(names) > MOST_FILES else []
    files = "\n".join(("Files, to be read with `file`:", *names[:MOST_FILES], *more)) if names else ""
    text = f"# Skill {skill.name}\nFolder: {folder}\n\n{bounded(skill.body, LARGEST_SKILL)}"
    return ToolOutput(f"{text.rstrip()}\n\n{files}" if files else text)


def _file_of(folder: Path, name: str) -> str:
    path = (folder / name).resolve()
    if folder not in path.parents:
        raise ToolError("the path leads out of the folder of the skill", where=name)
    try:
        if not path.is_file():
            raise ToolError(f"the skill has no file {name}", where=name)
        with path.open("rb") as file:
            data = file.read(LARGEST_SKILL * 2)
    except OSError as error:
        raise ToolError(f"{name} cannot be read: {error.strerror or error}", where=name) from error
    if b"\0" in data:
        raise ToolError(f"{name} is a binary file", where=name)
    return data.decode("utf-8", "replace")


def _skill_files(folder: Path) -> Iterator[Path]:
    return (path for path in _files(folder) if path.name == SKILL_FILE)


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


def _parsed(path: Path) -> LoadedSkill | str:
    """The skill of a file, or a line that says why it is none."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_SKILL * 2).decode("utf-8", "replace")
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    fields, body = front_matter(text)
    if not fields:
        return f"{path} has no front matter"
    return LoadedSkill(fields.get("name") or path.parent.name, fields.get("description", ""), str(path.parent.resolve()), body)


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """The fields before the text of a Markdown file, and the text after them; no fields if there are none.

    Of YAML only `key: value` is read, with quoted values and values that go on in indented lines: skills need no more.
    """
    lines = text.replace("\r\n", "\n").lstrip("\ufeff").split("\n")
    if lines[0].rstrip() != "---":
        return {}, text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        return {}, text
    return dict(_fields(lines[1:end])), "\n".join(lines[end + 1 :]).strip("\n")


def _fields(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    key, values = "", list[str]()
    for line in (*lines, "end:"):
        if line[:1] in (" ", "\t"):
            values.append(line.strip())
            continue
        if key:
            yield key, " ".join(value for value in values if value not in ("", ">", ">-", "|", "|-")).strip()
        key, _, value = line.partition(":")
        key, values = key.strip(), [_unquoted(value.strip())]


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
