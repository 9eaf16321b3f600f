"""What a session cost: every place that shows it shows the sum of its calls, each at its own price."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from pal_runs import Pal

from pal.terminal.commands.context import cost_lines, turn_costs
from pal.terminal.surroundings import _counted
from palimpsest.agent.agent import Agent
from palimpsest.agent.limits import price_book
from palimpsest.core.events import (
    Body,
    CallStarted,
    ChildEnded,
    ChildOpened,
    EventRef,
    Failed,
    Interrupted,
    ModelReplied,
    SessionOpened,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.core.text import cost_text
from palimpsest.exchange.pages import turns_of
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import PriceBook

SONNET, LONG = "claude-sonnet-4-5", "claude-sonnet-4-5[1m]"
BEGAN = 1_760_000_000_000


def call(asked: str, usage: Usage, replied: str = "", purpose: str = "turn") -> tuple[Body, Body]:
    parts = (Text("done", "assistant"),) if usage.output else ()
    return CallStarted(asked, "anthropic", digest="d", purpose=purpose), ModelReplied(parts, usage=usage, model=replied, purpose=purpose)


# Two prompts of 120,000 tokens: above the step of long prompts together, below it one by one. Dollars beside each.
CALLS: tuple[tuple[tuple[Body, ...], float], ...] = (
    (call(LONG, Usage(input=120_000, output=1_000), "claude-sonnet-4-5-20250929"), 0.36 + 0.015),
    (call(LONG, Usage(input=120_000), "an-alias-of-a-proxy"), 0.36),
    (call(LONG, Usage(input=1_000, cache_read=250_000), SONNET), 0.006 + 0.15),
    (call("gpt-5", Usage(input=10_000, output=1_000), "gpt-5-mini"), 0.0025 + 0.002),
    (call(SONNET, Usage(input=10_000), purpose="job:titles"), 0.03),
    ((CallStarted(SONNET, "anthropic", digest="d"), Failed("call", "provider", purpose="turn")), 0.0),
    ((CallStarted(SONNET, "anthropic", digest="d"), Interrupted(None, usage=Usage(input=100_000))), 0.3),
)
SUM = sum(usd for _, usd in CALLS)
UNKNOWN = call("openai-compatible/mine", Usage(input=5))
UNMEASURED = call(SONNET, Usage())
FREE = '[cards."openai-compatible/mine"]\nlike = "openai-compatible/mine"\nprices = {input = 0, output = 0}\n'


def write(pal: Pal, session: str, bodies: Sequence[Body], opener: EventRef | None = None) -> None:
    clock = FixedClock(BEGAN)
    with Log.create(pal.home.store, SessionOpened(session, model=SONNET, opener=opener), clock) as log:
        for body in bodies:
            log.append(body, foreign=True)


def places(pal: Pal, session: str, *, code: int = 0) -> dict[str, float | str | None]:
    """What each place says that a session cost."""
    found: dict[str, float | str | None] = {
        "pal sessions": {row["id"]: row["cost_usd"] for row in pal.json("sessions", code=code)}[session]
    }
    family = [member["cost_usd"] for member in pal.json("agents", session)]
    found["pal agents"] = None if None in family else sum(family)

    async def shown() -> None:
        async with Agent(SONNET, home=pal.home, resume=session, provider=Scripted(), jobs=()) as agent:
            below = agent.children_spent().usd
            own = _counted(agent.session).cost_usd
            found["editor"] = agent.cost_usd()
            found["footer"] = None if own is None or below is None else own + below
            (together,) = [
                line for line in cost_lines(agent, turn_costs(agent.session.log, price_book(agent.session))) if line.startswith("together")
            ]
            found["/cost"] = together.removeprefix("together ")

    asyncio.run(shown())
    return found


UNKNOWN_EVERYWHERE = {**dict.fromkeys(("pal sessions", "pal agents", "editor", "footer")), "/cost": "cost unknown"}


def everywhere(usd: float) -> dict[str, object]:
    return {**dict.fromkeys(("pal sessions", "pal agents", "editor", "footer"), pytest.approx(usd)), "/cost": cost_text(usd)}


def bodies_of(*more: tuple[Body, ...]) -> list[Body]:
    return [body for bodies in (*(each for each, _ in CALLS), *more) for body in bodies]


def test_every_place_shows_the_sum_of_the_calls(pal: Pal) -> None:
    write(pal, "one", bodies_of())
    assert places(pal, "one") == everywhere(SUM)
    (job,) = [row for row in pal.json("jobs", "one") if row["job"] == "titles"]
    assert (job["calls"], job["cost_usd"]) == (1, pytest.approx(0.03))
    with pal.home.open("one", write=False) as log:
        assert sum(turn.cost or 0.0 for turn in turns_of(log)) == pytest.approx(SUM)


@pytest.mark.parametrize("more", [UNKNOWN, UNMEASURED])
def test_every_place_says_that_the_cost_is_unknown_if_that_of_one_call_is(pal: Pal, more: tuple[Body, ...]) -> None:
    write(pal, "one", bodies_of(more))
    assert places(pal, "one") == UNKNOWN_EVERYWHERE
    assert " unknown " in pal("sessions").stdout
    assert "1 sub-agent" not in pal("agents", "one").stdout
    assert "cost unknown in all" in pal("agents", "one").stdout


def test_a_session_of_which_only_an_open_call_is_known_costs_an_unknown_amount(pal: Pal) -> None:
    write(pal, "one", [CallStarted(SONNET, "anthropic", digest="d")])
    assert [row["cost_usd"] for row in pal.json("sessions")] == [None]


def test_sub_agents_are_part_of_what_a_session_cost(pal: Pal) -> None:
    child: list[Body] = [ChildOpened("two", depth=1), ChildEnded("two", "completed", usage=Usage(input=1), cost_usd=SUM)]
    write(pal, "one", bodies_of(tuple(child)))
    write(pal, "two", bodies_of(), EventRef("one", 1))
    assert places(pal, "one") == everywhere(2 * SUM)
    assert [row["own_usd"] for row in pal.json("sessions")] == [pytest.approx(SUM)]
    assert {row["id"]: row["cost_usd"] for row in pal.json("sessions", "--all")} == {
        "one": pytest.approx(2 * SUM),
        "two": pytest.approx(SUM),
    }


def test_a_sub_agent_of_unknown_price_to_which_an_older_version_wrote_0_costs_an_unknown_amount(pal: Pal) -> None:
    child: list[Body] = [ChildOpened("two", depth=1, nickname="Ada"), ChildEnded("two", "completed", usage=Usage(input=5), cost_usd=0.0)]
    write(pal, "one", bodies_of(tuple(child)))
    write(pal, "two", UNKNOWN, EventRef("one", 1))
    assert places(pal, "one") == UNKNOWN_EVERYWHERE
    assert "sub-agent Ada: completed, cost unknown, session two" in pal("show", "one").stdout
    (pal.home.folder / "cards.toml").write_text(FREE)
    assert places(pal, "one")["pal agents"] == pytest.approx(SUM)
    assert f"sub-agent Ada: completed, {cost_text(0.0)}, session two" in pal("show", "one").stdout


def test_sub_agents_of_an_imported_session_are_part_of_what_it_cost(pal: Pal) -> None:
    write(pal, "one", bodies_of((ChildOpened("two"), ChildOpened("three"), ChildEnded("three", "completed"))))
    for name in ("two", "three"):
        write(pal, name, bodies_of(), EventRef("one", 1))
    assert places(pal, "one") == everywhere(3 * SUM)


def test_a_session_of_which_a_sub_agent_was_kept_nowhere_cost_an_unknown_amount_and_the_list_says_what_is_known(pal: Pal) -> None:
    write(pal, "one", bodies_of((ChildOpened("kept nowhere"), ChildEnded("kept nowhere", "completed"))))
    assert places(pal, "one") == UNKNOWN_EVERYWHERE
    assert [row["own_usd"] for row in pal.json("sessions")] == [pytest.approx(SUM)]
    assert f" {cost_text(SUM)}+? " in pal("sessions").stdout


def test_a_sub_agent_whose_file_was_deleted_cost_what_its_parent_has_recorded(pal: Pal) -> None:
    ended = ChildEnded("two", "completed", usage=Usage(input=10), cost_usd=SUM)
    write(pal, "one", bodies_of((ChildOpened("two", depth=1), ended)))
    assert places(pal, "one") == everywhere(2 * SUM)
    # Nothing tells what one cost whose end was not recorded.
    write(pal, "more", bodies_of((ended, ChildOpened("three", depth=1))))
    assert places(pal, "more") == UNKNOWN_EVERYWHERE
    assert "cost unknown in all" in pal("agents", "more").stdout


def test_a_sub_agent_that_went_on_after_its_end_was_recorded_cost_what_its_file_says(pal: Pal) -> None:
    write(pal, "one", bodies_of((ChildOpened("two", depth=1), ChildEnded("two", "completed", usage=Usage(input=10), cost_usd=1.0))))
    write(pal, "two", bodies_of(CALLS[0][0]), EventRef("one", 1))
    assert places(pal, "one") == everywhere(2 * SUM + CALLS[0][1])


def test_a_sub_agent_whose_file_is_damaged_costs_the_same_in_every_place(pal: Pal) -> None:
    write(pal, "one", bodies_of((ChildOpened("two", depth=1), ChildEnded("two", "completed", usage=Usage(input=10), cost_usd=SUM))))
    write(pal, "two", bodies_of(), EventRef("one", 1))
    (pal.home.folder / "sessions" / "two.jsonl").write_bytes(b"\x00" * 4_096)
    assert places(pal, "one", code=1) == everywhere(2 * SUM)


def test_every_place_counts_a_call_that_was_broken_off_with_the_same_estimate(pal: Pal) -> None:
    broken = (CallStarted(SONNET, "anthropic", digest="d", estimate=100_000), Interrupted(None, (Text("I be", "assistant"),), model=SONNET))
    write(pal, "one", [UserSaid((Text("go"),)), *broken])
    shown = places(pal, "one")
    (usd,) = {each for name, each in shown.items() if name != "/cost"}
    assert isinstance(usd, float)
    # 100,000 by the estimate; Claude has more tokens than that, and a request may have more than its estimate.
    assert (0.3 < usd < 0.6, shown["/cost"]) == (True, cost_text(usd))
    with pal.home.open("one", write=False) as log:
        assert [turn.cost for turn in turns_of(log)] == [turn.usd for turn in turn_costs(log, PriceBook())] == [pytest.approx(usd)]

    async def lines() -> list[str]:
        async with Agent(SONNET, home=pal.home, resume="one", provider=Scripted(), jobs=()) as agent:
            return list(cost_lines(agent, ()))

    assert "turn: 1 call (1 broken off, and therefore estimated), " in asyncio.run(lines())[0]


COPILOT = (
    ("session.start", {"sessionId": "s1", "copilotVersion": "1.0.64", "startTime": "2026-06-25T01:50:34Z", "context": {"cwd": "/repo"}}),
    ("user.message", {"content": "look"}),
    ("assistant.message", {"messageId": "m1", "model": SONNET, "content": "done", "toolRequests": [], "outputTokens": 7_000}),
)


def test_a_session_of_a_program_that_counts_its_replies_alone_costs_an_unknown_amount(pal: Pal, tmp_path: Path) -> None:
    lines = [
        {"type": kind, "data": data, "id": f"e{n}", "timestamp": f"2026-06-25T01:50:{n:02}Z", "parentId": f"e{n - 1}" if n else None}
        for n, (kind, data) in enumerate(COPILOT)
    ]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    session = pal.json("import", str(tmp_path / "events.jsonl"))["files"][0]["session"]
    assert places(pal, session) == UNKNOWN_EVERYWHERE
    assert "7,000 written · price unknown" in pal("export", session, "--to", "html").stdout


@pytest.mark.parametrize("usage", [Usage(), Usage(output=7_000)])
def test_no_turn_of_a_program_that_does_not_say_what_it_read_costs_nothing(pal: Pal, usage: Usage) -> None:
    write(pal, "one", [UserSaid((Text("go"),)), CallStarted(SONNET, "anthropic"), ModelReplied((Text("done", "assistant"),), usage=usage)])
    with pal.home.open("one", write=False) as log:
        assert [(turn.usd, turn.calls[0].usd) for turn in turn_costs(log, PriceBook())] == [(None, None)]


def test_the_process_of_an_editor_says_what_pal_sessions_says(pal: Pal, tmp_path: Path) -> None:
    pytest.importorskip("acp")
    child: tuple[Body, ...] = (ChildOpened("kid", depth=1), ChildEnded("kid", "completed", usage=Usage(input=1), cost_usd=SUM))
    for session, bodies in {"known": bodies_of(), "unknown": bodies_of(UNKNOWN), "family": bodies_of(child)}.items():
        write(pal, session, bodies)
    write(pal, "kid", bodies_of(), EventRef("family", 1))
    requests: list[tuple[str, dict[str, object]]] = [("initialize", {"protocolVersion": 1})]
    requests += [("session/load", {"sessionId": name, "cwd": str(tmp_path), "mcpServers": []}) for name in ("known", "unknown", "family")]
    lines = [{"jsonrpc": "2.0", "id": number, "method": method, "params": params} for number, (method, params) in enumerate(requests)]
    with subprocess.Popen(
        [sys.executable, "-m", "pal.cli", "acp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PAL_HOME": str(pal.home.folder), "HOME": str(tmp_path), "PAL_MODEL": SONNET, "PAL_SANDBOX": "off"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        shown: dict[str, float | None] = {}
        for number, line in enumerate(lines):
            process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.flush()
            while (message := json.loads(process.stdout.readline())).get("id") != number:
                update = message.get("params", {}).get("update", {})
                if update.get("sessionUpdate") == "usage_update":
                    shown[message["params"]["sessionId"]] = update.get("cost", {}).get("amount")
        process.stdin.close()
    assert shown == {row["id"]: row["cost_usd"] and pytest.approx(row["cost_usd"], abs=1e-6) for row in pal.json("sessions")}
    assert shown == {"known": pytest.approx(SUM, abs=1e-6), "unknown": None, "family": pytest.approx(2 * SUM, abs=1e-6)}


def test_what_replay_calls_recorded_is_what_the_session_cost(pal: Pal) -> None:
    write(pal, "one", [UserSaid((Text("go"),)), *bodies_of()])
    assert pal.json("replay", "one")["sessions"][0]["profiles"]["recorded"]["usd"] == pytest.approx(SUM)


def test_a_replay_of_a_model_without_a_price_says_whose_prices_it_takes(pal: Pal) -> None:
    write(pal, "one", [UserSaid((Text("go"),)), *call("openai-compatible/mine", Usage(input=50_000, output=10))])
    (session,) = pal.json("replay", "one")["sessions"]
    assert (session["stand_in_for"], session["window"]) == ("openai-compatible/mine", 128_000)
    assert all(profile["usd"] > 0.1 for profile in session["profiles"].values())
    shown = " ".join(pal("replay", "one").stdout.split())
    assert "no price is known for openai-compatible/mine, so it is billed as claude-sonnet-4-5" in shown


def test_a_card_that_is_written_later_makes_the_price_known_everywhere(pal: Pal) -> None:
    write(pal, "one", bodies_of(UNKNOWN))
    assert places(pal, "one")["pal sessions"] is None
    (pal.home.folder / "cards.toml").write_text(FREE)
    assert places(pal, "one") == everywhere(SUM)
