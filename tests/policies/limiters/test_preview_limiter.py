"""Results are limited before they are recorded: large ones by a preview, binary data is never shown."""

import base64

import pytest

from palimpsest.agent.ways_back import name_whole
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Image, Text, ToolResult, text_of
from palimpsest.core.plans import Answer, Save, Want, run_steps
from palimpsest.core.tokens import estimate
from palimpsest.policies.limits import PreviewLimiter
from palimpsest.policies.named import profile
from palimpsest.wire.models import card


def arrive(text: str, rule: PreviewLimiter | None = None, *others: Image) -> tuple[ToolReturned, list[bytes]]:
    """The result as it is recorded, and what was kept."""
    kept: list[bytes] = []

    def answer(want: Want) -> Answer:
        assert isinstance(want, Save)
        kept.append(want.data)
        return "sha256:abc"

    returned = ToolReturned(ToolResult("c1", (Text(text), *others)), tool="Bash", exit=0)
    return run_steps((rule or PreviewLimiter())(returned), answer), kept


LONG = "".join(f"line {number} of a long output\n" for number in range(9_000))


@pytest.mark.states("PA-23")
def test_a_result_over_the_limit_arrives_as_head_and_tail_with_the_address_of_the_whole() -> None:
    assert estimate(LONG) > 25_000
    returned, kept = arrive(LONG)
    shown = text_of(returned.result)
    assert returned.result.blob == "sha256:abc"
    assert kept == [LONG.encode()]
    assert shown.startswith("line 0 of a long output\n")
    assert "line 8999 of a long output\n" in shown
    assert shown == text_of(name_whole(returned).result).removesuffix(
        "\n[the whole is kept: recall id sha256:abc, with `lines` for a part]"
    )
    assert 2_000 < estimate(shown) <= 2_500
    assert (returned.tool, returned.exit) == ("Bash", 0)


@pytest.mark.states("PA-23")
def test_a_result_within_the_limit_arrives_as_it_is() -> None:
    short = "line\n" * 4_000
    assert arrive(short) == (ToolReturned(ToolResult("c1", (Text(short),)), tool="Bash", exit=0), [])


@pytest.mark.states("PA-23")
def test_a_lower_limit_is_a_setting() -> None:
    rule = profile("palimpsest", {"PAL_PREVIEW_ABOVE": "8000"}).limiter(card("claude-sonnet-4-5"))
    assert rule == PreviewLimiter(above=8_000)
    assert isinstance(rule, PreviewLimiter)
    returned, kept = arrive(LONG[: len(LONG) // 2], rule)
    assert len(kept) == 1
    assert "tokens left out" in text_of(returned.result)


@pytest.mark.parametrize("encoding", ["gbk", "shift_jis", "latin-1"])
def test_text_in_another_encoding_is_no_binary_data(encoding: str) -> None:
    words = {"gbk": "# 解析器的注释\n", "shift_jis": "# パーサの注釈\n", "latin-1": "# çéèàùâêîôû äöüß\n"}[encoding]
    text = f"{words}x = 1\n".encode(encoding).decode("utf-8", "replace")
    assert text.count("\ufffd") * 10 > len(text)
    returned = ToolReturned(ToolResult("c", (Text(text),)), "read")
    assert run_steps(PreviewLimiter()(returned), lambda _: "sha256:abc") == returned


@pytest.mark.parametrize("data", ["\x7fELF\x02\x01\x01\0\0\0" * 50, "abc\0def", "\ufffd\ufffd\ufffdPNG\ufffd\x1a" * 30])
@pytest.mark.states("PA-23")
def test_binary_never_shows(data: str) -> None:
    returned, kept = arrive(data)
    size = len(data.encode())
    assert text_of(returned.result) == f"[binary, {size:,} bytes]"
    assert kept == [data.encode()]


@pytest.mark.states("PA-23")
def test_base64_is_named_and_the_text_around_it_stays() -> None:
    data = base64.b64encode(bytes(range(256)) * 20).decode()
    for encoded in (data, f"data:image/png;base64,{data}", "\n".join(data[start : start + 76] for start in range(0, len(data), 76))):
        returned, kept = arrive(f"the picture is {encoded}\nand that is all")
        shown = text_of(returned.result)
        assert shown.startswith("the picture is [base64, 5,")
        assert shown.endswith("\nand that is all")
        assert kept == [f"the picture is {encoded}\nand that is all".encode()]


@pytest.mark.parametrize("text", ["=" * 2_000, "-" * 500, "a" * 3_000, "word " * 2_000, "/".join(["folder"] * 40), "0123456789" * 50])
def test_rows_of_signs_and_plain_words_are_no_encoding(text: str) -> None:
    assert arrive(text)[1] == []


def test_pictures_beside_the_text_stay() -> None:
    picture = Image("image/png", blob="sha256:def")
    returned, _ = arrive(LONG, None, picture)
    assert returned.result.parts[1:] == (picture,)


def test_what_was_bounded_before_is_left_alone() -> None:
    once, _ = arrive(LONG)

    def answer(want: Want) -> Answer:
        raise AssertionError(want)

    assert run_steps(PreviewLimiter()(once), answer) == once
