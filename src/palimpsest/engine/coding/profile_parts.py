"""What some profiles add to a session: a plan that is kept in a file, a folder for temporary files, settings that name files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from palimpsest.core.items import EMPTY_MAPPING
from palimpsest.core.policy import Look
from palimpsest.engine.agent import Agent
from palimpsest.engine.loop.world import LocalWorld, session_state
from palimpsest.engine.session import Session
from palimpsest.stores.home import AnyHome
from palimpsest.tools.tool import AgentTool

if TYPE_CHECKING:
    from palimpsest.stores.plan_file import PlanFile

Looking: TypeAlias = Callable[[Look], str | None]
_PLAN: Final = Look("plan", "fact")


@dataclass(frozen=True, slots=True)
class ProfileParts:
    """`folders` may be written to beside the project; `texts` are stated by the sources of those keys."""

    session: Session
    folders: tuple[Path, ...] = ()
    texts: Mapping[str, str] = EMPTY_MAPPING
    plan: "PlanFile | None" = None

    def tools(self, mode: Callable[[], str]) -> tuple[AgentTool, ...]:
        """Return the tool that hands a plan over, if plans are kept."""
        if self.plan is None:
            return ()
        from palimpsest.tools.session.plan import plan_tool  # few profiles need it

        return (plan_tool(self._keep, lambda: mode() == "plan"),)

    def look(self, look: Looking) -> Looking:
        """Return what policies may look at, with the plan of the session as it is now."""
        plan = self.plan
        return look if plan is None else lambda want: plan.read() if want == _PLAN else look(want)

    def _keep(self, text: str) -> str:
        path = "" if self.plan is None else self.plan.keep(text)
        self.session.tell("plan", (f"the plan is kept in {path}; you can change it there",), again=True)
        return path


def profile_parts(agent: Agent, home: AnyHome) -> ProfileParts:
    """Return what the profile of an agent adds; sub-agents have nothing of it. Raises `BadInput` for a setting that names nothing.

    Raises `StoreError` if the folder for temporary files cannot be made.
    """
    session = agent.session
    profile, required = session.profile, [source for source in session.profile.sources.sources if source.is_required]
    if required:
        here = LocalWorld(session_state(session, agent.toolbox.workspace.root), home.clock)
        for source in required:
            source.observe(here)
    if session.log.opened.opener is not None or not (profile.scratchpad or profile.keeps_plan):
        return ProfileParts(session)
    from palimpsest.stores.plan_file import PlanFile
    from palimpsest.stores.result_files import ResultFiles
    from palimpsest.stores.scratch import scratch_folder

    files = home.store.result_files(agent.id)
    plan = PlanFile(files.folder) if profile.keeps_plan and isinstance(files, ResultFiles) else None
    if not profile.scratchpad:
        return ProfileParts(session, plan=plan)
    scratch = scratch_folder(agent.id)
    return ProfileParts(session, (scratch,), {"scratchpad": scratch.as_posix()}, plan)
