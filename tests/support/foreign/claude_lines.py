"""Files for Claude Code as tests look at them: the lines of a log, and the laws that hold for every chain of them."""

import json
from collections.abc import Iterable

from claude_session import Line

from palimpsest.core.events import Body, SessionOpened
from palimpsest.core.log import Log
from palimpsest.exchange.claude.writer import write_claude
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

COMMON = {"parentUuid", "isSidechain", "userType", "cwd", "sessionId", "version", "gitBranch", "type", "uuid", "timestamp"}


def lines_of(log: Log, blobs: MemoryBlobs | None = None) -> list[Line]:
    """The lines that are written for a log."""
    return [json.loads(line) for line in write_claude(log, blobs or MemoryBlobs())]


def log_with(*bodies: Body) -> Log:
    """A session of ours in which these things happened."""
    log = Log.create(
        MemorySessions(), SessionOpened("s", cwd="/repo", model="gpt-5.5", meta={"branch": "main"}), FixedClock(1_700_000_000_000, 10)
    )
    for body in bodies:
        log.append(body)
    return log


def chain_faults(lines: Iterable[Line]) -> list[str]:
    """What is wrong with the chain of lines: every parent must come first, and only roots and boundaries have none."""
    seen: set[str] = set()
    found = []
    for number, line in enumerate(lines):
        if "uuid" not in line:
            continue
        if line["uuid"] in seen:
            found.append(f"{number}: told twice")
        if line["parentUuid"] is not None and line["parentUuid"] not in seen:
            found.append(f"{number}: the parent is missing")
        if not line.keys() >= COMMON:
            found.append(f"{number}: fields are missing")
        seen.add(line["uuid"])
    return found


def paired(lines: Iterable[Line]) -> bool:
    """Whether every result answers an earlier call, once."""
    waiting: set[str] = set()
    for line in lines:
        content = line.get("message", {}).get("content")
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_use":
                waiting.add(block["id"])
            elif block["type"] == "tool_result":
                if block["tool_use_id"] not in waiting:
                    return False
                waiting.remove(block["tool_use_id"])
    return True


def ids(lines: Iterable[Line], name: str) -> list[str]:
    """The ids that blocks have under a name: `id` those of calls, `tool_use_id` those of results."""
    contents = [line.get("message", {}).get("content") for line in lines]
    return sorted(block[name] for content in contents if isinstance(content, list) for block in content if name in block)


def branch_to(lines: list[Line]) -> list[Line]:
    """The lines that the program goes on from: the chain up to the last one, with what a compaction preserved behind its summary."""
    by_uuid = {line["uuid"]: line for line in lines if "uuid" in line}
    branch: list[Line] = []
    at = next((line["uuid"] for line in reversed(lines) if "uuid" in line), None)
    while at is not None:
        branch.append(by_uuid[at])
        at = by_uuid[at]["parentUuid"]
    branch.reverse()
    preserved = branch[0].get("compactMetadata", {}).get("preservedMessages", {"uuids": []}) if branch else {"uuids": []}
    anchor = next((number for number, line in enumerate(branch, 1) if line["uuid"] == preserved.get("anchorUuid")), 0)
    return [*branch[:anchor], *(by_uuid[uuid] for uuid in preserved["uuids"]), *branch[anchor:]]
