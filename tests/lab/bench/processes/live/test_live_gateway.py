"""Recorded sessions through the real process, against a provider whose bills share no code with the gateway's."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from pal_lab.bench.live import BilledTokens, MarkedCache, PrefixCache, live_rows, recorded_requests

GOLDEN = Path(__file__).parents[4] / "golden/foreign/claude/2.1.325/projects/-repo-project/69901b92-81d1-436f-9093-e5364257259e.jsonl"
PAL = (sys.executable, "-m", "pal.cli")


def transcript(path: Path, rounds: int) -> Path:
    """A session as Claude Code writes it: files are read, edited and read again, and tests print much."""
    lines = [{"type": "user", "isSidechain": False, "uuid": "u", "message": {"role": "user", "content": "Fix the parser, and test it."}}]
    for number in range(rounds):
        name, words = ("Bash", {"command": f"pytest -k t{number}"}) if number % 3 else ("Read", {"file_path": f"src/m{number % 5}.py"})
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": words}
        text = "\n".join(
            f"{number}:{line}  value_{line * number} = compute({line}, 'näme')  # {name}" for line in range(60 + 37 * (number % 4))
        )
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}
        reply = {"id": f"msg_{number}", "role": "assistant", "content": [{"type": "text", "text": f"Step {number}."}, block]}
        lines.append({"type": "assistant", "isSidechain": False, "uuid": f"a{number}", "message": reply})
        lines.append({"type": "user", "isSidechain": False, "uuid": f"r{number}", "message": {"role": "user", "content": [result]}})
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_live_the_bill_stays_within_a_hundredth_of_direct_after_each_request_and_the_gateway_says_what_is_true(tmp_path: Path) -> None:
    # In mode `thrifty` nearly every request of the first one hides a result that the one before it showed.
    files = (transcript(tmp_path / "synthetic.jsonl", 20), GOLDEN)
    rows = list(live_rows(files, tmp_path / "homes", PAL, modes=("thrifty",)))
    assert [(row.session, row.requests, row.ok) for row in rows] == [("synthetic", 20, True)] * 2 + [(GOLDEN.stem, 19, True)] * 2, rows
    assert min(row.edited for row in rows[:2]) > 12
    assert max(row.usd / row.usd_direct for row in rows[:2]) < 0.9


def test_a_marked_cache_reads_what_ends_near_a_mark_for_five_minutes_or_an_hour_and_not_across_a_change() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    long = "a " * 2_000

    def request(*texts: str, system: str = long) -> dict[str, Any]:
        content = [{"type": "text", "text": text} for text in texts]
        return {
            "system": [{"type": "text", "text": system}],
            "messages": [{"role": "user", "content": [*content[:-1], content[-1] | mark]}],
        }

    cache = MarkedCache()
    first = cache.bill(request("one"), 0)
    second = cache.bill(request("one", "two"), 299)
    assert (first.read, first.input, second.read) == (0, 0, first.written)
    assert cache.bill(request("one", "two"), 299 + 301).read == 0
    assert cache.bill(request("one", "two", system=f"b {long}"), 601).read == 0
    # 20 blocks before the mark are looked at, the marked one among them.
    assert cache.bill(request("one", "two", *map(str, range(19))), 602).read == second.read + second.written
    assert cache.bill(request("x", *map(str, range(30))), 603).read == 0


def test_a_prefix_cache_reads_whole_steps_of_the_longest_common_beginning() -> None:
    cache, long = PrefixCache(), "a " * 1_000
    request = {"messages": [{"role": "system", "content": long}, {"role": "user", "content": "one"}]}
    first = cache.bill(request, 0)
    again = cache.bill({"messages": [*request["messages"], {"role": "user", "content": "two"}]}, 10)
    assert (first.read, again.read) == (0, first.input // 128 * 128)
    assert cache.bill(request, 1_000) == BilledTokens(input=first.input)


def test_the_requests_of_a_transcript_end_with_what_the_program_sent_before_each_reply() -> None:
    requests = list(recorded_requests(GOLDEN))
    assert len(requests) == 19
    assert {request.messages[-1]["role"] for request in requests} == {"user"}
    # After the compactions of the program the list is short again.
    assert sum(len(after.messages) < len(before.messages) for before, after in pairwise(requests)) == 2
