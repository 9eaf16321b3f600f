"""The standard set of tools of an agent, in the order in which they are declared to the model."""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from palimpsest.agent.archive import LogArchive, compact_tool, full_page, recall_tool
from palimpsest.agent.shell import Shell
from palimpsest.agent.tool import AgentTool, InstalledTools
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.change import edit_tool, patch_tool, write_tool
from palimpsest.coding.tools.read import read_tool
from palimpsest.coding.tools.search import glob_tool, grep_tool
from palimpsest.coding.tools.skills import FindsSkills, skill_tool
from palimpsest.coding.tools.tasks import TaskFiles, TaskGraph, todo_tool
from palimpsest.coding.tools.web import Fetcher

TASKS_FOLDER: Final = ".tasks"


class Toolset(Struct, frozen=True):
    """The tools of a session by name; `problems` says which tools of other packages could not be used, and why."""

    tools: tuple[AgentTool, ...]
    problems: tuple[str, ...] = ()

    def get(self, name: str) -> AgentTool | None:
        """The tool that the model calls by a name, or `None` if there is none."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def only(self, names: Iterable[str]) -> "Toolset":
        """The tools with these names, in the order of this set, for an agent that may do less."""
        wanted = frozenset(names)
        return Toolset(tuple(tool for tool in self.tools if tool.name in wanted), self.problems)


def task_graph(workspace: Workspace, owner: str = "", folder: str = TASKS_FOLDER) -> TaskGraph:
    """The task graph of a project, in the folder `.tasks` unless another is named. `owner` names this agent.

    Raises `OutsideWorkspace` if the folder is a link that leads out of the project.
    """
    return TaskGraph(TaskFiles(workspace.resolve(folder), workspace.write, (workspace.root, *workspace.extra)), owner)


def standard_tools(
    shell: Shell,
    *,
    hides: Callable[[str], bool],
    tasks: TaskGraph | None = None,
    archive: LogArchive | None = None,
    recalled_page: Callable[[], int] = full_page,
    skills: FindsSkills | None = None,
    lists_skills: bool = False,
    fetcher: Fetcher | None = None,
    installed: InstalledTools | None = None,
) -> Toolset:
    """All tools for which there is what they need: without `archive` there is no `recall`, without `skills` no `skill`, and so on.

    `recalled_page` returns the bytes of a page of `recall`.

    With `lists_skills`, the description of `skill` lists them, for profiles that do not state them. It reads no file that `hides` tells of.
    With `tasks`, the shell gets their `keep_output`, unless it has another: `bash` can then write to the log file of a task.
    """
    if tasks is not None and shell.keep_output is None:
        shell.keep_output = tasks.keep_output
    own = (
        *(read_tool(), write_tool(), edit_tool(), patch_tool(), grep_tool(), glob_tool()),
        *shell.tools(),
        *(() if fetcher is None else (fetcher.tool(),)),
        todo_tool(),
        *(() if tasks is None else tasks.tools()),
        *(() if archive is None else (recall_tool(archive, recalled_page),)),
        compact_tool(),
        *(() if skills is None else (skill_tool(skills, lists=lists_skills, hides=hides),)),
    )
    extra = installed or InstalledTools()
    names = {tool.name for tool in own}
    clashes = tuple(f"the tool {tool.name} of another package is left out: its name is taken" for tool in extra.tools if tool.name in names)
    return Toolset(own + tuple(tool for tool in extra.tools if tool.name not in names), extra.problems + clashes)
