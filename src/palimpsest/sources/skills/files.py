"""Skill files: what the front matter of a SKILL.md says, and the walk that finds them below the folders of user and project."""

import posixpath
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from palimpsest.core.format.front_matter import read_front_matter
from palimpsest.core.items import Value
from palimpsest.sources.instructions.files import allowed_folders, is_within
from palimpsest.sources.source import World

Scope: TypeAlias = Literal["system", "admin", "repo", "user"]

SKILL_FILE: Final = "SKILL.md"
FILE_BYTES: Final = 128 * 1024
LONGEST_NAME: Final = 64
LONGEST_DESCRIPTION: Final = 1_024
DEEPEST: Final = 6
MOST_FOLDERS: Final = 2_000
MOST_ENTRIES: Final = 20_000
MOST_SKILLS: Final = 300


class SkillRoot(Value, frozen=True):
    """A folder below which skills are searched, and whose they are."""

    folder: str
    scope: Scope


class Skill(Value, frozen=True):
    """A skill: its name, what it is for, the absolute path of its file, and whose it is. The body is read only when it is needed."""

    name: str
    description: str
    path: str
    scope: Scope = "user"


def skill_body(text: str) -> str:
    """Return a skill file without its front matter."""
    front = read_front_matter(text)
    return (text if front is None else front.body).strip()


def read_skill(world: World, path: str, scope: Scope, *, needs_description: bool = True) -> Skill | None:
    """Return a skill; `None` if its file cannot be read, has no front matter, or no description where one is needed."""
    data = world.read(path, FILE_BYTES)
    front = None if data is None else read_front_matter(data.decode("utf-8", "replace"))
    if front is None:
        return None
    fields = front.texts()
    name = " ".join((fields.get("name") or posixpath.basename(posixpath.dirname(path))).split())
    description = " ".join(fields.get("description", "").split())
    if not name or len(name) > LONGEST_NAME or (needs_description and not description):
        return None
    return Skill(name, description[:LONGEST_DESCRIPTION], path, scope)


def find_skills(world: World, roots: Sequence[SkillRoot], *, needs_description: bool = True) -> tuple[Skill, ...]:
    """Return the skills below the roots, at most 300; the first one at a real path counts, and a link out of its root does not.

    Each root is walked 6 folders deep, in at most 2,000 folders and 20,000 entries; hidden folders are skipped.
    """
    found: dict[str, Skill] = {}
    for root in roots:
        real_root = world.real_path(root.folder)
        if real_root is None:
            continue
        # A project may not lead out of itself; the user's own folders may be links.
        inside = (real_root,) if root.scope != "repo" else allowed_folders(world)
        if not is_within(real_root, inside):
            continue
        for path in _skill_paths(world, root.folder):
            real = world.real_path(path)
            if real is None or real in found or not is_within(real, inside):
                continue
            skill = read_skill(world, path, root.scope, needs_description=needs_description)
            if skill is not None:
                found[real] = skill
            if len(found) >= MOST_SKILLS:
                return tuple(found.values())
    return tuple(found.values())


def _skill_paths(world: World, root: str) -> list[str]:
    paths: list[str] = []
    level, folders, entries = [root], 0, 0
    for _ in range(DEEPEST + 1):
        below: list[str] = []
        for folder in level:
            folders += 1
            if folders > MOST_FOLDERS or entries > MOST_ENTRIES:
                return paths
            for entry in world.entries(folder):
                entries += 1
                if entry.is_folder and not entry.name.startswith("."):
                    below.append(posixpath.join(folder, entry.name))
                elif entry.name == SKILL_FILE:
                    paths.append(posixpath.join(folder, SKILL_FILE))
        level = below
    return paths
