"""The catalogue of skills: name and description of each, within a budget; bodies are never part of it."""

from collections.abc import Callable, Sequence
from typing import Final

from palimpsest.core.format.tags import within
from palimpsest.core.items import Role
from palimpsest.sources.model_prompt import prompt_text
from palimpsest.sources.skills.files import Skill
from palimpsest.sources.source import Fields, Place, Source, World, differing

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
        if fields and world.state.loaded_skills:
            fields[" loaded"] = ", ".join(world.state.loaded_skills)
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
    lines += [f"[{fields[' more']} more skills did not fit]"] if " more" in wanted and " more" in fields else []
    return lines + ([f"Loaded in this session: {fields[' loaded']}"] if " loaded" in wanted and " loaded" in fields else [])


def opencode_list(find: Callable[[World], Sequence[Skill]]) -> Source:
    """Return OpenCode's `<available_skills>`, sorted by name, in the head."""

    def frame(text: str) -> str:
        return within("available_skills", text)

    return skill_list(find, place="head", frame=frame, bounded=False)
