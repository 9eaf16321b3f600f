"""Tools and models that misbehave: every call gets one result, and the turn goes on."""

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from loops import bodies, calls, kinds, loop_of, results, tool, typed

from palimpsest.agent.agent import Agent
from palimpsest.agent.decision import Approval, AskUser
from palimpsest.agent.limits import Limits
from palimpsest.agent.tool import tool_from
from palimpsest.agent.tool_calls import MOST_AT_ONCE, Toolbox
from palimpsest.agent.turn import Loop, run_turn
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings, refuse_all
from palimpsest.core.errors import StoreError
from palimpsest.core.events import Event, Failed, ModelReplied, Permitted, ToolReturned, TurnEnded
from palimpsest.core.items import Text, ToolCall, text_of
from palimpsest.core.log import UNKNOWN_OUTCOME
from palimpsest.providers.scripted import Scripted, StalledReply
from palimpsest.stores.home import Home


def exits() -> str:
    """End the process, as programs with a command line do."""
    raise SystemExit(2)


def coded(root: Path, *asked: tuple[str, str], mode: str = "ask") -> list[tuple[str, str]]:
    """The results of one reply with these calls of the standard tools, and the reason why the turn ended."""

    async def run() -> list[tuple[str, str]]:
        home = Home.in_memory()
        reply = ModelReplied(tuple(ToolCall(f"c{number}", name, args) for number, (name, args) in enumerate(asked)))
        found: list[tuple[str, str]] = []
        async with Agent("claude-sonnet-4-5", provider=Scripted(reply, "done"), cwd=root, home=home) as agent:
            equip(agent, home, CodingSettings(mode="edits" if mode == "edits" else "ask", sandbox="off"), refuse_all)
            async for piece in agent.run("go"):
                if isinstance(piece, Event) and isinstance(piece.body, ToolReturned):
                    found.append((piece.body.tool, text_of(piece.body.result)))
                elif isinstance(piece, Event) and isinstance(piece.body, TurnEnded):
                    found.append(("stop", piece.body.stop))
        return found

    return asyncio.run(run())


def test_a_tool_that_ends_the_process_is_an_error_result() -> None:
    loop = loop_of(calls(("a", "exits", "{}")), "done", tools=(tool_from(exits),))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert results(loop.session) == [("a", "exits failed: SystemExit: 2")]


def test_a_tool_that_cancels_itself_does_not_interrupt_the_turn() -> None:
    async def cancels(_: str) -> str:
        raise asyncio.CancelledError

    loop = loop_of(calls(("a", "t", "{}")), "done", tools=(tool("t", cancels),))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert results(loop.session) == [("a", "t failed: it cancelled itself")]


def test_a_time_limit_of_a_tool_is_not_taken_for_that_of_the_loop() -> None:
    async def late(_: str) -> str:
        raise TimeoutError("the server was silent")

    loop = loop_of(calls(("a", "t", "{}")), "done", tools=(tool("t", late),))
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    assert results(loop.session) == [("a", "t failed: TimeoutError: the server was silent")]


def test_hundreds_of_calls_in_one_reply_run_a_few_at_a_time() -> None:
    running = most = 0
    full = asyncio.Event()

    async def counted(args: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == MOST_AT_ONCE:
            full.set()
        await full.wait()
        running -= 1
        return args

    asked = [(f"c{number}", "t", f'{{"n":{number}}}') for number in range(200)]
    loop = loop_of(calls(*asked), "done", tools=(tool("t", counted, parallel=True),))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert most == MOST_AT_ONCE
    assert results(loop.session) == [(call_id, args) for call_id, _, args in asked]


def test_a_tool_that_runs_longer_than_the_turn_may_is_cancelled_and_answered() -> None:
    cancelled: list[str] = []

    async def waits(args: str) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(args)
            raise
        return "never"

    loop = loop_of(calls(("a", "t", "{}"), ("b", "t", "{}")), tools=(tool("t", waits),), limits=Limits(seconds=0.2))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "max_seconds"
    assert cancelled == ["{}"]
    assert results(loop.session) == [
        ("a", UNKNOWN_OUTCOME),
        ("b", "Not run: the turn reached its time limit before this tool was started."),
    ]
    assert bodies(loop.session)[-1] == TurnEnded("max_seconds")


def test_a_model_that_is_silent_longer_than_the_turn_may_take_is_cancelled() -> None:
    stalled = StalledReply("half of an answer", after=2)
    loop = loop_of(stalled, "more", limits=Limits(seconds=0.2))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "max_seconds"
    assert stalled.reached.is_set()
    assert kinds(loop.session)[-2:] == ["Interrupted", "TurnEnded"]
    typed(loop.session, "go on")
    assert asyncio.run(run_turn(loop)) == "done"


def test_a_rule_that_cannot_be_stored_does_not_end_the_turn() -> None:
    async def approve(_: object) -> Approval:
        return Approval("always")

    def full(_: str) -> None:
        raise StoreError("the disk is full")

    loop = loop_of(calls(("a", "echo", "{}")), "ok", decide=lambda *_: AskUser("run echo?", "echo"), approve=approve)
    toolbox = Toolbox(loop.toolbox.tools, loop.toolbox.workspace, loop.toolbox.decide, approve, full)
    loop = Loop(loop.session, toolbox, loop.feed)
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert results(loop.session) == [("a", "echo {}")]
    assert [body for body in bodies(loop.session) if isinstance(body, Failed | Permitted)] == [
        Failed("keeping a rule", "store", "the disk is full"),
        Permitted("a", "echo", "user", "echo"),
    ]


def test_file_names_that_are_no_text_are_shown_with_escapes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.txt")).write_text("two\n")
    os.utime(tmp_path / "a.txt", (1, 1))
    assert coded(tmp_path, ("read", '{"path":"."}'), ("glob", '{"pattern":"*"}')) == [
        ("read", "a.txt\nb\\udcff.txt"),
        ("glob", "b\\udcff.txt\na.txt"),
        ("stop", "done"),
    ]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("read", r'{"path":"\ud800"}'),
        ("write", r'{"path":"\ud800","content":"x"}'),
        ("apply_patch", r'{"patch":"*** Begin Patch\n*** Add File: \ud800\n+x\n*** End Patch"}'),
        ("bash", r'{"command":"cat \ud800"}'),
        ("bash", json.dumps({"command": f"diff {'a' * 3000} b"})),
        ("glob", r'{"pattern":"*","path":"\ud800"}'),
        ("read", '{"path":' + "[" * 100_000 + "]" * 100_000 + "}"),
    ],
)
def test_arguments_that_no_file_can_have_are_refused_and_the_turn_goes_on(tmp_path: Path, name: str, args: str) -> None:
    refused, *rest = coded(tmp_path, (name, args), mode="edits")
    assert refused[0] == name
    assert refused[1].startswith("This call was not run: the arguments ")
    assert rest == [("stop", "done")]


def test_a_compaction_with_arguments_of_any_shape_does_not_end_the_turn(tmp_path: Path) -> None:
    deep = '{"focus":"x","y":' + "[" * 100_000 + "]" * 100_000 + "}"
    (name, text), *rest = coded(tmp_path, ("compact", deep))
    assert (name, text.startswith("The arguments of compact are not valid")) == ("compact", True)
    assert rest == [("stop", "done")]


def test_instructions_of_a_folder_are_attached_once_to_the_results_of_one_reply(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/AGENTS.md").write_text("Write in verse.\n")
    (tmp_path / "d/a").write_text("1\n")
    (tmp_path / "d/b").write_text("2\n")
    assert coded(tmp_path, ("read", '{"path":"d/a"}'), ("read", '{"path":"d/b"}')) == [
        ("read", text_of(Text(f"     1\t1\nInstructions from: {tmp_path}/d/AGENTS.md\nWrite in verse."))),
        ("read", "     1\t2"),
        ("stop", "done"),
    ]


def test_a_tool_that_takes_no_notice_of_an_interrupt_ends_the_turn_nevertheless() -> None:
    async def run() -> tuple[list[tuple[str, str]], list[str]]:
        started, released = asyncio.Event(), asyncio.Event()

        async def stubborn(_: str) -> str:
            started.set()
            while not released.is_set():
                with suppress(asyncio.CancelledError):
                    await released.wait()
            return "done all the same"

        loop = loop_of(calls(("a", "t", "{}"), ("b", "t", "{}")), "never", tools=(tool("t", stubborn),))
        typed(loop.session, "go")
        turn = asyncio.ensure_future(run_turn(loop))
        await started.wait()
        turn.cancel()
        # After the cancellation has reached the tool.
        asyncio.get_running_loop().call_soon(released.set)
        await asyncio.wait((turn,))
        assert turn.cancelled()
        return results(loop.session), [body.stop for body in bodies(loop.session) if isinstance(body, TurnEnded)]

    given = [("a", "done all the same"), ("b", "Interrupted by the user before this tool was run.")]
    assert asyncio.run(run()) == (given, ["interrupted"])
