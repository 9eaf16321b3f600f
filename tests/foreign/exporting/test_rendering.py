import re

from every_case import every_case
from hostile import texts
from html_pages import Page
from hypothesis import given, settings

from palimpsest.core.events import ModelReplied, SessionOpened, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Mask, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.exchange.html import rendered, write_html
from palimpsest.exchange.pages import visible
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

_MARK = re.compile(r'<span class="md-mark">[^<]*</span>')


_TABLE = (
    '<span class="md-table"><span class="md-row md-first"><span class="md-cell"> a </span><span class="md-cell"> b </span></span>'
    '<span class="md-row"><span class="md-cell"> <span class="md-code">1</span> </span>'
    '<span class="md-cell"> 2 </span></span></span>'
)


def shown(text: str) -> str:
    """The markup of a text without the marks that a browser does not display."""
    return _MARK.sub("", rendered(text))


@every_case(
    ("text", "markup"),
    [
        ("## The cause", '<span class="md-head">The cause</span>'),
        ("#no heading", "#no heading"),
        ("- one\n  * two", '<span class="md-item"></span> one\n  <span class="md-item"></span> two'),
        ("-5 degrees", "-5 degrees"),
        ("> said so", '<span class="md-quote">said so</span>'),
        ("run `a < b` now", 'run <span class="md-code">a &lt; b</span> now'),
        ("a `b", "a `b"),
        ("**`x.py`** is **new**", '<span class="md-bold"><span class="md-code">x.py</span></span> is <span class="md-bold">new</span>'),
        ("2 ** 3 ** 4", "2 ** 3 ** 4"),
        ("`**` and **", '<span class="md-code">&#42;&#42;</span> and **'),
        ("see\n```py\nx = 1\n```\nthere", 'see<span class="code">x = 1</span>there'),
        ("```\n```", "```\n```"),
        ("[a link](https://x.example)", "[a link](https://x.example)"),
        ("| a | b |\n|---|---|\n| `1` | 2 |", _TABLE),
    ],
)
def test_markdown_is_styled(text: str, markup: str) -> None:
    assert shown(text) == markup


@given(texts)
@settings(max_examples=300, deadline=None)
def test_a_styled_text_has_every_character_of_the_text(text: str) -> None:
    page = Page(rendered(visible(text)))

    assert (page.odd, page.open, set(page.seen) <= {"span"}) == ([], [], True)
    assert page.data == visible(text)


@every_case("piece", ["**a ", "`", "|a", "|-|\n", "# ", "```\n", "> ", "**`"])
def test_a_long_hostile_text_keeps_every_character(piece: str) -> None:
    text = piece * 40_000

    assert Page(rendered(visible(text))).data == visible(text)


def test_a_page_has_no_empty_block() -> None:
    log = Log.create(MemorySessions(), SessionOpened("s", model="m"), FixedClock(1, 1))
    log.append(UserSaid((Text("go"),)))
    log.append(ModelReplied((Text("", "assistant"), Text(" \n", "assistant"), ToolCall("c", "list", "{}"))))
    log.append(ToolReturned(ToolResult("c", (Text(""),)), "list"))
    log.append(ModelReplied((Text("done", "assistant"),)))
    log.append(ViewEdited((Mask(("2.2", "3.0"), ""),), by="me"))

    page = "".join(write_html(log, MemoryBlobs()))

    assert re.findall(r"<(div|details|article|section|span|p|summary|ul|li)\b[^>]*>\s*</\1>", page) == []
    assert re.findall(r"<details[^>]*><summary>[^\n]*</summary>\s*</details>", page) == []
    assert page.count("<article") == 2
    assert "(nothing that can be read)" not in page
