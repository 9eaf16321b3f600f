"""Instruction files as sources: AGENTS.md as Codex states it, and lists of files as OpenCode, Claude Code and our profile do."""

import posixpath
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Final

from palimpsest.core.format.tags import within
from palimpsest.core.items import Role
from palimpsest.sources.instructions.files import (
    FILE_BYTES,
    MARKERS,
    InstructionFile,
    allowed_folders,
    ancestors,
    config_folder,
    first_file,
    folders_of_project,
    project_root,
    read_file,
)
from palimpsest.sources.source import Fields, Place, Source, World, differing

NAMES: Final = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
_CODEX_NAMES: Final = ("AGENTS.override.md", "AGENTS.md")
_GLOBAL_BYTES: Final = 256 * 1024
_TOTAL_BYTES: Final = 256 * 1024
_MOST_CONFIGURED: Final = 50


def agents_md(
    *, limit: int = FILE_BYTES, fallbacks: Sequence[str] = (), markers: Sequence[str] = MARKERS, states_changes: bool = False
) -> Source:
    """Return Codex's instructions: the user's own, then one file for each folder from the project root down, `limit` bytes in all.

    states_changes: as 0.166, which states a new text as the replacement of all earlier ones, a removal too, and skips untrusted projects.
    """

    def observed(world: World) -> Fields | None:
        config = config_folder(world, ".codex")
        own = first_file(world, config, _CODEX_NAMES, allowed_folders(world, markers, config), _GLOBAL_BYTES) if config else None
        trusted = world.state.trusted or not states_changes
        project = _codex_project(world, limit, (*_CODEX_NAMES, *fallbacks), markers) if trusted else ""
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
    return f"Instructions from: {path}\n{text}"


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
        found = _first_name(world, names, allowed) if project and world.state.trusted else ()
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
    if world.state.trusted:
        for place in folders_of_project(world):
            found = (first_file(world, place, names, allowed) for names in kinds)
            files += [file for file in found if file is not None]
    if not files:
        return ()
    # Imported with the first such file, which many projects do not have.
    imports = import_module("palimpsest.sources.instructions.imports")
    whole: tuple[InstructionFile, ...] = imports.with_imports(world, _unique(files), allowed)
    return whole


def _unique(files: Iterable[InstructionFile]) -> tuple[InstructionFile, ...]:
    by_path: dict[str, InstructionFile] = {}
    for file in files:
        by_path.setdefault(file.path, file)
    return tuple(by_path.values())
