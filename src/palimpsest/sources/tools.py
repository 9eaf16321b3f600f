"""Deferred tools: their list in the context, and the search by which a model finds the one it needs."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from palimpsest.core.format.tags import within, without_tags
from palimpsest.core.items import Role
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.sources.source import Fields, Source, World, reminder
from palimpsest.wire.request import Tool

MOST_FOUND: Final = 5
_MOST_LISTED: Final = 400
_QUERY_CHARS: Final = 500
_SELECT: Final = "select:"
_LOADED: Final = "loaded"
_TAG: Final = "available-deferred-tools"
# Letters and digits of any script, with names such as `readFile` and `mcp__git__log` taken apart.
_WORD: Final = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
# Chinese, Japanese and Korean have no spaces between words, so pairs of letters are compared.
_UNSPACED: Final = lazy_pattern(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NAME_WEIGHT: Final = 3
_SATURATION, _LENGTH_SHARE = 1.2, 0.5


def deferred_tools(*, tag: bool, role: Role = "user") -> Source:
    """Return the names of the tools that are loaded on demand; a change states those that came and went.

    A tool that was loaded leaves the list without a statement, because the search that loaded it said so.
    """

    def observed(world: World) -> Fields | None:
        loaded = {tool.name for tool in world.state.tools}
        listed = sorted(tool.name for tool in world.state.deferred)[:_MOST_LISTED]
        return {name: _LOADED if name in loaded else "" for name in listed} if not loaded.issuperset(listed) else None

    def baseline(fields: Fields) -> str:
        return _framed("\n".join(name for name, loaded in fields.items() if not loaded), tag=tag, role=role)

    def change(previous: Fields | None, fields: Fields) -> str:
        if previous is None:
            return baseline(fields)
        added = [name for name in fields if name not in previous]
        removed = [name for name in previous if name not in fields]
        lines = [f"Now available too: {', '.join(added)}"] if added else []
        lines += [f"No longer available: {', '.join(removed)}"] if removed else []
        return _stated(without_tags("\n".join(lines), _TAG), role) if lines else ""

    return Source("deferred_tools", observed, baseline, change, role=role, removal=_stated("No deferred tools are left.", role))


def _framed(names: str, *, tag: bool, role: Role) -> str:
    if tag:
        return within(_TAG, names)
    text = f"These tools exist but are not loaded. Find one with the tool search before you call it:\n{names}"
    return _stated(text, role)


def _stated(text: str, role: Role) -> str:
    return reminder(text) if role == "user" else text


def search_tools(query: str, tools: Sequence[Tool], most: int = MOST_FOUND) -> tuple[Tool, ...]:
    """Return the tools that fit a query best, best first; at most `most`, none that shares no word with it.

    `select:one,two` returns the tools of exactly these names. Words in names weigh more than words in descriptions.
    """
    query = query[:_QUERY_CHARS]
    if query.startswith(_SELECT):
        wanted = [name.strip() for name in query.removeprefix(_SELECT).split(",")]
        by_name = {tool.name: tool for tool in tools}
        return tuple(by_name[name] for name in dict.fromkeys(wanted) if name in by_name)[:most]
    documents = [Counter(words(tool.description)) + Counter(words(tool.name) * _NAME_WEIGHT) for tool in tools]
    usual = sum(document.total() for document in documents) / len(documents) if documents else 0.0
    terms = set(words(query))
    rarity = {term: math.log(1 + len(documents) / (1 + sum(term in document for document in documents))) for term in terms}
    scored = []
    for place, document in enumerate(documents):
        length = 1 - _LENGTH_SHARE + _LENGTH_SHARE * document.total() / usual if usual else 1.0
        score = sum(rarity[term] * document[term] / (document[term] + _SATURATION * length) for term in terms if term in document)
        if score > 0:
            scored.append((-score, tools[place].name, place))
    return tuple(tools[place] for _, _, place in sorted(scored)[:most])


def words(text: str) -> list[str]:
    """Return the words of a text in lower case; names are taken apart, and scripts without spaces give pairs of letters."""
    found: list[str] = []
    for word in _WORD.findall(text):
        if _UNSPACED.search(word):
            found += [word[place : place + 2] for place in range(max(1, len(word) - 1))]
        else:
            found.append(word.lower())
    return found
