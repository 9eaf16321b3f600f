"""Keeps keys and passwords out of the words of errors, however a server or a library wrote them down."""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote

from palimpsest.core.errors import PalimpsestError

_MARK = "***"
# A key of a few letters is a placeholder, and would tear holes into any text.
_SECRET = 8
# An error is cut to its first letters, and the cut may go through a key: this much of its beginning is taken for it.
_BEGINNING = 12
_PERCENT = re.compile(r"%[0-9A-F]{2}")


class Redactor:
    """Hides the given secrets, in each of the forms in which they are likely to be repeated."""

    __slots__ = ("_forms",)

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= _SECRET for form in _forms(secret)}
        # The longest first: what is left of a form when a shorter one was taken out of it would stay.
        self._forms = sorted(forms, key=lambda form: (-len(form), form))

    def redact(self, text: str) -> str:
        """The text with a mark in place of each secret, or of the beginning of one that was cut."""
        for form in self._forms:
            text = text.replace(form, _MARK)
        for form in self._forms:
            text = _without_beginnings(text, form)
        return text

    def redact_error(self, error: BaseException) -> None:
        """Rewrites the words of an error and of all that it came from: a traceback prints those too."""
        for each in _chain(error):
            each.args = tuple(self.redact(arg) if isinstance(arg, str) else arg for arg in each.args)
            if isinstance(each, PalimpsestError):
                each.message = self.redact(each.message)


def credential_forms(user: str, password: str) -> tuple[str, str, str]:
    """What a name and a password of an address are on the way to the server."""
    pair = f"{unquote(user)}:{unquote(password)}"
    return password, unquote(password), base64.b64encode(pair.encode()).decode()


def _forms(secret: str) -> Iterator[str]:
    escaped = json.dumps(secret)[1:-1]
    percent = quote(secret, safe="")
    yield from (secret, escaped, escaped.replace("/", "\\/"), json.dumps(escaped)[1:-1], html.escape(secret), repr(secret)[1:-1])
    yield from (percent, _PERCENT.sub(lambda found: found[0].lower(), percent), quote_plus(secret), quote(secret))


def _without_beginnings(text: str, form: str) -> str:
    if len(form) <= _BEGINNING:
        return text
    place = text.find(form[:_BEGINNING])
    while place >= 0:
        end = _BEGINNING
        while end < len(form) and text[place : place + end + 1] == form[: end + 1]:
            end += 1
        text = text[:place] + _MARK + text[place + end :]
        place = text.find(form[:_BEGINNING], place)
    return text


def _chain(error: BaseException) -> Iterator[BaseException]:
    waiting, met = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in met:
            continue
        met.add(id(each))
        yield each
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
