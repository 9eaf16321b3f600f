"""The sources of Codex, as documented and as measured in 0.166."""

import posixpath
from collections.abc import Mapping
from typing import Final

from palimpsest.core.format.tags import within
from palimpsest.sources.environment import codex_environment
from palimpsest.sources.instructions.files import FILE_BYTES, MARKERS, config_folder, folders_of_project
from palimpsest.sources.instructions.statements import agents_md
from palimpsest.sources.model_prompt import CODEX_FAMILIES, model_prompt
from palimpsest.sources.modes import codex_mode, permissions, personality, realtime
from palimpsest.sources.notes import notes
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
            realtime(),
            personality(covered_by="base"),
            given("apps", "developer", frame=lambda text: within("apps_instructions", text.strip())),
            codex_catalogue(codex_skills),
            given("plugins", "developer", frame=lambda text: within("plugins_instructions", text.strip())),
            given("attribution", "developer"),
            _instructions(settings, states_changes=False),
            codex_environment(),
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
            realtime(),
            codex_mode(),
            given("apps", "developer", frame=lambda text: within("apps_instructions", text.strip())),
            given("plugins", "developer", frame=lambda text: within("plugins_instructions", text.strip())),
            given("attribution", "developer"),
            _instructions(settings, states_changes=True),
            codex_environment(filesystem=True),
        ),
        renews_head=False,
    )


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


def _developer(settings: Mapping[str, str]) -> Source:
    """Return the configured developer instructions: those that the engine gives, else the setting."""
    configured = settings.get("developer_instructions", "").strip()
    if not configured:
        return given("developer", "developer")
    return Source("developer", lambda _: {"text": configured}, lambda fields: fields["text"], role="developer")


def _instructions(settings: Mapping[str, str], *, states_changes: bool) -> Source:
    limit = settings.get("project_doc_max_bytes", "").strip()
    return agents_md(
        limit=number(limit, "project_doc_max_bytes") if limit else FILE_BYTES,
        fallbacks=name_list(settings.get("project_doc_fallback_filenames", ""), "project_doc_fallback_filenames"),
        markers=name_list(settings.get("project_root_markers", ""), "project_root_markers", MARKERS),
        states_changes=states_changes,
    )
