"""The pages of `pal replay --html` and `pal export --to html` on a screen of 375 pixels, judged by rules for their elements and styles."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest
from every_case import every_case
from pal_runs import LONG, Pal, long
from replay_samples import CARD, comparison

from pal.replay.outcome import Comparison
from pal.replay.report import write_page
from palimpsest.core.events import ModelReplied, SessionOpened, Titled, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Mask, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.exchange.html import write_html
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

SCREEN_PX = 375
# A letter is at least 8 pixels wide at the usual size, so that a longer word may not fit beside the margins.
LONGEST_WORD = 40
EMPTY = {"meta", "img"}
PIXELS = {"px": 1.0, "rem": 16.0, "em": 16.0, "pt": 4 / 3, "ch": 8.0, "vw": SCREEN_PX / 100}


class Element(NamedTuple):
    """An open element: its tag, its classes and its attributes."""

    tag: str
    classes: frozenset[str]
    attributes: dict[str, str]


class Rule(NamedTuple):
    """A style rule that holds on the screen: one selector, as compounds from the outermost to the element, and its declarations."""

    selector: tuple[str, ...]
    declarations: dict[str, str]


def blocks(css: str) -> Iterator[tuple[str, str]]:
    """The outermost blocks of a style sheet: what stands before the brace, and what stands within."""
    depth, start, head = 0, 0, ""
    for place, sign in enumerate(css):
        if sign == "{":
            depth += 1
            if depth == 1:
                head, start = css[start:place].strip(), place + 1
        elif sign == "}":
            depth -= 1
            if depth == 0:
                yield head, css[start:place]
                start = place + 1


def rules_of(css: str) -> Iterator[Rule]:
    """The rules for a screen of this width, in their order."""
    for head, inner in blocks(css):
        limit = re.search(r"max-width:([\d.]+)(\w+)", head)
        if head.startswith("@media") and limit is not None and float(limit[1]) * PIXELS[limit[2]] >= SCREEN_PX:
            yield from rules_of(inner)
        elif not head.startswith("@"):
            pairs = (line.partition(":") for line in inner.split(";") if line.strip())
            found = {name.strip(): value.strip() for name, _, value in pairs}
            for selector in head.split(","):
                yield Rule(tuple(selector.replace(">", " ").split()), found)


def fits(compound: str, element: Element) -> bool:
    """Whether an element matches a compound of a tag and classes; states such as `:first-child` may always hold."""
    plain = re.sub(r"::?[\w-]+(\([^)]*\))?|\[[^\]]*\]", "", compound)
    tag, *classes = plain.split(".")
    return tag in {"", "*", element.tag} and element.classes.issuperset(classes) and "::" not in compound


def matches(selector: tuple[str, ...], path: list[Element]) -> bool:
    *outer, own = selector
    above = iter(path[:-1])
    return fits(own, path[-1]) and all(any(fits(compound, element) for element in above) for compound in outer)


class PhonePage(HTMLParser):
    """Reads a page and lists what would make it wider than the screen."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.path: list[Element] = []
        self.known: dict[tuple[object, ...], str] = {}
        self.has_viewport = False
        self.rules = [rule for css in re.findall(r"<style>(.*?)</style>", page, re.DOTALL) for rule in rules_of(css)]
        self.feed(page)
        self.close()
        self.faults += [] if self.has_viewport else ["no viewport"]

    def style(self, name: str, path: list[Element]) -> str:
        """The value that the last matching rule gives a property of the innermost element; empty if none does."""
        key = (name, *((element.tag, element.classes) for element in path))
        if key not in self.known:
            rules = (rule for rule in reversed(self.rules) if name in rule.declarations and matches(rule.selector, path))
            self.known[key] = next((rule.declarations[name] for rule in rules), "")
        return self.known[key]

    def inherited(self, name: str) -> str:
        return next((value for end in range(len(self.path), 0, -1) if (value := self.style(name, self.path[:end]))), "")

    def in_scroll_box(self) -> bool:
        tops = (self.path[:end] for end in range(1, len(self.path)))
        return any({self.style("overflow-x", top), self.style("overflow", top)} & {"auto", "scroll"} for top in tops)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.has_viewport |= tag == "meta" and "width=device-width" in attributes.get("content", "")
        self.path.append(Element(tag, frozenset(attributes.get("class", "").split()), attributes))
        if not self.in_scroll_box():
            self.check_width()
        if tag in EMPTY:
            self.path.pop()

    def check_width(self) -> None:
        tag, classes, attributes = self.path[-1]
        name = ".".join((tag, *sorted(classes)))
        if tag == "table":
            self.faults.append(f"{name}: outside of a box that scrolls")
        # The drawings within a drawing are cut off at its edge or scaled with it.
        if tag == "svg" and not any(element.tag == "svg" for element in self.path[:-1]):
            width = attributes.get("width", "")
            self.faults += [] if width == "100%" or (width.isdigit() and int(width) <= 12) else [f"{name}: {width or 'no'} width"]
        if tag == "img" and self.style("max-width", self.path) != "100%":
            self.faults.append(f"{name}: as wide as the image")
        for key in ("width", "min-width", "flex-basis", "grid-template-columns"):
            # What is within `min(100%,…)` gives way to the screen.
            value = re.sub(r"min\(100%,[^)]*\)", "", self.style(key, self.path) or attributes.get("style", ""))
            pixels = sum(float(number) * PIXELS[unit] for number, unit in re.findall(r"([\d.]+)(px|rem|em|pt|ch|vw)\b", value))
            self.faults += [f"{name}: {key} of {pixels:.0f} px"] if pixels > SCREEN_PX - 32 else []

    def handle_endtag(self, tag: str) -> None:
        self.path.pop()

    def handle_data(self, data: str) -> None:
        tags = {element.tag for element in self.path}
        if tags & {"style", "title", "svg"} or self.in_scroll_box():
            return
        runs = [data] if self.inherited("white-space") in {"nowrap", "pre"} else data.split()
        longest = max(map(len, runs), default=0)
        if longest > LONGEST_WORD and self.inherited("overflow-wrap") != "anywhere":
            self.faults.append(f"{self.path[-1].tag}.{'.'.join(sorted(self.path[-1].classes))}: {longest} letters that are not broken")


def hostile_page() -> str:
    """A transcript in which every text has a word that is wider than the screen."""
    word = "wide" * 40
    store, blobs = MemorySessions(), MemoryBlobs()
    with Log.create(store, SessionOpened("wide", cwd=f"/{word}", model=word, profile=word), FixedClock(1)) as log:
        log.append(Titled(word))
        log.append(
            UserSaid((Text(f"{word}\n\n# {word}\n\n- {word}\n\n| {word} | b |\n|---|---|\n| {word} | c |\n\n```\n{word}\n```\n`{word}`"),))
        )
        log.append(ModelReplied((Text(word, "assistant"), ToolCall("c", word, f'{{"path":"{word}"}}')), model=word))
        log.append(ToolReturned(ToolResult("c", (Text(f"{word} {word}"),)), word, paths=(word,)))
        log.append(ViewEdited((Mask(("4.0",), word),), by=word, why=word, tokens_before=9, tokens_after=5))
        return "".join(write_html(log, blobs, limit=None))


@pytest.mark.parametrize(
    "found", [comparison(), comparison(2, 30, (CARD, "gpt-5.5")), Comparison((), ())], ids=["one", "many sessions and cards", "none"]
)
def test_a_report_is_not_wider_than_a_phone(found: Comparison) -> None:
    assert PhonePage("".join(write_page(found))).faults == []


def test_a_transcript_is_not_wider_than_a_phone_whatever_its_words() -> None:
    assert PhonePage(hostile_page()).faults == []


def test_the_pages_that_the_commands_write_are_not_wider_than_a_phone(pal: Pal, tmp_path: Path) -> None:
    long(pal.home, events=150)
    report, transcript = tmp_path / "report.html", tmp_path / "transcript.html"
    done = (
        pal("replay", LONG, "--profiles", "palimpsest", "--html", str(report)).exit_code,
        pal("export", LONG, "--to", "html", "--out", str(transcript)).exit_code,
    )
    found = [PhonePage(path.read_text(encoding="utf-8")) for path in (report, transcript)]

    assert (done, [page.faults for page in found]) == ((0, 0), [[], []])
    assert all(len(page.rules) > 30 for page in found)


@every_case(
    ("body", "css", "fault"),
    [
        ("<table></table>", "", "table: outside of a box that scrolls"),
        ('<svg width="600"></svg>', "", "svg: 600 width"),
        ("<p></p>", "p{min-width:30rem}", "p: min-width of 480 px"),
        ("<p></p>", "p{width:9rem}@media (max-width:40rem){p{width:400px}}", "p: width of 400 px"),
        ("<p></p>", "div p{width:400px}p{width:500px}@media print{p{width:1px}}", "p: width of 500 px"),
        (f"<p>{'w' * 41}</p>", "b{overflow-wrap:anywhere}", "p.: 41 letters that are not broken"),
        (f"<p>{'w ' * 21}</p>", "p{white-space:nowrap}", "p.: 42 letters that are not broken"),
        ("<img>", "", "img: as wide as the image"),
    ],
)
def test_the_rules_see_what_is_too_wide(body: str, css: str, fault: str) -> None:
    head = '<meta name="viewport" content="width=device-width">'

    assert PhonePage(f"{head}<style>{css}</style>{body}").faults == [fault]
    assert PhonePage(f'{head}<style>{css}.box{{overflow-x:auto}}</style><div class="box">{body}</div>').faults == []
    assert PhonePage(f"<style>{css}</style>{body}").faults == [fault, "no viewport"]
