"""The index of results by the names they show."""

from palimpsest.audit.tool_calls import Action
from palimpsest.audit.visible import ResultIndex, index_results
from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.plans import Use

ITEMS = (
    Item("1.0", "call", ToolCall("c", "Bash", '{"command":"make"}')),
    Item("2.0", "result", ToolResult("c", (Text("only words"),))),
)


def test_a_name_that_no_result_shows_any_more_is_not_kept() -> None:
    index = ResultIndex()
    index.add("2.0", Use(1), None, ("parse_it", "my_name"), None)
    index.add("4.0", Use(1), None, ("my_name",), None)
    index.hide("2.0", ("parse_it", "my_name"))
    assert vars(index)["_names"] == {"my_name": ["4.0"]}
    assert index.results_naming(("parse_it", "my_name")) == {"4.0"}


def test_a_result_without_names_is_searched_once_by_the_given_function() -> None:
    asked: list[ToolResult] = []

    def names(result: ToolResult, _: Action | None) -> tuple[str, ...]:
        asked.append(result)
        return ()

    known: dict[str, tuple[str, ...]] = {}
    for _ in range(2):
        index_results(ITEMS, {"2.0": Use(1)}, known, names)
    assert (known, asked) == ({"2.0": ()}, [ITEMS[1].content])
