"""No error shows a key or a password, and nothing is sent to an invalid address or with an invalid key."""

import asyncio
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import BadInput, PalimpsestError, ProviderError, WireError
from palimpsest.providers.http import HttpProvider, Redactor
from palimpsest.wire.models import card

QWEN = card("openai-compatible/qwen3-coder")
KEY = "sk-proj-" + "aB3dE5gH7jK9mN1p/Q2+s"
PASSWORD = "hunter2secret"


@dataclass(frozen=True)
class Letter:
    wire: str = "chat"
    body: bytes = b"{}"


def failing(provider: HttpProvider) -> PalimpsestError:
    async def collect() -> None:
        async for _ in provider.stream(Letter()):
            pass

    with pytest.raises(PalimpsestError) as caught:
        asyncio.run(collect())
    return caught.value


def whole(error: PalimpsestError) -> str:
    return "".join(traceback.format_exception(error)) + error.message


@pytest.mark.parametrize(
    "echo",
    [KEY, quote(KEY, safe=""), quote(KEY, safe="").replace("%2F", "%2f"), KEY.replace("/", "\\/"), json.dumps(KEY)],
    ids=["plain", "percent", "small percent", "escaped", "quoted"],
)
def test_an_error_page_that_repeats_the_key_is_redacted(serve: Callable[..., tuple[str, object]], echo: str) -> None:
    url, _ = serve(f"<html>proxy saw {echo}".encode(), kind="text/html")
    error = failing(HttpProvider(QWEN, url, KEY))
    assert isinstance(error, WireError)
    assert "proxy saw" in str(error)
    assert echo.strip('"') not in whole(error)
    assert "dE5gH7jK9mN1p" not in whole(error)


def test_an_error_within_a_stream_that_repeats_the_key_is_redacted(serve: Callable[..., tuple[str, object]]) -> None:
    url, _ = serve(b"data: " + json.dumps({"error": {"message": f"bad key Bearer {KEY}"}}).encode() + b"\n\n")
    error = failing(HttpProvider(QWEN, url, KEY))
    assert str(error) == "openai-compatible: bad key Bearer ***"
    assert KEY not in whole(error)


def test_a_key_that_is_cut_by_the_truncation_of_a_long_error_is_redacted_too(serve: Callable[..., tuple[str, object]]) -> None:
    url, _ = serve(b"data: " + json.dumps({"error": {"message": "x" * 280 + f" {KEY}"}}).encode() + b"\n\n")
    assert str(failing(HttpProvider(QWEN, url, KEY))) == "openai-compatible: " + "x" * 280 + " ***…"


def test_a_secret_header_of_the_caller_is_redacted_like_the_key(serve: Callable[..., tuple[str, object]]) -> None:
    url, _ = serve(b'{"error":{"message":"no entry for aB3dE5gH7jK9"}}', status=401, kind="application/json")
    error = failing(HttpProvider(QWEN, url, headers={"X-Auth": "Token aB3dE5gH7jK9"}))
    assert str(error) == "openai-compatible: HTTP 401: no entry for ***"


def test_the_password_of_an_unreachable_address_is_not_shown() -> None:
    error = failing(HttpProvider(QWEN, f"http://me:{PASSWORD}@127.0.0.1:1/v1"))
    assert isinstance(error, ProviderError)
    assert str(error).startswith("openai-compatible: http://127.0.0.1:1/v1 cannot be reached: ")
    assert PASSWORD not in whole(error)


@every_case(
    ("address", "reason"),
    [
        (f"ftp://me:{PASSWORD}@h", "the address 'ftp://h' does not begin with http:// or https://"),
        (f"me:{PASSWORD}@h", "the address 'h' does not begin with http:// or https://"),
        (f"http://me:{PASSWORD}@[::1", "the address 'http://[::1' has an invalid host or port"),
        (f"http://me:{PASSWORD}@h:99999999", "the address 'http://h:99999999' has an invalid host or port"),
        (f"http://me:x/{PASSWORD}@h", "the address 'http://h' has an invalid host or port"),
        ("http://" + "a" * 64, "the address 'http://" + "a" * 64 + "' has an invalid host or port"),
        ("http://", "the address 'http://' names no host"),
        ("http://exa\nmple.com", "the address has a space, a line break or a control character in it"),
        ("http://h/v1?key=1", "the address 'http://h/v1' must end with its path: what follows '?' or '#' has no place in it"),
    ],
)
def test_an_invalid_address_is_refused_in_one_line(address: str, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        HttpProvider(QWEN, address)
    assert str(caught.value) == f"openai-compatible/qwen3-coder: {reason}"
    assert PASSWORD not in whole(caught.value)


@pytest.mark.parametrize("address", ["http://[::1]:8080/v1", "https://me:pw@h.example:1/v1/", "http://bücher.example", " http://h "])
def test_a_valid_address_is_accepted(address: str) -> None:
    HttpProvider(QWEN, address)


def test_the_line_break_behind_a_key_is_not_sent(serve: Callable[..., tuple[str, list[tuple[str, dict[str, str], bytes]]]]) -> None:
    url, seen = serve(b"{}", status=400, kind="application/json")
    failing(HttpProvider(QWEN, url, f" {KEY}\n"))
    assert seen[0][1]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", [KEY + "…", KEY + "\nx", KEY[:9] + "\x00" + KEY[9:]])
def test_a_key_that_is_no_valid_header_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(BadInput) as caught:
        HttpProvider(QWEN, "http://h", key)
    assert str(caught.value).startswith("openai-compatible/qwen3-coder: the API key contains a character that is invalid in a header")
    assert KEY[:9] not in whole(caught.value)


def test_a_key_from_the_environment_is_refused_by_the_name_it_has_there() -> None:
    with pytest.raises(BadInput, match=r"^gpt-5\.5: OPENAI_API_KEY contains a character that is invalid in a header"):
        HttpProvider(card("gpt-5.5"), environment={"OPENAI_API_KEY": "sk-…"})


def test_short_placeholders_are_not_redacted() -> None:
    assert Redactor(["none", ""]).redact("none was found") == "none was found"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=60), st.text(), st.text())
def test_a_key_is_redacted_whatever_surrounds_it(key: str, before: str, after: str) -> None:
    assert key not in Redactor([key]).redact(f"{before}{key}{after}").replace("***", "\n")


@pytest.mark.parametrize("header", ["nan", "inf", "-1", "soon"])
def test_a_wait_that_is_neither_a_number_of_seconds_nor_a_date_is_none(serve: Callable[..., tuple[str, object]], header: str) -> None:
    url, _ = serve(b"{}", status=429, kind="application/json", more={"retry-after": header})
    error = failing(HttpProvider(QWEN, url))
    assert isinstance(error, ProviderError)
    assert error.retry_after is None
