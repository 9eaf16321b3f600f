"""The names of tools in permission rules: ours, and those that other agents have for the same tools."""

import difflib
import re
from collections.abc import Collection
from typing import Final, Literal, TypeAlias

from palimpsest.audit.tools.executed import word_set
from palimpsest.core.errors import BadInput

Effect: TypeAlias = Literal["allow", "ask", "deny"]

ANY: Final = "*"
COMMAND_TOOLS: Final = frozenset({"bash"})
FETCH_TOOLS: Final = frozenset({"fetch", "web_fetch"})
PATH_TOOLS: Final = word_set("read edit write apply_patch grep glob")
"""Tools whose calls name files; a rule for another of our tools has no pattern."""
SERVED: Final = "mcp__"
"""The beginning of the names of tools of MCP servers, `mcp__SERVER__TOOL`; only rules for them may have `*` in the name."""
OWN_TOOLS: Final = (
    PATH_TOOLS
    | COMMAND_TOOLS
    | FETCH_TOOLS
    | word_set(
        "bash_output kill todo task_create task_update task_list task_get recall compact skill spawn_agent send_input wait_agent "
        "resume_agent close_agent remember memory tool_search set_state list_mcp_resources read_mcp_resource"
    )
)
# By the letters of the name, without case and underscores.
_ALIASES: Final = {
    **dict.fromkeys(word_set("shell exec execcommand localshell shellcommand unifiedexec runcommand runshellcommand shelltool"), "bash"),
    **dict.fromkeys(word_set("readfile readmanyfiles view viewfile viewimage notebookread ls listdir listdirectory listfiles"), "read"),
    **dict.fromkeys(word_set("multiedit notebookedit editfile strreplace strreplaceeditor replace"), "edit"),
    **dict.fromkeys(word_set("writefile create createfile"), "write"),
    **dict.fromkeys(word_set("patch"), "apply_patch"),
    **dict.fromkeys(word_set("grepfiles searchfilecontent"), "grep"),
    **dict.fromkeys(word_set("task agent"), "spawn_agent"),
    **dict.fromkeys(word_set("todowrite todoread updateplan"), "todo"),
    **dict.fromkeys(word_set("killshell killbash taskstop"), "kill"),
    "webfetch": "fetch",
    **dict.fromkeys(word_set("bashoutputtool taskoutput taskoutputtool agentoutputtool writestdin"), "bash_output"),
    "sendmessage": "send_input",
    "googlewebsearch": "websearch",
    "savememory": "remember",
    "listmcpresourcestool": "list_mcp_resources",
    "readmcpresourcetool": "read_mcp_resource",
    **{re.sub("_", "", name): name for name in OWN_TOOLS if name != "web_fetch"},
}
# A denial of one way to change a file, or to reach the web, is meant for all of them.
_WIDER: Final = {"write": "edit", "apply_patch": "edit", "websearch": "fetch"}
_FOREIGN: Final = word_set(
    "websearch exitplanmode enterplanmode slashcommand askuserquestion requestuserinput lsp enterworktree exitworktree croncreate "
    "crondelete cronlist monitor powershell structuredoutput teamcreate teamdelete jsrepl codesearch externaldirectory doomloop"
)
_LISTED: Final = "read, edit, write, grep, glob, bash, fetch, spawn_agent, mcp__SERVER__TOOL"


def tool_of_rule(name: str, effect: Effect, others: Collection[str] | None, where: str) -> str:
    """The tool that a rule is about, by our name. `others` are further tools there are; `None` if that is not known.

    Raises `BadInput` if there is no such tool.
    """
    if name == ANY or name.startswith(SERVED) or (others is not None and name in others):
        return name
    letters = re.sub("[_-]", "", name).casefold()
    found = _ALIASES.get(letters)
    if effect != "allow":
        found = _WIDER.get(letters if found is None else found, found)
    if found is not None:
        return found
    if letters in _FOREIGN:
        raise BadInput(f"there is no tool like {name} here, so the rule can be left out; the tools are {_LISTED}", where=where)
    if others is None:
        return name
    known = {*_ALIASES, *others}
    near = difflib.get_close_matches(letters, known, 1, 0.6)
    meant = _ALIASES.get(near[0], near[0]) if near else ""
    # The list or the option already says what the rule does.
    spelled = re.sub(r"^(?:allow|ask|deny)\s+", "", where.strip()).replace(name, meant, 1)
    advice = f"did you mean `{spelled}`?" if meant else f"the tools are {_LISTED}"
    raise BadInput(f"there is no tool {name}; {advice}", where=where)


def names_several(tool: str) -> bool:
    """Whether the tool name of a rule stands for several tools of MCP servers."""
    return ANY in tool or "__" not in tool.removeprefix(SERVED)


def name_matches(wanted: str, name: str) -> bool:
    """Whether the tool name of a rule is that of a tool: the same, or for tools of MCP servers also one with `*`, or the server alone."""
    if wanted == name or not (wanted.startswith(SERVED) and name.startswith(SERVED)):
        return wanted == name
    pattern = wanted if ANY in wanted else f"{wanted}__{ANY}"
    return names_several(wanted) and re.fullmatch(".*".join(map(re.escape, pattern.split(ANY))), name) is not None
