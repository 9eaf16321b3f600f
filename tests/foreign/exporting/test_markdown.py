from collections.abc import Iterator
from pathlib import Path

import pytest
from every_case import every_case
from hostile import hostile_log, texts
from html_pages import Page
from hypothesis import given, settings
from markdown_it import MarkdownIt
from pal_runs import SMALL, edited

from palimpsest.core.events import ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.redaction import redact
from palimpsest.core.undo import rewind, undo
from palimpsest.exchange.html import escaped, fence, quoted, write_markdown
from palimpsest.exchange.pages import visible
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock, MemorySessions

_READERS = (MarkdownIt("commonmark"), MarkdownIt("commonmark").enable(["table", "strikethrough"]))


class _Rendered(Page):
    """A rendered document, in which even a declaration is odd."""

    def handle_decl(self, decl: str) -> None:
        self.odd.append(decl)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Log]:
    edited(FolderHome(tmp_path))
    with Log.open(FolderHome(tmp_path).store, SMALL, FixedClock(1_932_800_500_000, 1_000), write=True) as log:
        yield log


def _structure(page: str, reader: MarkdownIt) -> list[str]:
    """The blocks of a document as far as we made them: the content of quotes is ignored."""
    shape: list[str] = []
    quotes = 0
    for token in reader.parse(page):
        quotes -= token.type == "blockquote_close"
        if quotes == 0:
            shape.append(token.type if token.type != "html_block" else token.content.partition(">")[0])
        quotes += token.type == "blockquote_open"
    return shape


def test_a_small_session_reads_like_this(small: Log) -> None:
    assert "".join(write_markdown(small, limit=60)) == _PAGE


_PAGE = """# What is in a.py?

- session: 20310401-090000-aaaa
- written by: palimpsest
- folder: shop
- model: claude-sonnet-4-5
- began: 2031-04-01 09:00:00 UTC
- length: 2 messages of the user, 16 events

## 0\\. Before the first message

<details><summary>Context (base), event 1: 1 line, 9 bytes</summary>

```text
Be brief.
```

</details>

## 1\\. What is in a.py?

**User** · event 2 · 2031-04-01 09:00:02 UTC

> What is in a.py?

**Assistant** · event 4 · 2031-04-01 09:00:04 UTC · claude-sonnet-4-5 · hidden now

> I look.

<details><summary><b>read</b> a.py → 40 lines, 520 bytes · hidden now</summary>

```text
path: a.py
```

```text
timeout = 10
timeout = 10
timeout = 10
t
… 460 characters are left out here …
t = 10
timeout = 10
```

</details>

**Assistant** · event 8 · 2031-04-01 09:00:08 UTC · claude-sonnet-4-5 · hidden now

> A timeout of ten seconds.

*Turn 1: 2 calls · 800 tokens read · 30 written · $0.0028*

## 2\\. 超时改成 30 秒

**User** · event 10 · 2031-04-01 09:00:10 UTC

> 超时改成 30 秒

**Assistant** · event 12 · 2031-04-01 09:00:12 UTC · claude-sonnet-4-5

> 好的。

**Edit 14** by tester: it was long · 900 → 40 tokens · hides 4 items · adds 1 item

> a.py was read.

<details><summary>What edit 14 hid: 4</summary>

- 4.0 assistant: I look.
- 4.1 call: read {"path":"a.py"}
- 6.0 result: timeout = 10 timeout = 10 timeout = 10 timeout = 10 timeout = 10 timeout = 10 t…
- 8.0 assistant: A timeout of ten seconds.

</details>

**Edit 15** by tester: shorter still · hides 1 item

> (hidden)

<details><summary>What edit 15 hid: 1</summary>

- 14.0.0 summary: a.py was read.

</details>

*Turn 2: 1 call*
"""


def test_an_undone_edit_and_a_rewind_are_shown(small: Log) -> None:
    undo(small, 15, why="I want it back")
    small.append(UserSaid((Text("go on"),)))
    rewind(small, 16, why="not that way")
    page = "".join(write_markdown(small))

    assert "**Edit 15** by tester: shorter still · hides 1 item · undone later\n" in page
    assert "**Event 16**: edit 15 was undone; 1 item shown again\n\n> I want it back\n" in page
    assert page.endswith("**Event 18**: went back to event 16; 1 event left on a branch\n\n> not that way\n\n*Turn 2: 1 call*\n")


def test_edits_after_an_undone_one_hide_what_shows_again(small: Log) -> None:
    undo(small, 14)
    small.append(small.event(14).body)
    assert "".join(write_markdown(small)).count("· hides 4 items · adds 1 item") == 2


def test_an_earlier_state_is_shown_up_to_its_event(small: Log) -> None:
    page = "".join(write_markdown(small, small.reader.path(4)))
    folded = "<details><summary><b>read</b> a.py → no result was recorded</summary>\n\n```text\npath: a.py\n```\n\n</details>\n"
    assert page.endswith(f"{folded}\n*Turn 1: 1 call · 100 tokens read · 20 written · $0.0006*\n")


def test_secrets_are_taken_out_of_every_text() -> None:
    log = Log.create(MemorySessions(), SessionOpened("s"), FixedClock(1, 1))
    key = "sk-ant-" + "a1B2" * 10
    log.append(UserSaid((Text(f"use {key}"),)))
    log.append(ModelReplied((ToolCall("c", "bash", f'{{"command":"curl -H {key}"}}'), ToolCall("d", "x", "{}"))))
    log.append(ToolReturned(ToolResult("c", (Text(key),)), "bash"))
    page = "".join(write_markdown(log, clean=redact))

    assert key in "".join(write_markdown(log))
    assert key not in page
    lines = [line for line in page.splitlines() if "REDACTED" in line]
    assert lines == [
        "# use \\[REDACTED:anthropic\\]",
        "## 1\\. use \\[REDACTED:anthropic\\]",
        "> use [REDACTED:anthropic]",
        "<details><summary><b>bash</b> curl -H [REDACTED:anthropic] → 1 line, 20 bytes</summary>",
        "command: curl -H [REDACTED:anthropic]",
        "[REDACTED:anthropic]",
    ]


@every_case(
    ("text", "shown"),
    [
        ("a < b and a <b> c", "> a < b and a &lt;b> c"),
        ("use `Vec<u8>` here", "> use `Vec<u8>` here"),
        ("an odd ` and `Vec<u8>`", "> an odd ` and `Vec&lt;u8>`"),
        ("``a ` <b>`` `<i>`", "> ``a ` <b>`` `<i>`"),
        ("[a](b`c) ` `<b>`", "> [a]\\(b`c) ` `&lt;b>`"),
        ("| `a | <b>` |", "> | `a | &lt;b>` |"),
        ("one\n\n```html\n<p>\n```\n<p>", "> one\n>\n> ```html\n> <p>\n> ```\n> &lt;p>"),
        ("- a\n  ```\n</details>", "> - a\n>   ```\n> &lt;/details>"),
        ("an end\r\nof two\rkinds", "> an end\n> of two\n> kinds"),
        ("\x00\x1b[31m\u202eabc", "> ␀␛[31m�abc"),
        ("", ">"),
    ],
)
def test_a_quote_shows_tags_and_leaves_code_alone(text: str, shown: str) -> None:
    assert quoted(text) == shown


def test_a_fence_is_longer_than_any_run_of_backticks_in_it() -> None:
    assert fence("a ```` b\n```") == "`````text\na ```` b\n```\n`````"


@given(texts)
@settings(max_examples=300)
def test_a_fence_holds_exactly_its_text(text: str) -> None:
    (block,) = MarkdownIt("commonmark").parse(fence(text))
    assert block.content == visible(text).removesuffix("\n") + "\n"


@given(texts)
@settings(max_examples=300)
def test_one_line_of_words_is_only_text(text: str) -> None:
    line = " ".join(visible(text).split())
    for reader in _READERS:
        (inline,) = [token for token in reader.parse(f"# a {escaped(line)}") if token.type == "inline"]
        assert inline.children is not None
        assert {token.type for token in inline.children} <= {"text", "text_special"}
        assert "".join(token.content for token in inline.children) == f"a {line}".rstrip()


@given(texts)
@settings(max_examples=400)
def test_a_quote_is_one_block_without_markup_of_html(text: str) -> None:
    for reader in _READERS:
        tokens = reader.parse(quoted(text))
        assert [token.type for token in tokens if token.level == 0] == ["blockquote_open", "blockquote_close"]
        inner = [child for token in tokens for child in (token, *(token.children or ()))]
        assert not {"html_block", "html_inline"} & {token.type for token in inner}


@given(texts)
@settings(max_examples=150, deadline=None)
def test_no_text_breaks_the_structure_of_a_transcript(text: str) -> None:
    page = "".join(write_markdown(hostile_log(f"x{text}"), limit=100))
    plain = "".join(write_markdown(hostile_log("x"), limit=100))
    for reader in _READERS:
        assert _structure(page, reader) == _structure(plain, reader)
        rendered = _Rendered(reader.render(page))
        assert (rendered.odd, rendered.open) == ([], [])
        assert rendered.seen["details"] == plain.count("\n<details><summary>")
