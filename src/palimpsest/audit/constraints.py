"""Sentences in which the user demands, forbids or decides, in English and Chinese."""

import re

from palimpsest.audit.binding_chinese import chinese
from palimpsest.audit.binding_english import Binding, english
from palimpsest.audit.sentences import sentences_of
from palimpsest.core.situation import Quote

LONGEST_QUOTE = 300
"""A sentence is quoted up to this length."""
_MOST = 200
_WORD = re.compile(r"[A-Za-z]{2,}")
_CJK = re.compile(r"[\u3400-\u9fff]")


def binding_of(sentence: str) -> Binding | None:
    """What a sentence does: forbid, decide, demand, or nothing of the kind."""
    if _CJK.search(sentence) is not None:
        found = chinese(sentence)
        if found is not None or len(_CJK.findall(sentence)) > len(_WORD.findall(sentence)):
            return found
    return english(sentence[:1_000])


def quotes_of(text: str, item_id: str) -> tuple[Quote, ...]:
    """The sentences of a message that bind, each once, as they were written."""
    found: dict[str, Quote] = {}
    for sentence in sentences_of(text):
        kind = binding_of(sentence)
        if kind is not None:
            quoted = sentence[:LONGEST_QUOTE].rstrip()
            found.setdefault(quoted, Quote(quoted, item_id, kind))
            if len(found) == _MOST:
                break
    return tuple(found.values())
