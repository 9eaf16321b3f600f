"""Skills: finds their files, lists them in a catalogue within a budget, and states the bodies that the user mentions."""

import posixpath
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from palimpsest.core.events import ContextStated, Statement
from palimpsest.core.front_matter import read_front_matter
from palimpsest.core.items import Role, Value
from palimpsest.core.text import lazy_pattern, within, without_tags
from palimpsest.sources.instructions import allowed_folders, is_within
from palimpsest.sources.prompts import prompt_text
from palimpsest.sources.source import Fields, Place, Source, World, differing

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


UNKNOWN_WINDOW_CHARS: Final = 8_000
HIGHEST_BUDGET: Final = 10_000
"""Most tokens of the catalogue that a setting can allow."""

_SCOPES: Final = ("system", "admin", "repo", "user")


def in_catalogue_order(skills: Sequence[Skill]) -> tuple[Skill, ...]:
    """Return skills in the order system, admin, repo, user, and then by name."""
    return tuple(sorted(skills, key=lambda skill: (_SCOPES.index(skill.scope), skill.name, skill.path)))


def catalogue_budget(window: int, most_tokens: int | None = None) -> int:
    """Return the bytes of the catalogue: 2 % of the window at 4 bytes a token, 8,000 if the window is unknown."""
    if most_tokens is not None:
        return 4 * min(most_tokens, HIGHEST_BUDGET)
    return 4 * (window * 2 // 100) if window else UNKNOWN_WINDOW_CHARS


def codex_line(skill: Skill, description: str) -> str:
    """Return the line of a skill as Codex writes it."""
    return f"- {skill.name}: {description} (file: {skill.path})"


def fitted_lines(skills: Sequence[Skill], budget: int | None, line: Callable[[Skill, str], str] = codex_line) -> tuple[list[str], int]:
    """Return the lines of skills within `budget` bytes, and how many were left out.

    Over the budget, descriptions are shortened to one common length, so that each keeps as much as the others; if that is not enough, the
    last skills are left out.
    """
    whole = [line(skill, skill.description) for skill in skills]
    if budget is None or _bytes(whole) <= budget:
        return whole, 0
    low, high = 0, max((len(skill.description) for skill in skills), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if _bytes([line(skill, skill.description[:middle]) for skill in skills]) <= budget:
            low = middle
        else:
            high = middle - 1
    lines = [line(skill, skill.description[:low].rstrip()) for skill in skills]
    while lines and _bytes(lines) > budget:
        lines.pop()
    return lines, len(skills) - len(lines)


def _bytes(lines: Sequence[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def codex_catalogue(find: Callable[[World], Sequence[Skill]], *, bounded: bool = False, most_tokens: int | None = None) -> Source:
    """Return Codex's catalogue with its rules of use.

    bounded: as 0.166, within 2 % of the window, and with statements of a changed or empty catalogue.
    """

    def observed(world: World) -> Fields | None:
        skills = in_catalogue_order(find(world))
        lines, left_out = fitted_lines(skills, catalogue_budget(world.state.window, most_tokens) if bounded else None)
        if left_out:
            lines.append(f"- [{left_out} more skills did not fit]")
        return {"skills": "\n".join(lines)} if lines else None

    def baseline(fields: Fields) -> str:
        return within("skills_instructions", prompt_text("skills", skills=fields["skills"]))

    def change(_: Fields | None, fields: Fields) -> str:
        return f"The skills have changed; this list replaces the earlier one.\n{baseline(fields)}" if bounded else ""

    removal = "<skills_instructions>\nNo skills are available any more.\n</skills_instructions>"
    return Source("skills", observed, baseline, change, role="developer", removal=removal if bounded else "")


def skill_list(
    find: Callable[[World], Sequence[Skill]],
    *,
    role: Role = "system",
    place: Place = "start",
    frame: Callable[[str], str] = str.strip,
    bounded: bool = True,
) -> Source:
    """Return a list of skills, one line each with name and description; a change states those that came, changed or went.

    The names of loaded skills are stated with it, so that they are known after a fold. Skills without a description are not listed.
    """

    def observed(world: World) -> Fields | None:
        named = {skill.name: skill for skill in find(world)}
        skills = sorted((skill for skill in named.values() if skill.description), key=lambda skill: skill.name)
        lines, left_out = fitted_lines(
            skills, catalogue_budget(world.state.window) if bounded else None, lambda skill, text: f"{skill.name}: {text}"
        )
        fields = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines}
        if left_out:
            fields[" more"] = str(left_out)
        return fields or None

    def baseline(fields: Fields) -> str:
        opening = "Skills: instructions for a kind of work. Load the body of one with the skill tool when the work fits its description."
        return frame("\n".join((opening, *_lines(fields, frozenset(fields)))))

    def change(previous: Fields | None, fields: Fields) -> str:
        if previous is None:
            return baseline(fields)
        changed = differing(previous, fields)
        lines = _lines(fields, changed)
        lines += [f"- {name}: no longer available" for name in previous if name not in fields and not name.startswith(" ")]
        return frame("\n".join(("The skills have changed:", *lines))) if lines else ""

    return Source("skills", observed, baseline, change, role=role, place=place, removal=frame("No skills are available any more."))


def _lines(fields: Fields, wanted: frozenset[str]) -> list[str]:
    lines = [f"- {name}: {text}" for name, text in fields.items() if name in wanted and not name.startswith(" ")]
    return lines + ([f"[{fields[' more']} more skills did not fit]"] if " more" in wanted and " more" in fields else [])


def opencode_list(find: Callable[[World], Sequence[Skill]]) -> Source:
    """Return OpenCode's `<available_skills>`, sorted by name, in the head."""

    def frame(text: str) -> str:
        return within("available_skills", text)

    return skill_list(find, place="head", frame=frame, bounded=False)


IGNORED: Final = frozenset({"PATH", "HOME", "USER", "SHELL", "PWD", "TMPDIR", "TEMP", "TMP", "LANG", "TERM", "XDG_CONFIG_HOME"})
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


def mentioned_skills(mentions: Mentions, skills: Sequence[Skill]) -> tuple[Skill, ...]:
    """Return the mentioned skills in catalogue order, each once.

    A path counts if it is exactly that of a skill. A plain name counts if exactly one skill has it.
    """
    by_path = {skill.path: skill for skill in skills}
    wanted = {path for path in mentions.paths if path in by_path}
    for name in mentions.names:
        same = [skill for skill in skills if skill.name == name]
        if len(same) == 1:
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
