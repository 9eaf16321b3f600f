"""Sources that state the environment, such as directory, platform and date, and the modes and permissions that the user sets."""

from typing import Final

from palimpsest.core.items import Role
from palimpsest.core.text import within, without_tags
from palimpsest.sources.prompts import mode_text, personality_text
from palimpsest.sources.source import Fields, GitFacts, NetworkPolicy, Source, World, differing, reminder

# A value may look like another element of the block, too.
_CODEX_TAGS: Final = (
    *("environment_context", "cwd", "shell", "current_date", "timezone", "network", "allowed", "denied", "subagents"),
    *("filesystem", "workspace_roots", "root", "profile"),
)
_ENV_TAGS: Final = ("env", "files")
_YES_NO: Final = {True: "yes", False: "no"}


def escape(text: str) -> str:
    """Return a text with the characters that end or start a tag escaped; quotes stay."""
    # As `html.escape` does, whose module takes longer to import than everything else here.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def codex_environment(*, filesystem: bool = False) -> Source:
    """Return Codex's `<environment_context>`; a change states the changed elements only, and another shell is no change.

    filesystem: as 0.166, with workspace roots and sandbox on one line, and all values escaped.
    """

    def observed(world: World) -> Fields:
        state = world.state
        fields = {"cwd": state.cwd, "shell": state.shell_name, "current_date": world.today(), "timezone": state.timezone}
        if state.network is not None:
            fields["network"] = _network(state.network)
        if state.subagents:
            fields["subagents"] = "\n".join(f"    - {agent}: {nickname}" for agent, nickname in state.subagents.items())
        if filesystem and state.sandbox:
            roots = "".join(f"<root>{escape(root)}</root>" for root in (state.cwd, *state.writable))
            fields["filesystem"] = f"<workspace_roots>{roots}</workspace_roots><profile>{escape(state.sandbox)}</profile>"
        return {name: text for name, text in fields.items() if text}

    def baseline(fields: Fields) -> str:
        return _codex_block(fields, escaped=filesystem)

    def change(previous: Fields | None, fields: Fields) -> str:
        if previous is None:
            return baseline(fields)
        changed = differing(previous, fields) - {"shell"}
        if not changed:
            return ""
        shown = {name: text for name, text in fields.items() if name != "cwd" or "cwd" in changed}
        return _codex_block(shown, escaped=filesystem)

    return Source("environment", observed, baseline, change)


def _codex_block(fields: Fields, *, escaped: bool) -> str:
    lines: list[str] = []
    for name, text in fields.items():
        if name == "network":
            lines.append(text)
        elif name == "filesystem":
            lines.append(f"  <{name}>{text}</{name}>")
        elif name == "subagents":
            lines.append(f"  <subagents>\n{without_tags(text, *_CODEX_TAGS)}\n  </subagents>")
        else:
            value = escape(text) if escaped else without_tags(text, *_CODEX_TAGS)
            lines.append(f"  <{name}>{value}</{name}>")
    return "\n".join(("<environment_context>", *lines, "</environment_context>"))


def _network(policy: NetworkPolicy) -> str:
    rows = [f"    <allowed>{escape(domain)}</allowed>" for domain in policy.allowed]
    rows += [f"    <denied>{escape(domain)}</denied>" for domain in policy.denied]
    opening = f'  <network enabled="{str(policy.enabled).lower()}">'
    return "\n".join((opening, *rows, "  </network>")) if rows else f"{opening}</network>"


def opencode_environment(*, workspace_root: bool = False) -> Source:
    """Return OpenCode's environment: the model, then `<env>`, and an empty `<files>` in the documented variant."""

    def observed(world: World) -> Fields:
        state = world.state
        git = world.git()
        fields = {"model": state.model, "Working directory": state.cwd}
        if workspace_root:
            fields["Workspace root folder"] = _root(world)
        return fields | {"Is directory a git repo": _YES_NO[git is not None], "Platform": state.platform, "Today's date": world.today()}

    def baseline(fields: Fields) -> str:
        lines = [f"  {name}: {without_tags(text, *_ENV_TAGS)}" for name, text in fields.items() if name != "model"]
        files = () if workspace_root else ("<files>", "</files>")
        model = f"The model in use is {without_tags(fields['model'], *_ENV_TAGS)}. The session runs in this environment:"
        return "\n".join((model, "<env>", *lines, "</env>", *files))

    return Source("environment", observed, baseline, _changed_lines, role="system", place="head")


def _root(world: World) -> str:
    """Return the nearest folder at or above the working directory that holds `.git`; else the working directory."""
    folder = world.state.cwd
    while folder:
        if world.real_path(f"{folder}/.git") is not None:
            return folder
        folder = folder.rpartition("/")[0]
    return world.state.cwd


def claude_environment() -> Source:
    """Return Claude Code's `<env>` of the system prompt: directory, git or not, platform, shell, OS version, date and model."""

    def observed(world: World) -> Fields:
        state = world.state
        return {
            "Working directory": state.cwd,
            "Is directory a git repo": _YES_NO[world.git() is not None],
            "Platform": state.platform,
            "Shell": state.shell_name,
            "OS Version": state.os_version,
            "Today's date": world.today(),
            "Model": state.model,
        }

    def baseline(fields: Fields) -> str:
        return "\n".join(("<env>", *(f"{name}: {without_tags(text, *_ENV_TAGS)}" for name, text in fields.items() if text), "</env>"))

    return Source("environment", observed, baseline, _changed_lines, role="system", place="head")


def stated_environment(role: str = "system") -> Source:
    """Return the environment as a statement of its own, without date and model, which have their own statements."""

    def observed(world: World) -> Fields:
        state = world.state
        fields = {
            "Working directory": state.cwd,
            "Other folders": ", ".join(state.folders),
            "Git repository": _YES_NO[world.git() is not None],
            "Platform": state.platform,
            "Shell": state.shell_name,
            "OS version": state.os_version,
        }
        return {name: text for name, text in fields.items() if text}

    def baseline(fields: Fields) -> str:
        return "\n".join(("# Environment", *(f"- {name}: {text}" for name, text in fields.items())))

    return Source("environment", observed, baseline, _changed_lines, role="system" if role == "system" else "user")


def model_statement() -> Source:
    """Return the statement of the model's own name and window."""

    def observed(world: World) -> Fields | None:
        state = world.state
        if not state.model:
            return None
        return {"model": state.model} | ({"window": f"{state.window:,} tokens"} if state.window else {})

    def baseline(fields: Fields) -> str:
        window = fields.get("window")
        return f"You run as the model {fields['model']}" + (f" with a context window of {window}." if window else ".")

    return Source("model", observed, baseline, role="system")


def date_source(role: str = "system") -> Source:
    """Return the statement of the local date, without a time of day."""

    def change(previous: Fields | None, fields: Fields) -> str:
        return f"Today's date is {fields['date']}." if previous is None else f"The date has changed: today is {fields['date']}."

    return Source(
        "date",
        lambda world: {"date": world.today()},
        lambda fields: f"Today's date is {fields['date']}.",
        change,
        role="system" if role == "system" else "user",
    )


GIT_LINES: Final = 40
"""Most lines of the status in a statement."""


def git_text(facts: GitFacts) -> str:
    """Return the state of the repository as text: branch, main branch, status and recent commits."""
    lines = [f"Current branch: {facts.branch or '(detached)'}"]
    if facts.main_branch:
        lines.append(f"Main branch: {facts.main_branch}")
    shown = facts.status[:GIT_LINES]
    more = [f"… and {len(facts.status) - GIT_LINES} more"] if len(facts.status) > GIT_LINES else []
    lines += ["", "Status:", *(shown or ("(clean)",)), *more]
    if facts.commits:
        lines += ["", "Recent commits:", *facts.commits]
    return "\n".join(lines)


def _changed_lines(previous: Fields | None, fields: Fields) -> str:
    """State the changed fields of an environment, one line each."""
    changed = differing(previous or {}, fields)
    lines = [f"- {name}: {without_tags(text, *_ENV_TAGS)}" for name, text in fields.items() if name in changed]
    lines += [f"- {name}: no longer set" for name in sorted(changed - fields.keys())]
    return "\n".join(("The environment has changed:", *lines)) if lines else ""


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
