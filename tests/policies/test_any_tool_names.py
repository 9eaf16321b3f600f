"""A law: an imitated system limits and clears results in the same way, whichever program's names the tools have."""

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workplace import offline, reply, say, work

from palimpsest.agent.editing import run_policies
from palimpsest.core.events import ToolReturned, Usage, ViewEdited
from palimpsest.core.items import Form, Text, ToolCall, ToolResult
from palimpsest.policies.named import PROFILES, profile

PATHS = ("src/app.py", "src/store.py", "docs/guide.md")
# What is done, by the names and arguments of one program.
Dialect = Mapping[str, Callable[[str, int], tuple[str, dict[str, Any] | str]]]


def patch(path: str, number: int) -> str:
    return f"*** Begin Patch\n*** Update File: {path}\n@@\n-line {number}\n+row {number}\n*** End Patch"


def steps(number: int, text: str) -> list[dict[str, Any]]:
    return [{text: f"step {each}", "status": "completed" if each < number % 3 else "pending"} for each in range(3)]


OURS: Dialect = {
    "read": lambda path, _: ("read", {"path": path}),
    "grep": lambda path, number: ("grep", {"pattern": f"name_{number}", "path": path}),
    "glob": lambda _, number: ("glob", {"pattern": f"*{number}.py"}),
    "command": lambda _, number: ("bash", {"command": f"make check{number}"}),
    "edit": lambda path, number: ("edit", {"path": path, "old": f"line {number}", "new": f"row {number}"}),
    "write": lambda path, number: ("write", {"path": path, "content": f"row {number}"}),
    "fetch": lambda _, number: ("fetch", {"url": f"https://example.org/{number}"}),
    "skill": lambda _, number: ("skill", {"name": f"deploy-{number}"}),
    "todo": lambda _, number: ("todo", {"items": [{"id": str(place), **step} for place, step in enumerate(steps(number, "text"))]}),
    "patch": lambda path, number: ("apply_patch", {"patch": patch(path, number)}),
}
CLAUDE: Dialect = {
    "read": lambda path, _: ("Read", {"file_path": path}),
    "grep": lambda path, number: ("Grep", {"pattern": f"name_{number}", "path": path}),
    "glob": lambda _, number: ("Glob", {"pattern": f"*{number}.py"}),
    "command": lambda _, number: ("Bash", {"command": f"make check{number}"}),
    "edit": lambda path, number: ("Edit", {"file_path": path, "old_string": f"line {number}", "new_string": f"row {number}"}),
    "write": lambda path, number: ("Write", {"file_path": path, "content": f"row {number}"}),
    "fetch": lambda _, number: ("WebFetch", {"url": f"https://example.org/{number}"}),
    "skill": lambda _, number: ("Skill", {"skill": f"deploy-{number}"}),
    "todo": lambda _, number: ("TodoWrite", {"todos": steps(number, "content")}),
}
OPENCODE: Dialect = {
    "read": lambda path, _: ("read", {"filePath": path}),
    "grep": lambda path, number: ("grep", {"pattern": f"name_{number}", "path": path}),
    "glob": lambda _, number: ("glob", {"pattern": f"*{number}.py"}),
    "command": lambda _, number: ("bash", {"command": f"make check{number}"}),
    "edit": lambda path, number: ("edit", {"filePath": path, "oldString": f"line {number}", "newString": f"row {number}"}),
    "write": lambda path, number: ("write", {"filePath": path, "content": f"row {number}"}),
    "fetch": lambda _, number: ("webfetch", {"url": f"https://example.org/{number}"}),
    "skill": lambda _, number: ("skill", {"name": f"deploy-{number}"}),
    "todo": lambda _, number: ("todowrite", {"todos": steps(number, "content")}),
    "patch": lambda path, number: ("patch", {"patchText": patch(path, number)}),
}
CODEX: Dialect = {
    "command": lambda _, number: ("exec_command", {"cmd": f"make check{number}"}),
    "todo": lambda _, number: ("update_plan", {"plan": steps(number, "step")}),
    "patch": lambda path, number: ("apply_patch", patch(path, number)),
}
# Names and arguments of the other programs are shorter or longer: all calls are made equally long, so that no number differs.
LENGTH = 320
NAMED = {dialect[done]("", 0)[0]: done for dialect in (OURS, CLAUDE, OPENCODE, CODEX) for done in dialect}

# Our own profiles weigh prices, in which the few tokens of other names and arguments count; so do folds, which choose what fits.
IMITATED = tuple(sorted({name for name in PROFILES if not name.startswith(("gateway", "lossless", "none", "palimpsest"))}))

done = st.tuples(
    st.sampled_from(PATHS),
    st.integers(0, 9),
    st.sampled_from((10, 90, 4_000, 31_000)),
    st.sampled_from((0, 60_000, 120_000, 140_000, 165_000, 185_000, 195_000)),
)


def session_of(name: str, dialect: Dialect, turns: list[list[tuple[str, tuple[str, int, int, int]]]]) -> list[object]:
    """The results as recorded, and the edits of a session under a profile, without the names of its tools."""
    session = work(profile(name))
    limited = session.profile.limiter(session.card)
    found: list[object] = []
    for turn, steps_of_turn in enumerate(turns):
        say(session, f"turn {turn}")
        for number, (what, (path, variant, size, reported)) in enumerate(steps_of_turn):
            found += edits(session, "before_call")
            tool, args = dialect[what](path, variant)
            form: Form = "json" if isinstance(args, dict) else "free"
            text = json.dumps(args) if isinstance(args, dict) else args
            text = f"{text[:-1]}{' ' * (LENGTH - len(tool + text))}{text[-1]}"
            call_id = f"call-{turn}-{number}"
            reply(session, ToolCall(call_id, tool, text, form), usage=Usage(input=reported, output=10) if reported else Usage())
            returned = ToolReturned(ToolResult(call_id, (Text(f"{what} {'x' * 75}\n" * (size // 80 + 1)),)), tool=tool)
            bounded = offline(session, limited(returned))
            found.append(plain(bounded.result))
            session.log.append(bounded)
        found += edits(session, "before_call")
        reply(session, Text("ok", "assistant"))
        found += edits(session, "turn_ends")
    return found


# How texts of edits show the name of a tool; a stub, which ends with the id of its item, quotes arguments and a size too.
_SHOWN_NAME = re.compile(r"(used |\\n- |, )([A-Za-z_]+)(?=[],: ×\\\"])")
_STUB = re.compile(r'(?<="text":")\[(?:[^"\\]|\\.)*?, id ([\d.]+)\](?=")')


def until_fold(found: list[object]) -> list[object]:
    """What happened before the first fold, and with it that there was one."""
    first = next((place for place, each in enumerate(found) if "'type': 'fold'" in str(each)), None)
    return found if first is None else [*found[:first], "fold"]


def edits(session: Any, moment: Any) -> list[object]:
    ran = offline(session, run_policies(session, moment))
    # Sizes and prices count names of tools and arguments too.
    return [(event.body.by, plain(event.body.edits)) for event in ran.events if isinstance(event.body, ViewEdited)]


def plain(value: object) -> object:
    """A value without the names of tools, which stubs and placeholders show."""
    text = _STUB.sub(r"[stub of \1]", msgspec.json.encode(value).decode())
    return json.loads(_SHOWN_NAME.sub(lambda found: found[1] + NAMED.get(found[2], found[2]), text))


@pytest.mark.parametrize(
    "other", [pytest.param(CLAUDE, id="claude"), pytest.param(OPENCODE, id="opencode"), pytest.param(CODEX, id="codex")]
)
@settings(max_examples=int(os.environ.get("PAL_TEST_EXAMPLES", "15")))
@given(data=st.data())
def test_a_session_is_edited_in_the_same_way_whatever_its_tools_are_called(other: Dialect, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(IMITATED))
    both = sorted(OURS.keys() & other.keys())
    step = st.tuples(st.sampled_from(both), done)
    turns = data.draw(st.lists(st.lists(step, max_size=6), min_size=1, max_size=3))
    assert until_fold(session_of(name, OURS, turns)) == until_fold(session_of(name, other, turns))
