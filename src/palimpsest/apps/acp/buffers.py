"""Unsaved text of the editor: a file that has some is not changed on disk, and the model gets to see it when it reads the file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acp import RequestError
from acp.interfaces import Client
from pydantic import ValidationError

from palimpsest.apps.acp.calls import shown_call
from palimpsest.core.items import ToolCall
from palimpsest.engine.hooks.hook import Hook, HookCall, HookResult

# Seconds that the editor has to say what it holds; a call is not delayed for longer.
_SECONDS: Final = 5.0
_LARGEST: Final = 20_000_000
# Characters of an unsaved text that the model gets, and files of one call that are looked at.
_LONGEST: Final = 8_000
_MOST_FILES: Final = 20
_CHANGING: Final = ("write", "edit", "apply_patch")


class EditorBuffers:
    """What the editor holds of files, by its method `fs/read_text_file`, which returns unsaved text.

    Tools go on to read and change the files on disk, because snapshots, permissions and the check for changes since the last read are
    about those. An editor that does not answer, or knows no such file, holds nothing.
    """

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        # Sub-agents have sessions of their own, which the editor does not know.
        self._session = session

    def hooks(self) -> tuple[Hook, ...]:
        """The hooks of a session: before each tool that changes files, and after each that reads one."""
        before = tuple(Hook("before_tool", self._refuse_clash, "unsaved text", tool, _SECONDS) for tool in _CHANGING)
        return (*before, Hook("after_tool", self._show_unsaved, "unsaved text", "read", _SECONDS))

    async def _refuse_clash(self, call: HookCall) -> HookResult | None:
        for path in _files_of(call):
            if await self._unsaved(path) is not None:
                return HookResult(f"{path.name} has unsaved changes in the editor; ask the user to save or discard them, then try again")
        return None

    async def _show_unsaved(self, call: HookCall) -> HookResult | None:
        for path in _files_of(call):
            text = await self._unsaved(path)
            if text is not None:
                rest = f"\n[{len(text) - _LONGEST:,} characters left out]" if len(text) > _LONGEST else ""
                told = f"The user has unsaved changes in {path.name}. The file on disk, as shown, lacks them. The unsaved text:"
                return HookResult(context=f"{told}\n{text[:_LONGEST]}{rest}")
        return None

    async def _unsaved(self, path: Path) -> str | None:
        """Return the text of a file in the editor if it differs from that on disk."""
        try:
            held = (await self._client.read_text_file(session_id=self._session, path=str(path))).content
        except (RequestError, ValidationError, ConnectionError):
            return None
        return held if _lines(held) != _lines(_on_disk(path)) else None


def _files_of(call: HookCall) -> Iterator[Path]:
    """The files inside of the project that a call names."""
    root = Path(call.cwd)
    shown = shown_call(ToolCall(call.call_id, call.tool, call.arguments), root)
    for place in shown.locations[:_MOST_FILES]:
        path = Path(place.path)
        if path.is_relative_to(root) and ".." not in path.parts:
            yield path


def _on_disk(path: Path) -> str:
    """The text of a file; empty if there is none, or it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""


def _lines(text: str) -> str:
    """A text with the line ends that all editors agree on."""
    return text.replace("\r\n", "\n")
