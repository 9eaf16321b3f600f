"""Removes API keys and passwords from error messages, in every encoding in which a server or library may repeat them."""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote

from palimpsest.core.errors import PalimpsestError

_MARK = "***"
# Shorter keys are placeholders; redacting them would damage ordinary text.
_MIN_SECRET = 8
# A truncated message may end within a key: this many characters of its beginning count as the key.
_BEGINNING = 12
_PERCENT = re.compile(r"%[0-9A-F]{2}")


class Redactor:
    """Replaces the given secrets in texts and errors, in each of their likely encodings."""

    __slots__ = ("_forms",)

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= _MIN_SECRET for form in _forms(secret)}
        # The longest first: replacing a shorter form inside a longer one would leave the rest of it.
        self._forms = sorted(forms, key=lambda form: (-len(form), form))

    def redact(self, text: str) -> str:
        """Return the text with `***` for each secret, or for the beginning of a truncated one."""
        for form in self._forms:
            text = text.replace(form, _MARK)
        for form in self._forms:
            text = _without_beginnings(text, form)
        return text

    def redact_error(self, error: BaseException) -> None:
        """Redact the messages of an error and of all its causes and contexts in place, because a traceback prints them all."""
        for linked in _chain(error):
            linked.args = tuple(self.redact(arg) if isinstance(arg, str) else arg for arg in linked.args)
            if isinstance(linked, PalimpsestError):
                linked.message = self.redact(linked.message)


def credential_forms(user: str, password: str) -> tuple[str, str, str]:
    """Return the forms in which user name and password of an address are sent: raw, decoded, and as Basic authentication."""
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
    queue, seen = [error], set[int]()
    while queue:
        linked = queue.pop()
        if id(linked) in seen:
            continue
        seen.add(id(linked))
        yield linked
        queue += [other for other in (linked.__cause__, linked.__context__) if other is not None]
        if isinstance(linked, BaseExceptionGroup):
            queue += linked.exceptions
