"""A view of 0.1.0 with repeated call ids is analysed like one with unique ids."""

from collections.abc import Callable
from typing import Any

from every_case import every_case
from situations import situation
from stubs import stub_of

from pal.cli.audit import codes_in
from pal.replay.replay import window_shares
from palimpsest.audit.citations import sources_of
from palimpsest.audit.gate import pinned
from palimpsest.audit.uses import clearing_masks
from palimpsest.audit.working_state import must_read_again, read_paths
from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.peers.clearing import MaskOld, PruneResults, maskable

CALLS = (("Read", '{"file_path":"a.py"}'), ("Bash", '{"command":"make"}'), ("Read", '{"file_path":"b.py"}'), ("skill", '{"name":"x"}'))


def view(ids: tuple[str, ...], rounds: tuple[int, ...]) -> View:
    """Some calls and results, so many calls in each round."""
    items = [Item("1.0", "user", Text("go"))]
    number = 0
    for count in rounds:
        seq = len(items) + 1
        some = range(number, number + count)
        items += [Item(f"{seq}.{place}", "call", ToolCall(ids[each], *CALLS[each])) for place, each in enumerate(some)]
        results = [ToolResult(ids[each], (Text(f"x{900 + each}"),)) for each in some]
        items += [Item(f"{seq + 1 + place}.0", "result", result) for place, result in enumerate(results)]
        number += count
    return View(items=tuple(items), pins=frozenset({"b.py", items[2].id}))


def results(view: View) -> list[int]:
    return [place for place, item in enumerate(view.items) if item.kind == "result"]


QUESTIONS: dict[str, Callable[[View], Any]] = {
    "pinned": pinned,
    "sources_of": lambda view: sources_of(view.items),
    "read_paths": read_paths,
    "must_read_again": must_read_again,
    "maskable": lambda view: [item.id for item in maskable(view)],
    "shares": lambda view: window_shares(view, lambda _: 1),
    "codes_in": lambda view: codes_in(view, {item.id: place for place, item in enumerate(view.items) if item.kind == "result"}),
    "mask_old": lambda view: MaskOld(keep=0).plan(situation(view.items)),
    "prune_results": lambda view: PruneResults(protect=0, least=0, turns=0).plan(situation(view.items)),
    "stub_of": lambda view: [stub_of(view.items, place, 100) for place in results(view)],
    "clearing_masks": lambda view: clearing_masks(view, results(view), situation(view.items).tokens),
}


@every_case("rounds", [(1, 1, 1, 1), (2, 2), (4,)])
@every_case("question", QUESTIONS)
def test_with_one_id_for_all_calls_the_answer_is_that_with_unique_ids(question: str, rounds: tuple[int, ...]) -> None:
    repeated, unique = view(("call_0",) * 4, rounds), view(("call_1", "call_2", "call_3", "call_4"), rounds)
    assert QUESTIONS[question](repeated) == QUESTIONS[question](unique)
