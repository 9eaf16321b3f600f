"""Notes that are plain files in a session: their statements and notices, and recall of whole files by a light model."""

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from palimpsest.agent.calls import carry_out
from palimpsest.agent.session import Session
from palimpsest.core.errors import PalimpsestError, ProviderError
from palimpsest.core.events import Recalled
from palimpsest.core.items import Text, seq_of
from palimpsest.core.plans import Answer, Want
from palimpsest.core.redaction import redact
from palimpsest.core.tokens import estimate
from palimpsest.memory.jobs import memory_job_names
from palimpsest.memory.recall_prompts import recent_tools
from palimpsest.memory.shown import claude_manifest, pick_notes
from palimpsest.memory.topic_files import INDEX, TopicFile, bounded_index, recalled_text
from palimpsest.memory.topics import TopicFolder
from palimpsest.sources.prompts import KEY, RULES, prompt_text

if TYPE_CHECKING:
    from palimpsest.memory.session_memory import SessionMemory


# A model of each provider that is fit to choose among lines. It chooses if it costs less than the model of the session.
LIGHT_MODELS: Final[Mapping[str, str]] = {"anthropic": "claude-sonnet-4-6", "openai": "gpt-5-mini"}
_RECORDED_QUERY: Final = 500


def choosing_model(memory: "SessionMemory") -> str:
    """Return the name of the model that chooses notes: the one of the settings, else a light one of the provider of the session."""
    session = memory.session
    if memory.config.recall_model:
        return memory.config.recall_model
    light = next((card for card in session.environment.cards if card.name == LIGHT_MODELS.get(session.card.provider)), session.card)
    return light.name if light.prices.input < session.card.prices.input else session.card.name


class FilePrompt:
    """Recalls files of notes for the prompts of one session."""

    def __init__(self, memory: "SessionMemory", topics: TopicFolder) -> None:
        self._memory = memory
        self._session = memory.session
        self._topics = topics
        self._model = choosing_model(memory)

    def prepare(self) -> None:
        """Do nothing: files are read when a prompt asks for them."""

    async def recall(self, text: str) -> Recalled | None:
        """Return what a prompt recalls; `None` if that is nothing, also if the choice fails: the failed call is in the log."""
        offload = self._session.environment.offload
        shown = _shown_before(self._session)
        files = [file for file in await offload(self._topics.files) if _stem(file) not in shown]
        if not files:
            return None
        try:
            chosen = await self._chosen(text, files)
        except PalimpsestError:
            return None
        by_name = {_stem(file): file for file in files}
        now = self._session.environment.clock.now()
        found = [by_name[name] for name in chosen[: self._memory.config.recall_notes]]
        texts = [recalled_text(file, str(self._topics.path / file.name), now) for file in found]
        names = tuple(_stem(file) for file in found)
        parts = tuple(Text(each) for each in texts)
        return Recalled(text[:_RECORDED_QUERY], names, (), parts, sum(map(estimate, texts))) if names else None

    async def _chosen(self, text: str, files: list[TopicFile]) -> tuple[str, ...]:
        """Return the names that the model chose. A light model of ours that the provider does not have gives way for good."""
        steps = self._steps(text, files)
        try:
            return await carry_out(steps, self._session)
        except ProviderError as error:
            if not error.is_refusal or self._memory.config.recall_model or self._model == self._session.card.name:
                raise
            self._model = self._session.card.name
            return await carry_out(self._steps(text, files), self._session)

    def _steps(self, text: str, files: Sequence[TopicFile]) -> Generator[Want, Answer, tuple[str, ...]]:
        names = [_stem(file) for file in files]
        return pick_notes(text, claude_manifest(files), names, recent_tools(self._session.log.view), self._model)


def _shown_before(session: Session) -> frozenset[str]:
    """Return the notes that prompts recalled since the last fold: those whose items are in the view, masked or not."""
    events = dict.fromkeys(seq_of(item.id) for item in session.log.view.items if item.kind == "recalled")
    bodies = (session.log.event(seq).body for seq in events)
    return frozenset(name for body in bodies if isinstance(body, Recalled) for name in body.notes)


def _stem(file: TopicFile) -> str:
    return file.name.removesuffix(".md")


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
    session, config = memory.session, memory.config
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
