"""What a model sees of an item under each kind of mask."""

from every_case import every_case

from palimpsest.core.items import Content, Cover, Document, Image, Item, Kind, Opaque, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import palimpsest_size
from palimpsest.core.view import is_readable, placeholder_content, shown
from palimpsest.wire.media import no_blobs
from palimpsest.wire.models import card
from palimpsest.wire.repair import sendable_content

CUT = Cover("cut")
CASES: list[tuple[Kind, Content, Content]] = [
    ("user", Text("long", ref="m1"), Text("cut", ref="m1")),
    ("assistant", Text("long", "assistant", "final"), Text("cut", "assistant", "final")),
    ("call", ToolCall("c", "write", '{"text":"long"}'), ToolCall("c", "write", '{"note":"cut"}')),
    ("call", ToolCall("c", "patch", "*** Begin", "free"), ToolCall("c", "patch", "cut", "free")),
    ("call", ToolCall("c", "sh", "{}", "shell"), ToolCall("c", "sh", '{"type":"exec","command":["cut"],"env":{}}', "shell")),
    ("result", ToolResult("c", (Text("long"),), error=True, blob="b1"), ToolResult("c", (Text("cut"),), error=True)),
    ("thinking", Thinking("long"), Text("cut", "assistant")),
    ("assistant", Opaque("p", "m", "{}", "long"), Text("cut", "assistant")),
    ("user", Image("image/png", "b1"), Text("cut")),
    ("context", Document("application/pdf", "b1", ref="m2"), Text("cut", ref="m2")),
]


@every_case(("kind", "content", "covered"), CASES)
def test_a_cover_has_the_shape_of_the_content_that_it_replaces(kind: Kind, content: Content, covered: Content) -> None:
    assert shown(Item("1.0", kind, content, mask=CUT)) == covered
    assert placeholder_content(Item("1.0", kind, content), "cut") == covered


@every_case(("kind", "content", "covered"), CASES)
@every_case("model", ["claude-sonnet-4-5", "gpt-5", "local/any"])
def test_the_counted_content_of_a_masked_item_is_what_is_sent(kind: Kind, content: Content, covered: Content, model: str) -> None:
    item = Item("1.0", kind, content, mask=CUT)
    assert sendable_content(item, card(model), no_blobs) == covered
    assert TokenCounter(palimpsest_size).item(item) == palimpsest_size(covered)


@every_case(("kind", "content", "covered"), CASES)
def test_without_a_mask_the_content_shows_and_under_an_empty_one_nothing(kind: Kind, content: Content, covered: Content) -> None:
    open_item, hidden = Item("1.0", kind, content), Item("1.0", kind, content, mask=Cover())
    assert (shown(open_item), shown(hidden)) == (content, None)
    assert (is_readable(open_item), is_readable(hidden)) == (True, False)


def test_only_a_result_is_dropped_by_a_provider_that_drops_what_is_cached() -> None:
    result = Item("1.0", "result", ToolResult("c", (Text("long"),)), mask=Cover("cut", "cached"))
    text = Item("2.0", "user", Text("long"), mask=Cover("cut", "cached"))
    assert [shown(result), shown(text)] == [result.content, text.content]
    assert [shown(result, drops_cached=True), shown(text, drops_cached=True)] == [ToolResult("c", (Text("cut"),)), text.content]
    assert [is_readable(result), is_readable(text)] == [True, True]
