"""Images and documents by their actual media type, in any spelling."""

import json
from base64 import b64encode

import pytest

from palimpsest.core.items import Document, Image, Item
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.encoding.media import bytes_of, media_of, no_blobs
from palimpsest.wire.models.cards import ModelCard, card

CLAUDE = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
CHAT = ModelCard("gpt-old", "chat", "openai", 100_000, 4_096, documents=True)


def block(part: Image | Document) -> dict[str, object]:
    body = encode(View(items=(Item("0.0", "user", part),)), CLAUDE, fetch=lambda _: b"abc").body
    (shown,) = json.loads(body)["messages"][0]["content"]
    return {key: value for key, value in shown.items() if key != "cache_control"}


@pytest.mark.parametrize(
    "url", ["data:text/plain;base64,aGkgw6k=", "data:text/plain;charset=utf-8;base64,aGkgw6k", "data:text/plain,hi%20%C3%A9", "data:,hi é"]
)
def test_a_plain_text_in_a_url_is_a_text_document(url: str) -> None:
    assert block(Document("text/plain", url=url)) == {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "hi é"},
    }


def test_the_media_type_of_a_data_url_is_its_own() -> None:
    shown = block(Image("image/png", url="data:image/webp;base64,AAAA"))
    assert shown == {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": "AAAA"}}
    refused = block(Image("image/png", url="data:image/svg+xml;utf8,<svg/>"))
    assert refused == {"type": "text", "text": "[image image/png not shown: this model cannot see this format]"}


@pytest.mark.parametrize(
    ("media", "sent"),
    [("image/PNG", "image/png"), ("IMAGE/JPEG", "image/jpeg"), ("image/jpg", "image/jpeg"), ("image/gif; q=1", "image/gif")],
)
def test_a_media_type_is_known_in_any_spelling(media: str, sent: str) -> None:
    assert block(Image(media, blob="a")) == {"type": "image", "source": {"type": "base64", "media_type": sent, "data": "YWJj"}}


@pytest.mark.parametrize("model", [CLAUDE, GPT, CHAT], ids=lambda model: model.wire)
@pytest.mark.parametrize(
    ("part", "name"),
    [(Image("image/png"), "image image/png"), (Document("application/pdf", name="a.pdf"), "document a.pdf application/pdf")],
)
def test_a_picture_or_file_of_which_nothing_is_kept_is_named(model: ModelCard, part: Image | Document, name: str) -> None:
    body = encode(View(items=(Item("0.0", "user", part),)), model).body.decode()
    assert f"[{name} not shown: its bytes were not kept]" in body
    assert '"url":""' not in body


@pytest.mark.parametrize("data", [b"", b"a", b"ab", b"abc", b"\xff\xfe\x00+/"])
def test_what_a_url_holds_is_read_back_with_and_without_padding(data: bytes) -> None:
    coded = b64encode(data).decode()
    for each in (coded, coded.rstrip("="), coded.replace("+", "-").replace("/", "_")):
        assert bytes_of(Image("image/png", url=f"DATA:image/png;BASE64,{each}"), no_blobs) == data


def test_broken_base64_still_makes_a_request() -> None:
    assert bytes_of(Document("text/plain", url="data:text/plain;base64,aGk*a a"), no_blobs) == b"hi\x1a"


def test_a_blob_has_the_type_that_was_kept_with_it() -> None:
    assert media_of(Image("image/png", blob="a", url="data:image/gif;base64,AAAA")) == "image/png"
