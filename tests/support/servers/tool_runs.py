"""Runs single tools as the loop does: what a call saw of files is known to the next."""

import asyncio
import json
from dataclasses import replace

from palimpsest.agent.tool import AgentTool, ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.audit.working_state import KnownFile


def run_tool(tool: AgentTool, workspace: Workspace, **arguments: object) -> ToolOutput:
    """Run one call and return its output without the versions of files, which the workspace knows from then on."""
    output = asyncio.run(tool.run(json.dumps(arguments), workspace))
    known = dict(workspace.known()) | {seen.path: KnownFile(seen.path, 0, seen.digest) for seen in output.seen if seen.digest}
    workspace.known = lambda: known
    return replace(output, seen=())
