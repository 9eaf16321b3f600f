"""The sources of Codex, as documented and as measured in 0.166."""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from palimpsest.core.format.tags import attribute, within
from palimpsest.core.items import Image, Part, Text
from palimpsest.sources.environment import codex_environment
from palimpsest.sources.instructions.files import FILE_BYTES, MARKERS, config_folder, folders_of_project
from palimpsest.sources.instructions.statements import agents_md
from palimpsest.sources.model_prompt import CODEX_FAMILIES, model_prompt
from palimpsest.sources.modes import codex_mode, permissions, personality, realtime
from palimpsest.sources.notes import notes
from palimpsest.sources.progress import work_state
from palimpsest.sources.skills.catalogue import codex_catalogue
from palimpsest.sources.skills.files import Skill, SkillRoot, find_skills
from palimpsest.sources.source import Source, SourceSet, World, given
from palimpsest.sources.variants.settings import name_list, number

USER_ONLY: Final = frozenset({"project_root_markers"})
"""Settings that a project cannot change: the markers decide which folders belong to it."""


def codex_settings(user: Mapping[str, str], project: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the user with those of the project over them, without the ones that only the user may set."""
    return {**user, **{name: value for name, value in project.items() if name not in USER_ONLY}}


def codex_sources(settings: Mapping[str, str]) -> SourceSet:
    """Return the documented sources: base instructions in the head, one developer message, then instructions and environment.

    Raises `BadInput` for a setting that cannot be read.
    """
    return SourceSet(
        (
            model_prompt("codex", CODEX_FAMILIES, bakes_personality=True),
            permissions(tag=True),
            _developer(settings),
            notes("developer", states_changes=False),
            codex_mode(),
            _voice(settings),
            personality(covered_by="base"),
            _section("apps", settings),
            codex_catalogue(codex_skills),
            _section("plugins", settings),
            _attribution(settings),
            _instructions(settings, states_changes=False),
            codex_environment(),
            *work_state("developer"),
        ),
        renews_head=False,
    )


def codex_0_166_sources(settings: Mapping[str, str]) -> SourceSet:
    """Return the measured sources: after the base instructions memory, skills and permissions, then the other sections.

    Raises `BadInput` for a setting that cannot be read.
    """
    budget = settings.get("skills.max_context_tokens", "").strip()
    return SourceSet(
        (
            model_prompt("codex", CODEX_FAMILIES, bakes_personality=True),
            notes("developer", states_changes=False),
            codex_catalogue(codex_skills, bounded=True, most_tokens=number(budget, "skills.max_context_tokens") if budget else None),
            permissions(tag=True),
            _developer(settings),
            personality(covered_by="base"),
            _voice(settings),
            codex_mode(),
            _section("apps", settings),
            _section("plugins", settings),
            _attribution(settings),
            _instructions(settings, states_changes=True),
            codex_environment(filesystem=True),
            *work_state("developer"),
        ),
        renews_head=False,
    )


def framed_images(parts: tuple[Part, ...], *, documented: bool = False) -> tuple[Part, ...]:
    """Return what the user says with a tag round each image; a local one is numbered, as documented in quotes, else with its path."""
    framed: list[Part] = []
    images = 0
    for part in parts:
        if not isinstance(part, Image):
            framed.append(part)
            continue
        images += 1
        number = f'"[Image #{images}]"' if documented else f"[Image #{images}]"
        path = attribute("path", part.name) if part.name and not documented else ""
        opening = f"<image name={number}{path}>" if part.blob else "<image>"
        framed += (Text(opening, attached=True), part, Text("</image>", attached=True))
    return tuple(framed)


def codex_skills(world: World) -> tuple[Skill, ...]:
    """Return the skills that Codex finds; those of its memory folder are not among them."""
    home, config = world.state.home, config_folder(world, ".codex")
    own = (SkillRoot(posixpath.join(config, "skills"), "user"),) if config else ()
    shared = (SkillRoot(posixpath.join(home, ".agents/skills"), "user"),) if home else ()
    system = (SkillRoot(posixpath.join(config, "skills/.system"), "system"),) if config else ()
    folders = folders_of_project(world)
    roots = (
        SkillRoot(posixpath.join(folders[0], ".codex/skills"), "repo"),
        *own,
        *shared,
        *system,
        *(SkillRoot(posixpath.join(folder, ".agents/skills"), "repo") for folder in folders),
    )
    memory = posixpath.join(config, "memories") + "/" if config else ""
    return tuple(skill for skill in find_skills(world, roots) if not memory or not _real(world, skill).startswith(memory))


def _real(world: World, skill: Skill) -> str:
    return world.real_path(skill.path) or skill.path


def _attribution(settings: Mapping[str, str]) -> Source:
    name = settings.get("commit_attribution", "").strip()
    return _configured(
        "attribution", f"End the message of each commit that you make with the trailer `Co-authored-by: {name}`." if name else ""
    )


def _voice(settings: Mapping[str, str]) -> Source:
    found, text = realtime(), settings.get("realtime", "").strip()
    return replace(found, observe=lambda _: {"text": text}) if text else found


def _section(key: str, settings: Mapping[str, str]) -> Source:
    """Return a section about what is connected: the text of the setting of that name, else what the engine gives."""
    return _configured(key, settings.get(key, "").strip(), lambda text: within(f"{key}_instructions", text.strip()))


def _configured(key: str, text: str, frame: Callable[[str], str] = str.strip) -> Source:
    """Return a source of the developer that states a configured text, or without one what the engine gives."""
    found = given(key, "developer", frame=frame)
    return replace(found, observe=lambda _: {"text": text}) if text else found


def _developer(settings: Mapping[str, str]) -> Source:
    """Return the configured developer instructions: those that the engine gives, else the setting."""
    return _configured("developer", settings.get("developer_instructions", "").strip())


def _instructions(settings: Mapping[str, str], *, states_changes: bool) -> Source:
    limit = settings.get("project_doc_max_bytes", "").strip()
    return agents_md(
        limit=number(limit, "project_doc_max_bytes") if limit else FILE_BYTES,
        fallbacks=name_list(settings.get("project_doc_fallback_filenames", ""), "project_doc_fallback_filenames"),
        markers=name_list(settings.get("project_root_markers", ""), "project_root_markers", MARKERS),
        states_changes=states_changes,
    )
