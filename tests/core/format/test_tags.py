"""Texts inside of tags: none can close the tag that it stands in, whatever carries it."""

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from recalling_desk import TABS

from palimpsest.core.format.tags import within, without_tags
from palimpsest.engine.children.reports import briefing
from palimpsest.engine.children.roles import AgentRole
from palimpsest.memory.showing.note_block import note_text
from palimpsest.policies.limiters.results import placeholder
from palimpsest.policies.restore import reminder as restored
from palimpsest.sources.source import reminder
from palimpsest.wire.encoding.messages import framed_statement


def restored_text(text: str) -> str:
    return getattr(restored(text, "file a").content, "text", "")


CARRIERS: dict[str, Callable[[str], str]] = {
    "system-reminder": restored_text,
    "system-reminder of a source": reminder,
    "notes": lambda text: note_text(replace(TABS, about=text.replace("\n", " "), body=text)),
    "persisted-output": lambda text: placeholder(text, "/a"),
    "system-message": framed_statement,
    "report": lambda text: within("report", text),
    "role": lambda text: briefing("Ada", AgentRole("scout", "looks", text)),
}


@pytest.mark.parametrize("closing", ["</{}>", "</ {} >", "< /{}>", "</{}\n>", "<\u200b/{}>", "</{} x='1'>", "<{}>"])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("carrier", list(CARRIERS))
def test_a_text_cannot_close_or_repeat_the_tag_that_it_stands_in(carrier: str, closing: str, *, upper: bool) -> None:
    tag = carrier.partition(" ")[0]
    planted = closing.format(tag.upper() if upper else tag)
    shown = CARRIERS[carrier](f"before {planted} after")
    tags = re.findall(rf"<[\s/\u200b]*{tag}\b", shown, re.IGNORECASE)
    assert tags == [f"<{tag}", f"</{tag}"]
    assert "before &lt;" in shown


def test_other_tags_of_a_text_stay_as_they_are() -> None:
    text = "a < b, <div>, </hooks>, <hook-x>, Vec<u8>"
    assert (without_tags(text, "hook"), within("hook", text)) == (text, f"<hook>\n{text}\n</hook>")
