"""Instruction files of user and project: finds and reads them, follows their imports, and states them as each profile does."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from palimpsest.core.items import Role, Text, ToolResult, Value
from palimpsest.core.text import lazy_pattern, within, without_own_voice
from palimpsest.core.view import CHANGED, View
from palimpsest.sources.source import Fields, Place, Source, World, differing

FILE_BYTES: Final = 32 * 1024
"""Most bytes of one instruction file, and of all files of a project together under Codex."""

MARKERS: Final = (".git",)
_DEEPEST: Final = 64


class InstructionFile(Value, frozen=True):
    """An instruction file or page: where it comes from, and its text."""

    path: str
    text: str


def ancestors(folder: str) -> tuple[str, ...]:
    """Return a folder and all folders above it, nearest first; at most 64."""
    found = [posixpath.normpath(folder)]
    while len(found) < _DEEPEST and posixpath.dirname(found[-1]) != found[-1]:
        found.append(posixpath.dirname(found[-1]))
    return tuple(found)


def project_root(world: World, markers: Iterable[str] = MARKERS) -> str | None:
    """Return the nearest folder at or above the working directory that holds one of the markers; `None` if there is none."""
    wanted = tuple(markers)
    for folder in ancestors(world.state.cwd):
        if any(world.real_path(posixpath.join(folder, marker)) is not None for marker in wanted):
            return folder
    return None


def folders_of_project(world: World, markers: Iterable[str] = MARKERS) -> tuple[str, ...]:
    """Return the folders from the project root down to the working directory; without a marker only the latter."""
    cwd = posixpath.normpath(world.state.cwd)
    root = project_root(world, markers)
    if root is None:
        return (cwd,)
    upwards = ancestors(cwd)
    return tuple(reversed(upwards[: upwards.index(root) + 1]))


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of the folders or lies below one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def allowed_folders(world: World, markers: Iterable[str] = MARKERS, *more: str) -> tuple[str, ...]:
    """Return the real paths of the folders from which files may be stated: the project, granted ones, and `more`."""
    wanted = (folders_of_project(world, markers)[0], *world.state.folders, *more)
    return tuple(dict.fromkeys(real for folder in wanted if folder and (real := world.real_path(folder)) is not None))


def read_file(world: World, path: str, allowed: Sequence[str], limit: int = FILE_BYTES) -> InstructionFile | None:
    """Return a file cut to `limit` bytes; `None` if it is blank, cannot be read, or really lies outside of the allowed folders.

    A link is followed only to a target inside, so that a foreign project cannot show files of the user to a model.
    """
    real = world.real_path(path)
    if real is None or not is_within(real, allowed):
        return None
    data = world.read(real, limit)
    if data is None:
        return None
    text = data[:limit].decode("utf-8", "replace").lstrip("\ufeff")
    return InstructionFile(path, text) if text.strip() else None


def first_file(world: World, folder: str, names: Iterable[str], allowed: Sequence[str], limit: int = FILE_BYTES) -> InstructionFile | None:
    """Return the first of the names that is a readable file in a folder and not blank."""
    found = (read_file(world, posixpath.join(folder, name), allowed, limit) for name in names)
    return next((file for file in found if file is not None), None)


def config_folder(world: World, default: str) -> str:
    """Return the folder of the user's own files, which is `default` below the home folder; empty without a home."""
    return posixpath.join(world.state.home, default) if world.state.home else ""


DEEPEST: Final = 5
MOST_FILES: Final = 40
# A fence that is never closed reaches to the end.
_CODE: Final = lazy_pattern(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_IMPORT: Final = lazy_pattern(r"(?:^|(?<=\s))@(~?[^\s@`'\"<>|*?，。；：！？、（）]+)")
_AFTER: Final = ".,;:!)]}"


def imported_paths(text: str) -> tuple[str, ...]:
    """Return the paths after `@` in a text, in order and each once; code spans and fenced blocks are skipped."""
    found = (path.rstrip(_AFTER) for path in _IMPORT.findall(_CODE.sub(" ", text)))
    return tuple(dict.fromkeys(path for path in found if path))


def with_imports(
    world: World, files: Sequence[InstructionFile], allowed: Sequence[str], limit: int = 4 * FILE_BYTES
) -> tuple[InstructionFile, ...]:
    """Return files with those that they import directly behind them, in depth at most 5, in all at most 40 more and `limit` bytes.

    A file appears once, so that circles end. A path that is no file in an allowed folder imports nothing.
    """
    seen = {real for file in files if (real := world.real_path(file.path)) is not None}
    importing = _Importing(world, allowed, seen, MOST_FILES, limit)
    found: list[InstructionFile] = []
    for file in files:
        found.append(file)
        found.extend(importing.behind(file, 1))
    return tuple(found)


class _Importing:
    """The bounds that all imports of one observation share."""

    def __init__(self, world: World, allowed: Sequence[str], seen: set[str], files: int, room: int) -> None:
        self._world, self._allowed, self._seen = world, allowed, seen
        self._files, self._room = files, room

    def behind(self, file: InstructionFile, depth: int) -> Iterator[InstructionFile]:
        """Yield the files that a file imports, each followed by its own imports."""
        if depth > DEEPEST or "://" in file.path:
            return
        for path in imported_paths(file.text):
            if self._files <= 0 or self._room <= 0:
                return
            target = self._target(path, posixpath.dirname(file.path))
            real = None if target is None else self._world.real_path(target)
            if target is None or real is None or real in self._seen:
                continue
            imported = read_file(self._world, target, self._allowed, min(FILE_BYTES, self._room))
            if imported is None:
                continue
            self._seen.add(real)
            self._files -= 1
            self._room -= len(imported.text.encode("utf-8", "replace"))
            yield imported
            yield from self.behind(imported, depth + 1)

    def _target(self, path: str, folder: str) -> str | None:
        if path == "~" or (path.startswith("~") and not path.startswith("~/")):
            return None
        if path.startswith("~/"):
            home = self._world.state.home
            return posixpath.normpath(posixpath.join(home, path[2:])) if home else None
        return posixpath.normpath(posixpath.join(folder, path))


NAMES: Final = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
_CODEX_NAMES: Final = ("AGENTS.override.md", "AGENTS.md")
_GLOBAL_BYTES: Final = 256 * 1024
_TOTAL_BYTES: Final = 256 * 1024
_MOST_CONFIGURED: Final = 50


def agents_md(
    *, limit: int = FILE_BYTES, fallbacks: Sequence[str] = (), markers: Sequence[str] = MARKERS, states_changes: bool = False
) -> Source:
    """Return Codex's instructions: the user's own, then one file for each folder from the project root down, `limit` bytes in all.

    states_changes: as 0.166, which states a new text as the replacement of all earlier ones, a removal too.
    """

    def observed(world: World) -> Fields | None:
        config = config_folder(world, ".codex")
        own = first_file(world, config, _CODEX_NAMES, allowed_folders(world, markers, config), _GLOBAL_BYTES) if config else None
        project = _codex_project(world, limit, (*_CODEX_NAMES, *fallbacks), markers)
        parts = [own.text.strip() if own is not None else "", project]
        text = "\n\n--- project-doc ---\n\n".join(part for part in parts if part)
        return {"cwd": world.state.cwd, "text": text} if text else None

    def baseline(fields: Fields) -> str:
        return f"# AGENTS.md instructions for {fields['cwd']}\n\n{within('INSTRUCTIONS', fields['text'])}"

    def change(previous: Fields | None, fields: Fields) -> str:
        # A changed directory alone is stated by the environment.
        if not states_changes or (previous is not None and "text" not in differing(previous, fields)):
            return ""
        return f"These instructions replace all earlier ones from AGENTS.md.\n\n{baseline(fields)}"

    removal = "The instructions from AGENTS.md that were stated earlier no longer exist; they do not apply any more."
    return Source("instructions", observed, baseline, change, removal=removal if states_changes else "")


def _codex_project(world: World, limit: int, names: Sequence[str], markers: Sequence[str]) -> str:
    texts: list[str] = []
    room = limit
    allowed = allowed_folders(world, markers)
    for folder in folders_of_project(world, markers):
        if room <= 0:
            break
        file = first_file(world, folder, names, allowed, room)
        if file is not None:
            texts.append(file.text)
            room -= len(file.text.encode("utf-8", "replace"))
    return "\n\n".join(texts)


def file_list(
    find: Callable[[World], Iterable[InstructionFile]],
    *,
    role: Role = "user",
    place: Place = "start",
    frame: Callable[[str], str] = str.strip,
    key: str = "instructions",
) -> Source:
    """Return a source that states instruction files, each under its path; a change states changed files and names removed ones."""

    def observed(world: World) -> Fields | None:
        fields: dict[str, str] = {}
        room = _TOTAL_BYTES
        for file in find(world):
            text = file.text.strip()
            room -= len(text.encode("utf-8", "replace"))
            if room < 0:
                break
            if text:
                fields.setdefault(file.path, text)
        return fields or None

    def baseline(fields: Fields) -> str:
        return frame("\n".join(instructions_from(path, text) for path, text in fields.items()))

    def change(previous: Fields | None, fields: Fields) -> str:
        if previous is None:
            return baseline(fields)
        changed = differing(previous, fields)
        notice = "These instructions replace the earlier ones from the same place."
        lines = [f"{notice}\n{instructions_from(path, text)}" for path, text in fields.items() if path in changed]
        lines += [f"The instructions from {path} no longer apply." for path in previous if path not in fields]
        return frame("\n".join(lines)) if lines else ""

    removal = frame("The instruction files that were stated earlier no longer exist; they do not apply any more.")
    return Source(key, observed, baseline, change, role=role, place=place, removal=removal)


def instructions_from(path: str, text: str) -> str:
    """Return the text of an instruction file under its path or URL."""
    return f"Instructions from: {path}\n{without_own_voice(text)}"


def opencode_files(
    *, global_first: bool, configured: Sequence[str] = (), project: bool = True, claude: bool = True, custom_config: str = ""
) -> Callable[[World], tuple[InstructionFile, ...]]:
    """Return what finds OpenCode's instruction files: of the project, of the user, configured ones, and pages.

    global_first: as 1.18, which states the user's own file first. project, claude: whether files of the project, and `~/.claude`, count.
    """

    def find(world: World) -> tuple[InstructionFile, ...]:
        config = config_folder(world, ".config/opencode")
        home = world.state.home
        allowed = allowed_folders(world, MARKERS, config, *((posixpath.join(home, ".claude"),) if home else ()), custom_config)
        own_paths = [posixpath.join(config, "AGENTS.md") if config else ""]
        own_paths += [posixpath.join(home, ".claude/CLAUDE.md")] if home and claude else []
        own_paths += [posixpath.join(custom_config, "AGENTS.md")] if custom_config else []
        readable = (read_file(world, path, allowed) for path in own_paths if path)
        own = tuple(file for file in readable if file is not None)[:1]
        names = NAMES if claude else tuple(name for name in NAMES if name != "CLAUDE.md")
        found = _first_name(world, names, allowed) if project else ()
        both = (*own, *found) if global_first else (*found, *own)
        return _unique((*both, *configured_files(world, configured)))

    return find


def _first_name(world: World, names: Sequence[str], allowed: Sequence[str]) -> tuple[InstructionFile, ...]:
    """Return all files of the first name that exists in any folder from the working directory up to the project root."""
    upwards = tuple(reversed(folders_of_project(world)))
    for name in names:
        found = [read_file(world, posixpath.join(folder, name), allowed) for folder in upwards]
        files = tuple(file for file in found if file is not None)
        if files:
            return files
    return ()


def configured_files(world: World, entries: Sequence[str]) -> tuple[InstructionFile, ...]:
    """Return the files and pages of configured entries, at most 50: a path with `~/`, an absolute or relative pattern, or a URL.

    The user configured them, so that they may lie in any folder; a relative pattern counts in every folder up to the project root.
    """
    files: list[InstructionFile] = []
    pages: list[InstructionFile] = []
    for entry in entries:
        if len(files) + len(pages) >= _MOST_CONFIGURED:
            break
        if entry.startswith(("http://", "https://")):
            text = world.fetch(entry, FILE_BYTES)
            pages += [InstructionFile(entry, text)] if text and text.strip() else []
            continue
        for path in _matching(world, entry)[: _MOST_CONFIGURED - len(files)]:
            real = world.real_path(path)
            file = None if real is None else read_file(world, path, (real,))
            files += [file] if file is not None else []
    return (*files, *pages)


def _matching(world: World, entry: str) -> tuple[str, ...]:
    home = world.state.home
    path = posixpath.join(home, entry[2:]) if entry.startswith("~/") and home else entry
    if path.startswith("/"):
        return world.glob(posixpath.dirname(path), posixpath.basename(path))
    root = project_root(world)
    upwards = ancestors(world.state.cwd)
    folders = upwards[: upwards.index(root) + 1] if root is not None else upwards[:1]
    return tuple(found for folder in folders for found in world.glob(folder, path))


def claude_files(world: World) -> tuple[InstructionFile, ...]:
    """Return the user's file, then those of each folder from the project root down, each followed by its imports."""
    return _nested(world, ".claude", ("CLAUDE.md",), (("CLAUDE.md",), (".claude/CLAUDE.md",), ("CLAUDE.local.md",)))


def our_files(configured: Sequence[str] = ()) -> Callable[[World], tuple[InstructionFile, ...]]:
    """Return what finds the files of our profile: the user's, then one of `NAMES` for each folder, with imports."""

    def find(world: World) -> tuple[InstructionFile, ...]:
        one_of = (("AGENTS.override.md", *NAMES),)
        return _unique((*_nested(world, ".config/palimpsest", NAMES, one_of), *configured_files(world, configured)))

    return find


def _nested(world: World, config: str, own_names: Sequence[str], kinds: Sequence[Sequence[str]]) -> tuple[InstructionFile, ...]:
    folder = config_folder(world, config)
    allowed = allowed_folders(world, MARKERS, folder)
    own = first_file(world, folder, own_names, allowed) if folder else None
    files = [own] if own is not None else []
    for place in folders_of_project(world):
        found = (first_file(world, place, names, allowed) for names in kinds)
        files += [file for file in found if file is not None]
    return with_imports(world, _unique(files), allowed)


def _unique(files: Iterable[InstructionFile]) -> tuple[InstructionFile, ...]:
    by_path: dict[str, InstructionFile] = {}
    for file in files:
        by_path.setdefault(file.path, file)
    return tuple(by_path.values())


_MOST_BYTES: Final = 2 * FILE_BYTES
_KEY: Final = "instructions"


def nested_instructions(view: View, world: World, path: str, names: Sequence[str] = NAMES, key: str = _KEY) -> tuple[Text, ...]:
    """Return the parts to add to the result of reading the file `path`: the instructions of its folder and those above it.

    The working directory and folders above it are left out, and so are the file itself, files that are stated already, and files that
    a visible result has attached. A result that was masked or folded does not count, so that the next read attaches them again.
    """
    state = world.state
    cwd = posixpath.normpath(state.cwd)
    file = posixpath.normpath(posixpath.join(cwd, path))
    if not is_within(file, (cwd,)):
        return ()
    allowed = allowed_folders(world)
    upwards = ancestors(posixpath.dirname(file))
    attached = attached_paths(view)
    parts: list[Text] = []
    room = _MOST_BYTES
    for folder in upwards[: upwards.index(cwd)] if cwd in upwards else ():
        found = first_file(world, folder, names, allowed, min(FILE_BYTES, max(1, room)))
        if found is None or found.path == file or found.path in attached or _is_stated(view, key, found.path) or room <= 0:
            continue
        room -= len(found.text.encode("utf-8", "replace"))
        parts.append(Text(instructions_from(found.path, found.text.strip())))
    return tuple(parts)


def attached_paths(view: View) -> frozenset[str]:
    """Return the paths of the instruction files that visible results have attached, which are parts behind their own output."""
    opening = instructions_from("", "").removesuffix("\n")
    found: set[str] = set()
    for item in view.items:
        if not isinstance(item.content, ToolResult) or item.mask is not None:
            continue
        # The first part is the output of the tool itself, which may hold any text.
        for part in item.content.parts[1:]:
            if isinstance(part, Text) and part.text.startswith(opening):
                found.add(part.text.partition("\n")[0].removeprefix(opening))
    return frozenset(found)


def _is_stated(view: View, key: str, path: str) -> bool:
    sources = {key, key + CHANGED}
    opening = instructions_from(path, "")
    stated = (item.content for item in (*view.head, *view.items) if item.source in sources and item.mask is None)
    return any(isinstance(content, Text) and opening in content.text for content in stated)
