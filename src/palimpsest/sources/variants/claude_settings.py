"""What settings of the user and the tools at hand add to the system prompt of Claude Code: guidance, language, output style, scratchpad."""

import posixpath
from collections.abc import Mapping
from typing import Final

from palimpsest.core.errors import BadInput
from palimpsest.core.format.front_matter import read_front_matter
from palimpsest.sources.instructions.files import config_folder, folders_of_project
from palimpsest.sources.model_prompt import prompt_text
from palimpsest.sources.source import Fields, Source, World

LANGUAGE, OUTPUT_STYLE, SCRATCHPAD = "PAL_LANGUAGE", "PAL_OUTPUT_STYLE", "PAL_SCRATCHPAD"
_DEFAULT: Final = "default"
_BUILT_IN: Final = ("explanatory", "learning")
_LONGEST_NAME: Final = 60
_LARGEST_STYLE: Final = 32 * 1024
_GUIDANCE: Final[Mapping[str, str]] = {
    "spawn_agent": "For a search that takes several rounds, start a sub-agent with `spawn_agent`; read a known file yourself.",
    "skill": "`/NAME` in a message of the user names a skill: run it with `skill`, and only skills that are listed.",
    "bash": "If a command needs the user, such as a login, ask them to run it: `!COMMAND` does in the terminal.",
    "recall": "Results that were cleared and messages that were summed up can be fetched again with `recall`.",
}


def session_guidance() -> Source:
    """Return the hints on tools that the session has at its start; tools that come or go later change nothing in the system prompt."""

    def observed(world: World) -> Fields | None:
        names = {tool.name for tool in (*world.state.tools, *world.state.deferred)}
        lines = [f"- {hint}" for name, hint in _GUIDANCE.items() if name in names]
        return {"text": "\n".join(lines)} if lines else None

    def baseline(fields: Fields) -> str:
        return f"# Session-specific guidance\n{fields['text']}"

    return Source("session_guidance", observed, baseline, lambda _, __: "", role="system", place="head")


def language(settings: Mapping[str, str]) -> Source:
    """Return the language of answers. Raises `BadInput` if the setting is not the name of one."""
    name = _line(settings, LANGUAGE)

    def baseline(fields: Fields) -> str:
        return (
            f"# Language\nAnswer in {fields['language']}, also in explanations and questions. Code, commands, paths and identifiers stay "
            "as they are."
        )

    return Source("language", lambda _: {"language": name} if name else None, baseline, role="system", place="head")


def output_style(settings: Mapping[str, str]) -> Source:
    """Return the output style: one of ours, or a file `output-styles/NAME.md` of the user, else of the project.

    Raises `BadInput` if the setting cannot be a name; observing it raises `BadInput` if there is no such style.
    """
    name = _line(settings, OUTPUT_STYLE)
    if "/" in name or "\\" in name or name.startswith("."):
        raise BadInput(f"{OUTPUT_STYLE} is {name!r}; give the name of a style, not a path", where="settings")

    def observed(world: World) -> Fields | None:
        if name.lower() in ("", _DEFAULT):
            return None
        if name.lower() in _BUILT_IN:
            return {"style": name, "text": prompt_text(f"claude/styles/{name.lower()}")}
        return {"style": name, "text": _style_file(world, name)}

    def baseline(fields: Fields) -> str:
        return f"# Output style: {fields['style']}\n{fields['text']}"

    return Source("output_style", observed, baseline, lambda _, __: "", role="system", place="head", is_required=bool(name))


def scratchpad() -> Source:
    """Return the folder for temporary files, if the session has one."""

    def observed(world: World) -> Fields | None:
        path = world.state.texts.get("scratchpad", "")
        return {"path": path} if path else None

    def baseline(fields: Fields) -> str:
        return (
            f"# Scratchpad\nTemporary files, such as scripts that run once, drafts and intermediate results, belong in {fields['path']}, "
            "not in the project and not in /tmp. It is yours alone in this session."
        )

    return Source("scratchpad", observed, baseline, lambda _, __: "", role="system", place="head")


def _line(settings: Mapping[str, str], name: str) -> str:
    text = settings.get(name, "").strip()
    if len(text) > _LONGEST_NAME or not ((text.isprintable() and text.isascii()) or text.replace(" ", "").isalpha()):
        raise BadInput(f"{name} must be one name of at most {_LONGEST_NAME} characters", where="settings")
    return text


def _style_file(world: World, name: str) -> str:
    folders = [config_folder(world, ".claude"), *(posixpath.join(folder, ".claude") for folder in folders_of_project(world))]
    paths = [posixpath.join(folder, "output-styles", f"{name}.md") for folder in folders if folder]
    for path in paths:
        data = world.read(path, _LARGEST_STYLE)
        if data is None:
            continue
        text = data.decode("utf-8", "replace")
        front = read_front_matter(text)
        if body := (text if front is None else front.body).strip():
            return body
    known = ", ".join((_DEFAULT, *_BUILT_IN))
    raise BadInput(f"there is no output style {name!r}: it can be {known}, or a file such as {paths[0]}", where="settings")
