"""Skills that the user mentions in a message, and their bodies as statements after it."""

import posixpath
from collections.abc import Sequence
from typing import Final

from palimpsest.core.errors import BadInput
from palimpsest.core.events.context import ContextStated, Statement
from palimpsest.core.format.tags import attribute, within, without_tags
from palimpsest.core.items import Value
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.sources.skills.catalogue import in_catalogue_order
from palimpsest.sources.skills.files import FILE_BYTES, SKILL_FILE, Skill, skill_body
from palimpsest.sources.source import World

IGNORED: Final = frozenset({"PATH", "HOME", "USER", "SHELL", "PWD", "TMPDIR", "TEMP", "TMP", "LANG", "TERM", "XDG_CONFIG_HOME"})
MOST_FILES: Final = 10
_LINK: Final = lazy_pattern(r"\[([$@])([A-Za-z0-9_:-]+)\]\(([^()\s]+)\)")
_PLAIN: Final = lazy_pattern(r"(?<![\w$@/])([$@])([A-Za-z0-9_:-]+)")


class Mentions(Value, frozen=True):
    """Names and paths that a message mentions, in order."""

    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def mentions_in(text: str, sigils: str = "$") -> Mentions:
    """Return what a text mentions as `$name` or `[$name](path)`, with the given sigils; names of usual variables do not count."""
    paths = [found[3] for found in _LINK.finditer(text) if found[1] in sigils]
    rest = _LINK.sub(" ", text)
    names = [found[2].rstrip(":-") for found in _PLAIN.finditer(rest) if found[1] in sigils]
    return Mentions(tuple(dict.fromkeys(name for name in names if name and name not in IGNORED)), tuple(dict.fromkeys(paths)))


def mentioned_skills(
    mentions: Mentions, skills: Sequence[Skill], *, selected: Sequence[str] = (), connectors: Sequence[str] = ()
) -> tuple[Skill, ...]:
    """Return the mentioned skills in catalogue order, each once.

    A path counts if it is exactly that of a skill. A plain name counts if exactly one skill and no connector has it. `selected` are paths
    that the user chose in the interface; one that does not exist blocks the plain name of its folder.
    """
    by_path = {skill.path: skill for skill in skills}
    wanted = {path for path in (*selected, *mentions.paths) if path in by_path}
    blocked = {posixpath.basename(posixpath.dirname(path)) for path in selected if path not in by_path}
    for name in mentions.names:
        same = [skill for skill in skills if skill.name == name]
        if len(same) == 1 and name not in connectors and name not in blocked:
            wanted.add(same[0].path)
    return in_catalogue_order([by_path[path] for path in wanted])


def mentioned_bodies(world: World, skills: Sequence[Skill]) -> tuple[ContextStated | None, tuple[str, ...]]:
    """Return the statement of the whole files of skills, and the paths that could not be read; it belongs behind the user's message."""
    statements: list[Statement] = []
    unreadable: list[str] = []
    for skill in skills:
        data = world.read(skill.path, FILE_BYTES)
        if data is None:
            unreadable.append(skill.path)
            continue
        text = data.decode("utf-8", "replace")
        head = "\n".join(f"<{tag}>{without_tags(value, tag)}</{tag}>" for tag, value in (("name", skill.name), ("path", skill.path)))
        body = within("skill", f"{head}\n{text}")
        statements.append(Statement("skill", body, "user", value=skill.path))
    return (ContextStated(tuple(statements)) if statements else None), tuple(unreadable)


def loaded_skill(world: World, skills: Sequence[Skill], name: str, *, tagged: bool = False) -> str:
    """Return the body of a skill for the tool that loads it; nothing is run. Raises `BadInput` if there is none or it cannot be read.

    tagged: as OpenCode 1.18, within `<skill_content>` and with up to 10 files beside it.
    """
    # The later one of the same name counts, as the user's own folders come before those of the project.
    found = {skill.name: skill for skill in skills}.get(name)
    if found is None:
        known = ", ".join(sorted({skill.name for skill in skills})[:20]) or "none"
        raise BadInput(f"there is no skill {name!r}; known are {known}", where="skill")
    data = world.read(found.path, FILE_BYTES)
    if data is None:
        raise BadInput("the file of the skill cannot be read", where=found.path)
    folder = posixpath.dirname(found.path)
    body = skill_body(data.decode("utf-8", "replace"))
    if not tagged:
        return f"## Skill: {name}\n\nBase directory: {folder}\n\n{body}"
    files = [path for path in world.glob(folder, "**/*") if posixpath.basename(path) != SKILL_FILE][:MOST_FILES]
    listed = "\n".join(f"<file>{without_tags(path, 'file', 'skill_files')}</file>" for path in files)
    block = f"\n\n<skill_files>\n{listed}\n</skill_files>" if listed else ""
    return within("skill_content", f"{without_tags(body, 'skill_files')}\n\nBase directory: {folder}{block}", attribute("name", name))
