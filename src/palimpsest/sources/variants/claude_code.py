"""The sources of Claude Code, as documented and as measured in 2.1.325."""

import posixpath
from collections.abc import Mapping

from palimpsest.core.items import EMPTY_MAPPING
from palimpsest.sources.environment import claude_environment, date_source, git_text, model_statement, stated_environment
from palimpsest.sources.instructions.files import config_folder, folders_of_project
from palimpsest.sources.instructions.statements import claude_files, file_list
from palimpsest.sources.mcp import mcp_in_head
from palimpsest.sources.model_prompt import fixed, model_prompt, prompt_text
from palimpsest.sources.modes import mode
from palimpsest.sources.notes import KEY, RULES
from palimpsest.sources.progress import agent_types, session_start, tokens_left, work_state
from palimpsest.sources.skills.catalogue import skill_list
from palimpsest.sources.skills.files import Skill, SkillRoot, find_skills
from palimpsest.sources.source import Fields, Source, SourceSet, World, differing, given, reminder
from palimpsest.sources.tools import deferred_tools
from palimpsest.sources.variants.claude_settings import language, output_style, scratchpad, session_guidance

_PLAN = "Hand the plan over with `exit_plan_mode`, which keeps it in a file, and end your turn."
_MEMORY_NAME = "the index of your notes"
_REMARK = "This context may or may not matter for the task; do not mention it unless it does."


def claude_code_sources(settings: Mapping[str, str] = EMPTY_MAPPING) -> SourceSet:
    """Return the documented sources: the system prompt with environment and git status, then instructions and date in one reminder.

    Raises `BadInput` for a setting that cannot mean anything.
    """
    return SourceSet(
        (
            fixed("version", lambda world: world.state.texts.get("version", "")),
            fixed("identity", lambda _: prompt_text("claude/identity")),
            model_prompt("claude", (((), "main"),), slots=(RULES,)),
            session_guidance(),
            claude_environment(),
            language(settings),
            output_style(settings),
            mcp_in_head(lambda name, text: f"## {name}\n{text}", "# MCP servers"),
            scratchpad(),
            _git_in_head(),
            deferred_tools(tag=True),
            _instructions_and_date(),
            session_start(),
            mode("user", plan=_PLAN),
            *work_state(),
        ),
        renews_head=False,
    )


def claude_code_2_1_325_sources(settings: Mapping[str, str] = EMPTY_MAPPING) -> SourceSet:
    """Return the measured sources: three system blocks, then each statement on its own in a fixed order, stated again after a fold.

    What settings of the user add follows the three blocks. Raises `BadInput` for a setting that cannot mean anything.
    """
    return SourceSet(
        (
            fixed("version", lambda world: world.state.texts.get("version", "")),
            fixed("identity", lambda _: prompt_text("claude/identity")),
            model_prompt("claude", (((), "main"),), slots=(RULES,)),
            language(settings),
            output_style(settings),
            scratchpad(),
            stated_environment(),
            model_statement(),
            deferred_tools(tag=False, role="system"),
            agent_types(),
            skill_list(claude_skills),
            tokens_left(),
            _instructions(),
            _git(),
            date_source(),
            given("attribution", frame=reminder),
            session_start(),
            mode(plan=_PLAN),
            *work_state(),
        ),
        after_fold=(
            "deferred_tools",
            "agents",
            "skills",
            "environment",
            "model",
            "total_tokens",
            "instructions",
            "session_context",
            "date",
            "attribution",
        ),
        renews_head=False,
    )


def claude_skills(world: World) -> tuple[Skill, ...]:
    """Return the skills of the user's folder and of `.claude` in each folder from the project root down."""
    config = config_folder(world, ".claude")
    roots = [SkillRoot(posixpath.join(config, "skills"), "user")] if config else []
    roots += [SkillRoot(posixpath.join(folder, ".claude/skills"), "repo") for folder in folders_of_project(world)]
    return find_skills(world, roots)


def _memory(world: World) -> Fields:
    """Return the index of the notes as a field beside the instruction files; nothing if there is none."""
    text = world.state.texts.get(KEY, "").strip()
    return {_MEMORY_NAME: text} if text else {}


def _instructions_and_date() -> Source:
    """Return instruction files with the index of the notes, and the date, as one reminder; a new date alone is stated in one line."""
    files = file_list(claude_files)

    def observed(world: World) -> Fields:
        instructions = files.observe(world)
        stated = files.baseline(instructions) if instructions else ""
        return {"claudeMd": stated, **_memory(world), "currentDate": f"Today's date is {world.today()}."}

    def baseline(fields: Fields) -> str:
        index = fields.get(_MEMORY_NAME, "")
        texts = {"claudeMd": "\n\n".join(filter(None, (fields["claudeMd"], index))), "currentDate": fields["currentDate"]}
        sections = [f"# {name}\n{text}" for name, text in texts.items() if text]
        return reminder("\n".join((*sections, "", _REMARK)))

    def change(previous: Fields | None, fields: Fields) -> str:
        changed = (fields.keys() if previous is None else differing(previous, fields)) - {_MEMORY_NAME}
        sections = [f"# {name}\n{text or 'There are no instruction files any more.'}" for name, text in fields.items() if name in changed]
        return reminder("\n".join(("This has changed and replaces what was stated before:", *sections))) if sections else ""

    return Source("instructions", observed, baseline, change)


def _instructions() -> Source:
    """Return instruction files and behind them the index of the notes, as one reminder; a change of the index is not stated."""
    files = file_list(claude_files, frame=lambda text: reminder(f"# Instructions\n{text}\n\n{_REMARK}"))

    def observed(world: World) -> Fields | None:
        return {**(files.observe(world) or {}), **_memory(world)} or None

    def change(previous: Fields | None, fields: Fields) -> str:
        if previous is None:
            return files.baseline(fields)
        return files.update(_without_memory(previous), _without_memory(fields))

    return Source("instructions", observed, files.baseline, change, removal=files.removal)


def _without_memory(fields: Fields) -> Fields:
    """Return the fields without the index: the model knows what it wrote itself, and a later conversation reads it again."""
    return {name: text for name, text in fields.items() if name != _MEMORY_NAME}


def _git_in_head() -> Source:
    def baseline(fields: Fields) -> str:
        return f"gitStatus: the state of the repository at the start of the session. It is a snapshot and does not update.\n{fields['git']}"

    # It is a snapshot: what git says later is seen by running git.
    return Source("git_status", _git_fields, baseline, lambda _, __: "", role="system", place="head")


def _git() -> Source:
    def baseline(fields: Fields) -> str:
        return reminder(f"# gitStatus\nA snapshot of the repository that does not update during the conversation.\n{fields['git']}")

    return Source("session_context", _git_fields, baseline, lambda _, __: "")


def _git_fields(world: World) -> Fields | None:
    facts = world.git()
    return None if facts is None else {"git": git_text(facts)}
