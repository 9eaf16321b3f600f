"""Hooks that other agents run: the answer to each, within bounds of time and size."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from pal.plugin.bounds import HOOK_BYTES
from palimpsest.core.text import without_own_voice
from palimpsest.stores.files import FileDocument
from palimpsest.stores.home import FolderHome
from palimpsest.stores.memory_config import MemoryConfig

Agent: TypeAlias = Literal["claude", "codex", "opencode"]
AGENTS: Final = ("claude", "codex", "opencode")
# Characters that Claude Code and Codex take from one hook; more becomes a file of which the model sees a preview.
LIMIT: Final = 10_000
# Bytes of the input that are read; a pasted prompt may be long.
MOST_INPUT: Final = 16 * 1024 * 1024
_BEFORE_COMPACTION: Final = (
    "After this summary a program adds, from the transcript: the newest messages of the user verbatim, the paths that were edited and "
    "read, the commands with their exit codes, the last test run, open errors and open tasks. Use the summary for what no program can "
    "list: what was decided and why, what was learned, and what comes next.\n"
)


class HookInput(Struct, frozen=True):
    """The fields of a hook's input that we use; each may be missing, and all others are ignored.

    `before` is of our own plugin for OpenCode: the id of the message that asked for the summary.
    """

    session_id: str = ""
    transcript_path: str | None = None
    cwd: str = ""
    hook_event_name: str = ""
    source: str = ""
    prompt: str = ""
    before: str = ""


class HookAnswer(Struct, frozen=True):
    """What a hook prints, and what is to be done in the background: nothing, reading the transcript, or importing it as well."""

    text: str = ""
    background: Literal["", "read", "import"] = ""


def hook_input(data: bytes) -> HookInput | None:
    """Return the input of a hook; `None` if it is no object of the expected shape."""
    try:
        return msgspec.json.decode(data, type=HookInput)
    except (msgspec.DecodeError, UnicodeError):
        return None


def answer(
    given: HookInput, home: FolderHome, agent: Agent, memory: Callable[[], MemoryConfig], limit: int = LIMIT, *, most: int = HOOK_BYTES
) -> HookAnswer:
    """Return the answer of a hook; no answer blocks anything. `memory` reads the settings of memory, if they are needed.

    At most `most` bytes of a transcript are read.
    Raises `PalimpsestError` or `OSError` if files cannot be read; then there is nothing to say.
    """
    match given.hook_event_name:
        case "SessionStart" if is_after_compaction(given):
            _reset_shown(given, home)
            return HookAnswer(_evidence(given, home, agent, limit, most))
        case "SessionStart":
            _reset_shown(given, home)
            return HookAnswer(_notes(given, home, memory, limit), "read" if given.source == "resume" else "")
        case "UserPromptSubmit":
            return HookAnswer(_recalled(given, home, memory, limit))
        case "PreCompact":
            # Codex does not read what this hook prints.
            return HookAnswer(_BEFORE_COMPACTION if agent == "claude" else "", "import")
        case "Stop":
            return HookAnswer(background="read")
        case "SessionEnd":
            return HookAnswer(background="import")
        case _:
            return HookAnswer()


def is_after_compaction(given: HookInput) -> bool:
    """Whether the hook runs because a conversation was just compacted."""
    return given.hook_event_name == "SessionStart" and given.source == "compact"


def transcript_of(given: HookInput) -> Path | None:
    """Return the transcript that the input names; `None` if it names none that is a file."""
    path = Path(given.transcript_path or "")
    return path if given.transcript_path and path.is_absolute() and path.is_file() else None


def _evidence(given: HookInput, home: FolderHome, agent: Agent, limit: int, most: int) -> str:
    path = transcript_of(given)
    if path is None:
        return ""
    # Only this hook reads transcripts.
    from pal.plugin.evidence import digest_slot, evidence_text, newest, session_digest
    from palimpsest.exchange.importing import session_id

    in_database = agent == "opencode"
    digest = session_digest(path, given.session_id, given.before) if in_database else newest(digest_slot(home.folder, path), path, most)
    session = session_id(agent, given.session_id or path.stem)
    return _fitting("SessionStart", lambda room: evidence_text(digest, room, session), limit)


def _notes(given: HookInput, home: FolderHome, memory: Callable[[], MemoryConfig], limit: int) -> str:
    root = _root_with_notes(given, home)
    if root is None:
        return ""
    # A home without notes loads none of it.
    from pal.plugin.evidence import notes_at_start
    from palimpsest.memory.session_memory import project_memory

    opened = project_memory(home, root, memory())
    return "" if opened is None else _fitting("SessionStart", lambda room: notes_at_start(opened, room), limit)


def _recalled(given: HookInput, home: FolderHome, memory: Callable[[], MemoryConfig], limit: int) -> str:
    root = _root_with_notes(given, home)
    if root is None or not given.prompt.strip():
        return ""
    # As above.
    from pal.plugin.evidence import notes_for_prompt
    from palimpsest.memory.session_memory import project_memory

    opened = project_memory(home, root, memory())
    if opened is None:
        return ""
    said = notes_for_prompt(opened, given.prompt, FileDocument(shown_file(home.folder, given.session_id)), limit * 4 // 5)
    return _fitting("UserPromptSubmit", lambda room: said if len(said) <= room else "", limit)


def _root_with_notes(given: HookInput, home: FolderHome) -> Path | None:
    """Return the folder of the project if there may be notes for it; told without importing what reads them."""
    root = Path(given.cwd or ".")
    has_notes = (home.folder / "memory").is_dir() or (root / ".palimpsest" / "memory").is_dir()
    return root if has_notes and root.is_dir() else None


def _reset_shown(given: HookInput, home: FolderHome) -> None:
    """Forget which notes prompts have recalled: a new, cleared or compacted conversation shows them no longer."""
    if given.session_id and given.source != "resume":
        shown_file(home.folder, given.session_id).unlink(missing_ok=True)


def shown_file(home: Path, session: str) -> Path:
    """Return the file in which the names of the notes are kept that prompts of a session have recalled."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in session)[:80]
    return home / "hooks" / f"shown-{plain}.json"


def _fitting(event: str, text: Callable[[int], str], limit: int) -> str:
    """Return the JSON of a context for the model in at most `limit` characters; a text that needs many escapes gets less room."""
    room = limit - len(_encoded(event, ""))
    while room > 0:
        said = text(room)
        if not said:
            return ""
        encoded = _encoded(event, said)
        if len(encoded) <= limit:
            return encoded
        room = min(room * 9 // 10, room - (len(encoded) - limit) // 2)
    return ""


def _encoded(event: str, text: str) -> str:
    # The program that runs the hook shows it as its own reminder.
    value = {"hookSpecificOutput": {"hookEventName": event, "additionalContext": without_own_voice(text)}}
    return msgspec.json.encode(value).decode("utf-8", "replace") + "\n"
