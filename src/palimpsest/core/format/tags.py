"""Texts inside of tags: a text cannot close the tag that it stands in, nor begin a reminder of its own."""

import re
from functools import cache
from typing import Final

# Tags by which the program itself speaks to a model; no text that stands in another tag may have them.
_OWN_VOICE: Final = ("system-reminder", "system-message")
PLAN_TAG: Final = "proposed_plan"
"""The tag in which a model puts its plan in plan mode."""
# What a lenient reader takes for the beginning of a tag, for nothing, and for a hyphen.
_OPENING: Final = "[<\uff1c\ufe64]"
_UNSEEN: Final = "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]*"
_HYPHEN: Final = "[-\u2010-\u2015\u2212\ufe58\ufe63\uff0d]"


def within(tag: str, text: str, attributes: str = "") -> str:
    """Return a text between the lines of a tag, which it cannot close; `attributes` stand behind the name in the opening tag."""
    return f"<{tag}{attributes}>\n{without_tags(text, tag, *_OWN_VOICE)}\n</{tag}>"


def between(tag: str, text: str) -> str | None:
    """Return what stands between the lines of the last complete pair of a tag in a text; `None` without one."""
    begun, closing, _ = text.rpartition(f"</{tag}>")
    _, opening, inner = begun.rpartition(f"<{tag}>")
    return inner.strip() if closing and opening else None


def attribute(name: str, value: str) -> str:
    """Return an attribute of a tag, which its value cannot end."""
    return f' {name}="{value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace(chr(34), "&quot;")}"'


def without_tags(text: str, *tags: str) -> str:
    """Return a text in which these tags are no tags: in any letter case, and with what a lenient reader overlooks in them."""
    return _pattern(tags).sub("&lt;", text) if "<" in text or not text.isascii() else text


def without_own_voice(text: str) -> str:
    """Return a text that cannot speak as the program does: for texts that are shown without a tag of ours, or in one of another program."""
    return without_tags(text, *_OWN_VOICE)


@cache
def _pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    # White space and characters without width may stand around the slash, and these also in the name.
    names = "|".join(_UNSEEN.join(_HYPHEN if letter == "-" else re.escape(letter) for letter in tag) for tag in tags)
    return re.compile(rf"{_OPENING}(?=(?:[\s/\\\uff0f]|{_UNSEEN[:-1]})*(?:{names})(?![\w-]))", re.IGNORECASE)
