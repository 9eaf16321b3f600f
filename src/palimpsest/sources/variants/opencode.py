"""The sources of OpenCode, as documented and as measured in 1.18: all of them stand in the head."""

import posixpath
from collections.abc import Mapping, Sequence
from typing import Final

from palimpsest.core.format.tags import attribute, without_tags
from palimpsest.sources.environment import opencode_environment
from palimpsest.sources.instructions.files import config_folder, folders_of_project
from palimpsest.sources.instructions.statements import file_list, opencode_files
from palimpsest.sources.mcp import mcp_in_head
from palimpsest.sources.model_prompt import OPENCODE_1_18_FAMILIES, OPENCODE_FAMILIES, Families, model_prompt
from palimpsest.sources.progress import work_state
from palimpsest.sources.skills.catalogue import opencode_list
from palimpsest.sources.skills.files import Skill, SkillRoot, find_skills
from palimpsest.sources.source import Fields, Source, SourceSet, World, given
from palimpsest.sources.variants.settings import name_list

_REFERENCE_TAGS: Final = ("reference", "available_references", "name", "path", "description")
_OFF: Final = frozenset({"", "0", "false", "no", "off"})


def opencode_sources(settings: Mapping[str, str]) -> SourceSet:
    """Return the documented sources: base prompt, environment, instruction files, and the text of the last message's `system`."""
    return SourceSet(
        (_base(OPENCODE_FAMILIES), opencode_environment(), _instructions(settings, global_first=False), _system(), *work_state())
    )


def opencode_1_18_sources(settings: Mapping[str, str]) -> SourceSet:
    """Return the measured sources: also references, instructions of MCP servers, and the list of skills."""
    return SourceSet(
        (
            _base(OPENCODE_1_18_FAMILIES),
            opencode_environment(workspace_root=True),
            _references(),
            _instructions(settings, global_first=True),
            _mcp(),
            opencode_list(opencode_skills),
            _system(),
            *work_state(),
        )
    )


def opencode_skills(world: World) -> tuple[Skill, ...]:
    """Return the skills of `.claude` and `.agents` of the user and of each folder up to the project root, and of the config folder.

    A skill without a description can be loaded and is not listed.
    """
    return find_skills(world, _skill_roots(world, (".claude", ".agents")), needs_description=False)


def opencode_documented_skills(world: World) -> tuple[Skill, ...]:
    """Return the skills of `.claude` of the user and of each folder up to the project root, and of the config folder."""
    return find_skills(world, _skill_roots(world, (".claude",)))


def _skill_roots(world: World, names: Sequence[str]) -> list[SkillRoot]:
    home, config = world.state.home, config_folder(world, ".config/opencode")
    roots = [SkillRoot(posixpath.join(home, name, "skills"), "user") for name in names if home]
    roots += [SkillRoot(posixpath.join(folder, name, "skills"), "repo") for folder in folders_of_project(world) for name in names]
    return roots + [SkillRoot(posixpath.join(config, name), "user") for name in ("skill", "skills") if config]


def _base(families: Families) -> Source:
    return model_prompt("opencode", families, agents=True)


def _instructions(settings: Mapping[str, str], *, global_first: bool) -> Source:
    find = opencode_files(
        global_first=global_first,
        configured=name_list(settings.get("instructions", ""), "instructions"),
        project=settings.get("OPENCODE_DISABLE_PROJECT_CONFIG", "").strip().lower() in _OFF,
        claude=settings.get("OPENCODE_DISABLE_CLAUDE_CODE_PROMPT", "").strip().lower() in _OFF,
        # 1.18 no longer looks into the custom folder.
        custom_config="" if global_first else settings.get("OPENCODE_CONFIG_DIR", "").strip(),
    )
    return file_list(find, role="system", place="head")


def _system() -> Source:
    return given("system", "system", "head")


def _references() -> Source:
    def observed(world: World) -> Fields | None:
        return {name: f"{path}\n{text}" for name, (path, text) in sorted(world.state.references.items())} or None

    def baseline(fields: Fields) -> str:
        rows = []
        for name, value in fields.items():
            path, _, text = value.partition("\n")
            values = (("name", name), ("path", path), ("description", text))
            elements = [f"<{tag}>{without_tags(value, *_REFERENCE_TAGS)}</{tag}>" for tag, value in values]
            rows.append("\n".join(("  <reference>", *(f"    {element}" for element in elements), "  </reference>")))
        return "\n".join(("<available_references>", *rows, "</available_references>"))

    return Source("references", observed, baseline, role="system", place="head", removal="There are no references any more.")


def _mcp() -> Source:
    def block(name: str, text: str) -> str:
        return f"  <server{attribute('name', name)}>\n{without_tags(text, 'server', 'mcp_instructions')}\n  </server>"

    return mcp_in_head(block, "<mcp_instructions>", "</mcp_instructions>")
