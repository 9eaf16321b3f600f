"""Numbers in settings are read alike by every profile, and no value causes a traceback."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import BadInput
from palimpsest.profiles.named import profile
from palimpsest.profiles.settings import lenient_number, parse_number, strict_number
from palimpsest.wire.models.cards import card

LONG = "9" * 5_000
CLAUDE = card("claude-sonnet-4-5")
STRICT = [
    *(("palimpsest", name) for name in ("PAL_TAIL", "PAL_MESSAGES", "PAL_RESULTS", "PAL_PREVIEW_ABOVE", "PAL_COMPACT_AT")),
    *((name, key) for name in ("codex", "codex-0.166") for key in ("model_context_window", "model_auto_compact_token_limit")),
    *((name, "tool_output_token_limit") for name in ("codex", "codex-0.166")),
    *(("opencode-1.18", f"compaction.{key}") for key in ("reserved", "tail_turns", "preserve_recent_tokens")),
    *(("opencode-1.18", f"tool_output.{key}") for key in ("max_lines", "max_bytes")),
]
LENIENT = (
    *("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"),
    *("CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE", "CLAUDE_CODE_AUTO_COMPACT_WINDOW"),
)


@pytest.mark.parametrize("wrong", [LONG, "many", "-5", "1.5", "٣٤", "²", "0x10"])
@pytest.mark.parametrize(("name", "key"), STRICT)
def test_a_setting_that_is_no_number_raises_one_short_line(name: str, key: str, wrong: str) -> None:
    with pytest.raises(BadInput, match=re.escape(key)) as raised:
        profile(name, {key: wrong}).budget(CLAUDE)
    assert len(raised.value.message) < 200
    assert "\n" not in raised.value.message


@pytest.mark.parametrize("wrong", [LONG, "many", "-5", "1.5", "٣٤", "²", "0"])
@pytest.mark.parametrize("key", LENIENT)
@pytest.mark.parametrize("name", ["claude-code", "claude-code-2.1.325"])
def test_cc_06_what_is_out_of_its_range_is_as_if_it_were_not_there(name: str, key: str, wrong: str) -> None:
    assert profile(name, {key: wrong}).budget(CLAUDE) == profile(name).budget(CLAUDE)


def test_a_number_may_have_underscores_and_blanks_around_it() -> None:
    assert strict_number({"a": " 12_000 "}, "a") == 12_000
    assert strict_number({}, "a") is None
    assert strict_number({"a": "  "}, "a") is None
    assert strict_number({"a": "0"}, "a", least=0) == 0
    assert lenient_number({"a": "100"}, "a", 100) == 100
    assert lenient_number({"a": "101"}, "a", 100) is None


@given(st.text(max_size=30))
def test_whatever_is_written_reads_as_a_number_or_as_nothing(text: str) -> None:
    found = parse_number(text)
    assert found is None or 1 <= found < 10**11


@given(st.integers(1, 10**11 - 1))
def test_every_number_of_a_sensible_length_is_read(one: int) -> None:
    assert parse_number(str(one)) == one
    assert parse_number(f"{one:_}") == one
