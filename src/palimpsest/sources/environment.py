"""The environment in which the agent works, as the block of each program: directory, platform, shell, date and model."""

from typing import Final

from palimpsest.core.format.tags import without_tags
from palimpsest.sources.source import Fields, GitFacts, NetworkPolicy, Source, World, differing

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
