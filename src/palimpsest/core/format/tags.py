"""Texts inside of tags: a text cannot close the tag that it stands in, nor begin a reminder of its own."""

import re
from functools import cache
from typing import Final

# Tags by which the program itself speaks to a model; no text that stands in another tag may have them.
_OWN_VOICE: Final = ("system-reminder", "system-message")


def within(tag: str, text: str, attributes: str = "") -> str:
    """Return a text between the lines of a tag, which it cannot close; `attributes` stand behind the name in the opening tag."""
    return f"<{tag}{attributes}>\n{without_tags(text, tag, *_OWN_VOICE)}\n</{tag}>"


def without_tags(text: str, *tags: str) -> str:
    """Return a text in which these tags are no tags: in any letter case, and with what a lenient reader overlooks in them."""
    return _pattern(tags).sub("&lt;", text) if "<" in text else text


@cache
def _pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    # White space and characters without width may stand around the slash.
    return re.compile(rf"<(?=[\s/\u200b-\u200f\u2060\ufeff\\]*(?:{'|'.join(map(re.escape, tags))})(?![\w-]))", re.IGNORECASE)
