import json
import re

from hostile import texts
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.redaction import redact
from palimpsest.exchange.secrets import clean_line, clean_text

KEY = "sk-ant-" + "a1B2" * 10
values = st.recursive(
    st.one_of(texts, st.just(KEY), st.just(f'password="{KEY}"'), st.integers(), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.one_of(texts, st.just("token")), inner, max_size=3)),
    max_leaves=8,
)


def _clean(value: object) -> object:
    return json.loads(clean_line(json.dumps(value).encode() + b"\n", redact))


def test_a_line_without_secrets_keeps_its_bytes() -> None:
    line = b'{ "a" : 1.0,"b":"\\u4e2d" ,"a":2}\n'
    assert clean_line(line, redact) == line


def test_a_key_shows_that_its_value_is_a_secret() -> None:
    assert _clean({"api_key": "aBcdef123456", "apiKey": "short", "key": "aBcdef123456"}) == {
        "api_key": "[REDACTED:assignment]",
        "apiKey": "short",
        "key": "aBcdef123456",
    }


def test_arguments_within_a_text_stay_json() -> None:
    cleaned = _clean({"arguments": json.dumps({"cmd": f'curl -H "x: {KEY}"'})})
    assert cleaned == {"arguments": json.dumps({"cmd": 'curl -H "x: [REDACTED:anthropic]"'})}


def test_ciphertext_and_pictures_are_left_alone() -> None:
    told = {
        "signature": KEY,
        "encrypted_content": KEY,
        "source": {"type": "base64", "media_type": "image/png", "data": KEY},
        "image_url": f"data:image/png;base64,{KEY}",
        "content": {"type": "redacted_thinking", "data": KEY},
    }
    assert _clean(told) == told


def test_signed_thinking_with_a_secret_becomes_text_for_its_signature_no_longer_fits() -> None:
    blocks = [{"type": "thinking", "thinking": f"use {KEY}", "signature": "s"}, {"type": "thinking", "thinking": "plain", "signature": "s"}]
    assert _clean(blocks) == [{"type": "text", "text": "use [REDACTED:anthropic]"}, blocks[1]]


def test_a_type_that_is_no_text_is_no_obstacle() -> None:
    assert _clean({"type": {"~": 0}, "said": KEY}) == {"type": {"~": 0}, "said": "[REDACTED:anthropic]"}


def test_a_line_that_is_no_json_is_cleaned_as_text() -> None:
    assert clean_line(b"\xff key " + KEY.encode(), redact) == b"\xff key [REDACTED:anthropic]"


@given(values)
def test_a_cleaned_line_is_json_without_the_secret_and_cleaning_again_changes_nothing(value: object) -> None:
    line = json.dumps({"line": value}).encode() + b"\n"
    cleaned = clean_line(line, redact)
    assert cleaned.endswith(b"\n")
    assert isinstance(json.loads(cleaned), dict)
    assert KEY not in cleaned.decode()
    assert clean_line(cleaned, redact) == cleaned


@given(values)
def test_a_text_that_is_json_stays_json(value: object) -> None:
    text = json.dumps({"a": value})
    assert set(json.loads(clean_text(text, redact))) == {"a"}


@given(st.sampled_from(["\n", "\t", "\r", "\f", "\b", '"', "/", "\\", ">", "é", "\\\\", " "]), st.booleans(), st.booleans())
def test_a_secret_is_found_behind_every_kind_of_escape(before: str, ascii_only: bool, nested: bool) -> None:
    text = f"a{before}{KEY}{before}b"
    value = json.dumps({"cmd": json.dumps({"secret": "hunter2-Hunter2", "text": text})}) if nested else text
    line = json.dumps({"text": value}, ensure_ascii=ascii_only).encode()
    assert not {KEY, "hunter2-Hunter2"} & set(re.findall(r"[\w-]+", clean_line(line, redact).decode()))
    assert KEY.encode() not in clean_line(line.replace(b"/", b"\\/").replace(b">", b"\\u003e"), redact)
