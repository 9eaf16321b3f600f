"""What a session states of notes that are plain files, and what it says to the user at its start."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from palimpsest.core.redaction import redact
from palimpsest.engine.memory.jobs import memory_job_names
from palimpsest.engine.memory.recall.file_prompt import choosing_model
from palimpsest.engine.memory.topics.folder import TopicFolder
from palimpsest.memory.topic_files import INDEX, bounded_index
from palimpsest.sources.model_prompt import prompt_text
from palimpsest.sources.notes import KEY, RULES

if TYPE_CHECKING:
    from palimpsest.engine.memory.session_memory import SessionMemory

_ASKING: Final = ("extract_notes", "running_notes")


def file_texts(topics: TopicFolder) -> Mapping[str, str]:
    """Return the texts of the sources of notes: how to use them, and their index as far as it is loaded."""
    index = bounded_index(redact(topics.index()))
    rules = prompt_text("claude/memory", folder=str(topics.path))
    listed = f"Contents of {topics.path / INDEX} (the user's own memory, kept across conversations):\n\n{index}"
    return {RULES: rules, **({KEY: listed} if index else {})}


def file_notices(memory: "SessionMemory") -> tuple[str, ...]:
    """Return what the user should know: that notes cannot be used, a setting without effect, and what is asked of a model."""
    found = [memory.problem] if memory.problem else []
    session, config = memory.agent.session, memory.config
    if memory.topics is not None and config.tool:
        found.append(f"memory.tool has no effect under {session.profile.program}: its notes are files in {memory.topics.path}")
    jobs = [name for name in memory_job_names(config, session.profile) if name in _ASKING]
    if jobs and config.jobs == "auto":
        most = f"{config.day_tokens_read:,} tokens read and {config.day_tokens_written:,} written a day"
        found.append(
            f"memory asks a model after responses ({', '.join(jobs)}), at most {most}; the end of `pal -p` waits for it up to "
            f'{config.end_seconds:g} s; memory.jobs = "off" turns it off'
        )
    if memory.topics is not None and session.profile.notes.recall == "model" and config.recall_notes and memory.topics.files():
        found.append(f"prompts recall notes by asking {choosing_model(memory)} (memory.recall_model; memory.recall_notes = 0: none)")
    return tuple(found)
