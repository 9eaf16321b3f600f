"""Source sets of our own profile and of the profile `classroom`, and the settings that source sets accept."""

import posixpath
from collections.abc import Mapping, Sequence

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.sources.environment import date_source, git_text, mode, permissions, personality, stated_environment
from palimpsest.sources.instructions import config_folder, file_list, folders_of_project, our_files
from palimpsest.sources.progress import agent_types, business_state, deferred_tools, session_start, tasks, todos
from palimpsest.sources.prompts import OUR_FAMILIES, mcp_statement, model_prompt, notes
from palimpsest.sources.skills import Skill, SkillRoot, find_skills, skill_list
from palimpsest.sources.source import Fields, Source, SourceSet, World, given, reminder

_names = msgspec.json.Decoder(list[str])
_QUOTED_CHARS = 40


def name_list(text: str, name: str, default: Sequence[str] = ()) -> tuple[str, ...]:
    """Return a setting that is a list of names: a JSON list, or names with commas between; `default` if it is not set.

    Raises `BadInput` if it begins like a JSON list and is none.
    """
    text = text.strip()
    if not text:
        return tuple(default)
    if not text.startswith("["):
        return tuple(word for part in text.split(",") if (word := part.strip()))
    try:
        return tuple(_names.decode(text))
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadInput(f'{name} is no list of names; write it as ["one", "two"]', where="settings") from error


def number(text: str, name: str) -> int:
    """Return a setting that is a whole number from 0 on. Raises `BadInput` for any other text."""
    digits = text.strip().replace("_", "")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 12):
        raise BadInput(f"{name} is {text[:_QUOTED_CHARS]!r}; give a whole number from 0 on", where="settings")
    return int(digits)


def palimpsest_sources(settings: Mapping[str, str]) -> SourceSet:
    """Return the sources of our profile: what rarely changes stands in the head, what changes stands before the prompt.

    Only the base prompt has the authority of the system; texts from files, git and hooks are stated in the role of the user. The setting
    `PAL_INSTRUCTIONS` is a list of further instruction files, patterns and URLs. Raises `BadInput` if it cannot be read.
    """
    configured = name_list(settings.get("PAL_INSTRUCTIONS", ""), "PAL_INSTRUCTIONS")
    return SourceSet(
        (
            model_prompt("palimpsest", OUR_FAMILIES, bakes_personality=True, agents=True),
            notes("user", frame=reminder),
            stated_environment(),
            permissions(tag=False, role="system"),
            mode(),
            personality(covered_by="base", role="system"),
            file_list(our_files(configured), frame=lambda text: reminder(f"# Instructions\n{text}")),
            skill_list(our_skills, role="user", frame=reminder),
            # Roles can come from files of the project, whose texts are never those of the system.
            agent_types("user"),
            deferred_tools(tag=False),
            mcp_statement(),
            _git(),
            date_source(),
            business_state(),
            tasks(),
            todos(),
            session_start(),
        )
    )


def classroom_sources() -> SourceSet:
    """Return the sources of the smallest design: base prompt and skills in the head; environment, business state and tasks after it."""
    return SourceSet(
        (
            model_prompt("palimpsest", (((), "default"),)),
            skill_list(our_skills, place="head"),
            stated_environment(),
            given("cards", "user", frame=reminder),
            business_state(),
            tasks(),
            todos(),
        )
    )


def our_skills(world: World) -> tuple[Skill, ...]:
    """Return the skills of the user's folders and of the project, of our own and of the shared names."""
    home, config = world.state.home, config_folder(world, ".config/palimpsest")
    own = [posixpath.join(config, "skills")] if config else []
    own += [posixpath.join(home, name, "skills") for name in (".agents", ".claude") if home]
    project = [posixpath.join(folder, name, "skills") for folder in folders_of_project(world) for name in (".agents", ".claude")]
    return find_skills(world, [*(SkillRoot(folder, "user") for folder in own), *(SkillRoot(folder, "repo") for folder in project)])


def _git() -> Source:
    """Return branch, status and commits; a change during an epoch states the branch only, since status changes with every edit."""

    def observed(world: World) -> Fields | None:
        facts = world.git()
        return None if facts is None else {"branch": facts.branch, "git": git_text(facts)}

    def baseline(fields: Fields) -> str:
        return reminder(f"# Git\nThe repository when this was written; run git for its state now.\n{fields['git']}")

    def change(previous: Fields | None, fields: Fields) -> str:
        if previous is not None and previous.get("branch") == fields["branch"]:
            return ""
        return reminder(f"# Git\nThe branch is now {fields['branch'] or '(detached)'}.")

    return Source("git_status", observed, baseline, change)
