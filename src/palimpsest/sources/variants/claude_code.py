"""The sources of Claude Code, as documented and as measured in 2.1.325."""

import posixpath

from palimpsest.sources.environment import claude_environment, date_source, git_text, model_statement, stated_environment
from palimpsest.sources.instructions.files import config_folder, folders_of_project
from palimpsest.sources.instructions.statements import claude_files, file_list
from palimpsest.sources.mcp import mcp_in_head
from palimpsest.sources.model_prompt import fixed, model_prompt, prompt_text
from palimpsest.sources.modes import mode
from palimpsest.sources.notes import notes
from palimpsest.sources.progress import agent_types, session_start, tokens_left
from palimpsest.sources.skills.catalogue import skill_list
from palimpsest.sources.skills.files import Skill, SkillRoot, find_skills
from palimpsest.sources.source import Fields, Source, SourceSet, World, differing, given, reminder
from palimpsest.sources.tools import deferred_tools

_MEMORY_CHARS = 25_000
_REMARK = "This context may or may not matter for the task; do not mention it unless it does."


def claude_code_sources() -> SourceSet:
    """Return the documented sources: the system prompt with environment and git status, then instructions and date in one reminder."""
    return SourceSet(
        (
            fixed("version", lambda world: world.state.texts.get("version", "")),
            fixed("identity", lambda _: prompt_text("claude/identity")),
            model_prompt("claude", (((), "main"),)),
            notes("system", "head", states_changes=False),
            claude_environment(),
            given("output_style", "system", "head"),
            mcp_in_head(lambda name, text: f"## {name}\n{text}", "# MCP servers"),
            _git_in_head(),
            deferred_tools(tag=True),
            _instructions_and_date(),
            session_start(),
            mode("user"),
        ),
        renews_head=False,
    )


def claude_code_2_1_325_sources() -> SourceSet:
    """Return the measured sources: three system blocks, then each statement on its own in a fixed order, stated again after a fold."""
    return SourceSet(
        (
            fixed("version", lambda world: world.state.texts.get("version", "")),
            fixed("identity", lambda _: prompt_text("claude/identity")),
            model_prompt("claude", (((), "main"),)),
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
            mode(),
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


def _memory(world: World) -> str:
    return world.state.texts.get("memory", "").strip()[:_MEMORY_CHARS]


def _instructions_and_date() -> Source:
    """Return instruction files and date as one reminder; a new date alone is stated in one line."""
    files = file_list(claude_files)

    def observed(world: World) -> Fields:
        instructions = files.observe(world)
        return {"claudeMd": files.baseline(instructions) if instructions else "", "currentDate": f"Today's date is {world.today()}."}

    def baseline(fields: Fields) -> str:
        sections = [f"# {name}\n{text}" for name, text in fields.items() if text]
        return reminder("\n".join((*sections, "", _REMARK)))

    def change(previous: Fields | None, fields: Fields) -> str:
        changed = fields.keys() if previous is None else differing(previous, fields)
        sections = [f"# {name}\n{text or 'There are no instruction files any more.'}" for name, text in fields.items() if name in changed]
        return reminder("\n".join(("This has changed and replaces what was stated before:", *sections)))

    return Source("instructions", observed, baseline, change)


def _instructions() -> Source:
    """Return instruction files and behind them the index of the notes, as one reminder."""
    files = file_list(claude_files, frame=lambda text: reminder(f"# Instructions\n{text}\n\n{_REMARK}"))

    def observed(world: World) -> Fields | None:
        memory = _memory(world)
        return {**(files.observe(world) or {}), **({"the index of your notes": memory} if memory else {})} or None

    return Source("instructions", observed, files.baseline, files.change, removal=files.removal)


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
