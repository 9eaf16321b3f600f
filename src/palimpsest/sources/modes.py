"""Ways of working that the user sets: permissions, mode, personality, and what the client adds around them."""

from typing import Final

from palimpsest.core.format.tags import within
from palimpsest.core.items import Role
from palimpsest.sources.model_prompt import mode_text, personality_text
from palimpsest.sources.source import Fields, Source, World, differing, reminder

_SANDBOXES: Final = {
    "read-only": "Commands run in a sandbox that can read files and write nowhere.",
    "workspace-write": "Commands run in a sandbox that can read files and write below the project and the listed folders only.",
    "full-access": "Commands run without a sandbox and can write everywhere.",
}
_APPROVALS: Final = {
    "untrusted": "The user is asked before every command that is not known to be harmless.",
    "on-failure": "A command that the sandbox stopped can be run outside of it after the user has agreed.",
    "on-request": "Ask for approval of a command that needs more than the sandbox allows, and say why it is needed.",
    "ask": "The user is asked before a file is changed, and before a command that is not known to be harmless.",
    "edits": "Files of the project are changed without a question; the user is asked before a command that is not known to be harmless.",
    "plan": "Nothing may be changed: only tools that read and commands that are known to be harmless are run.",
    "auto": "Calls that stay inside the sandbox and the project are run without a question.",
    "never": "The user is not asked: a command that the sandbox stops has failed, so find another way.",
}
_SHOWN_FOLDERS: Final = 50


def permissions(*, tag: bool, role: Role = "developer") -> Source:
    """Return the permissions: sandbox, network, writable folders and approvals, in a tag for Codex.

    Where only writable folders were added since the baseline, a change states just those.
    """

    def observed(world: World) -> Fields | None:
        state = world.state
        if not state.sandbox and not state.approval:
            return None
        network = "" if state.network is None else "enabled" if state.network.enabled else "disabled"
        fields = {"sandbox": state.sandbox, "approval": state.approval, "network": network}
        return fields | {f"folder {path}": path for path in state.writable[:_SHOWN_FOLDERS]}

    def baseline(fields: Fields) -> str:
        return _tagged(_permissions_text(fields), tag=tag)

    def change(previous: Fields | None, fields: Fields) -> str:
        changed = differing(previous, fields) if previous is not None else frozenset(fields)
        added = [fields[name] for name in fields if name in changed and name.startswith("folder ")]
        if added and changed == {f"folder {path}" for path in added}:
            lines = "\n".join(f"- {path}" for path in added)
            return _tagged(f"These folders have become writable too:\n{lines}", tag=tag)
        return _tagged(f"The permissions have changed; these replace all earlier ones.\n{_permissions_text(fields)}", tag=tag)

    return Source("permissions", observed, baseline, change, role=role)


def _permissions_text(fields: Fields) -> str:
    lines = []
    if fields["sandbox"]:
        lines.append(f"Sandbox `{fields['sandbox']}`: {_SANDBOXES.get(fields['sandbox'], 'as the user has configured it.')}")
    if fields["network"]:
        lines.append(f"Network access of commands is {fields['network']}.")
    folders = [f"- {path}" for name, path in fields.items() if name.startswith("folder ")]
    if folders:
        lines += ["Writable folders:", *folders]
    if fields["approval"]:
        lines.append(f"Approvals `{fields['approval']}`: {_APPROVALS.get(fields['approval'], 'as the user has configured them.')}")
    return "\n".join(lines)


def _tagged(text: str, *, tag: bool) -> str:
    return within("permissions instructions", text) if tag else f"# Permissions\n{text}"


def codex_mode() -> Source:
    """Return Codex's collaboration mode; a mode without rules is not stated, neither at first nor as a change."""

    def change(_: Fields | None, fields: Fields) -> str:
        return _collaboration(fields)

    return Source("mode", lambda world: {"mode": world.state.mode or "default"}, _collaboration, change, role="developer")


def _collaboration(fields: Fields) -> str:
    text = mode_text(fields["mode"])
    return within("collaboration_mode", text) if text else ""


def mode(role: Role = "system", *, plan: str = "") -> Source:
    """Return the mode of the session; leaving one is stated too, because its rules stay visible. `plan` is added to those of plan mode."""
    frame = reminder if role == "user" else str.strip

    def text_of_mode(name: str) -> str:
        return f"{mode_text(name)}\n{plan}".strip() if name == "plan" else mode_text(name)

    def observed(world: World) -> Fields | None:
        return {"mode": world.state.mode} if world.state.mode else None

    def baseline(fields: Fields) -> str:
        return frame(f"# Mode: {fields['mode']}\n{text_of_mode(fields['mode'])}".rstrip())

    def change(_: Fields | None, fields: Fields) -> str:
        text = text_of_mode(fields["mode"]) or "The rules of the earlier mode no longer apply."
        return frame(f"The mode is now `{fields['mode']}`.\n{text}")

    removal = frame("The mode has ended; its rules no longer apply.")
    return Source("mode", observed, baseline, change, role=role, removal=removal)


def personality(*, covered_by: str = "", role: Role = "developer") -> Source:
    """Return the personality, unless the base prompt or the notice of a model switch holds it already."""

    def observed(world: World) -> Fields | None:
        return {"personality": world.state.personality} if world.state.personality else None

    def baseline(fields: Fields) -> str:
        return within("personality_spec", personality_text(fields["personality"]))

    def change(_: Fields | None, fields: Fields) -> str:
        text = f"The user asks for another style from here on:\n{personality_text(fields['personality'])}"
        return within("personality_spec", text)

    return Source("personality", observed, baseline, change, role=role, covered_by=covered_by)


def realtime() -> Source:
    """Return Codex's notice that the user talks by voice, and that this has ended."""

    def baseline(fields: Fields) -> str:
        return _realtime(f"The user is in a voice conversation: {fields['text'].strip()}")

    return Source(
        "realtime",
        lambda world: {"text": text} if (text := world.state.texts.get("realtime", "")).strip() else None,
        baseline,
        role="developer",
        removal=_realtime("The voice conversation has ended; the user types again."),
    )


def _realtime(text: str) -> str:
    return within("realtime_conversation", text)
