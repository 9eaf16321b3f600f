"""Size rules: ours and those of the imitated programs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.sizes import SIZE_RULES, bytes_size, claude_list_size, claude_size, json_size, readable_size, responses_size
from palimpsest.core.items import Content, Document, Image, Opaque, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.tokens import decrypted_bytes, palimpsest_size, tool_list_size

ONE_OF_EACH: list[Content] = [
    Text("hello"),
    Thinking("let me see"),
    Thinking("", signature=Signature("openai", "gpt-5.5", "x" * 4_000), form="sealed"),
    Image("image/png", blob="ab"),
    Document("application/pdf", blob="ab", name="plan.pdf"),
    Document("application/pdf", url="https://example.com/plan.pdf"),
    Opaque("openai", "gpt-5.5", '{"type":"web_search_call","status":"completed"}', text_fallback="searched"),
    Opaque("other", "m", "not json"),
    ToolCall("c1", "Read", '{"path":"a.py"}'),
    ToolCall("c2", "apply_patch", "*** Begin", form="free"),
    ToolCall("c3", "shell", '{"command":["ls"]}', form="shell"),
    ToolCall("c4", "find", '{"query":"x"}', form="search"),
    ToolResult("c1", (Text("one"), Image("image/png", blob="ab"))),
    ToolResult("c2", (Text("done"),), form="free"),
    ToolResult("c4", (Text("[]"),), form="search"),
]


@pytest.mark.parametrize("rule", SIZE_RULES)
def test_every_rule_sizes_every_content(rule: str) -> None:
    assert all(SIZE_RULES[rule](content) >= 0 for content in ONE_OF_EACH)


# Compact JSON: {"type":"message","role":"user","content":[{"type":"input_text","text":""}]} has 76 bytes.
@pytest.mark.parametrize(("text", "tokens"), [("", 19), ("abcd", 20), ("abcde", 21), ("港口", 21), ('say "x"\n', 22)])
@pytest.mark.states("CX-19")
def test_a_text_costs_a_quarter_of_the_bytes_of_its_json_rounded_up(text: str, tokens: int) -> None:
    assert responses_size(Text(text)) == tokens


@pytest.mark.parametrize(("length", "tokens"), [(0, 0), (800, 0), (1_000, 25), (4_000, 588)])
@pytest.mark.states("CX-19")
def test_an_encrypted_item_costs_three_quarters_of_its_length_less_650_bytes(length: int, tokens: int) -> None:
    signature = "x" * length
    assert responses_size(Thinking("a digest", signature=Signature("openai", "m", signature), form="digest")) == tokens
    assert responses_size(Opaque("openai", "m", f'{{"type":"compaction","encrypted_content":"{signature}"}}')) == tokens


@pytest.mark.states("CX-19")
def test_decrypted_bytes_are_never_negative() -> None:
    assert [decrypted_bytes(length) for length in (0, 866, 867, 868, 1_000)] == [0, 0, 0, 1, 100]


@pytest.mark.states("CX-19")
def test_a_base64_image_counts_7373_bytes_whatever_its_payload() -> None:
    small = Image("image/png", url="data:image/png;base64,aGVsbG8=")
    large = Image("image/png", url="data:image/png;base64," + "aGVsbG8=" * 10_000)
    # {"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,"}]} has 104 bytes.
    assert responses_size(small) == responses_size(large) == responses_size(Image("image/png", blob="ab")) == (104 + 7_373 + 3) // 4


@pytest.mark.states("CX-19")
def test_a_linked_image_costs_its_address() -> None:
    assert responses_size(Image("image/png", url="https://example.com/a.png")) == (82 + 25 + 3) // 4


@pytest.mark.states("CX-19")
def test_an_image_within_a_result_and_within_raw_json_counts_the_same_payload() -> None:
    def result(url: str) -> ToolResult:
        return ToolResult("c1", (Text("see"), Image("image/png", url=url)))

    assert responses_size(result("data:image/png;base64,AAAA")) == responses_size(result("data:image/png;base64," + "A" * 90_000))
    raw = '{"type":"message","content":[{"type":"input_image","image_url":"data:image/jpeg;base64,%s"}]}'
    assert responses_size(Opaque("openai", "m", raw % "A")) == responses_size(Opaque("openai", "m", raw % ("A" * 50_000))) > 1_844


@pytest.mark.states("CX-19")
def test_a_ghost_snapshot_costs_nothing() -> None:
    assert responses_size(Opaque("openai", "m", '{"type":"ghost_snapshot","ghost_commit":{"id":"abc"}}')) == 0


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("港口比小", 1), ("x" * 400, 100)])
@pytest.mark.states("CC-08")
def test_text_counts_four_characters_a_token(text: str, tokens: int) -> None:
    assert claude_size(Text(text)) == tokens


@pytest.mark.states("CC-08")
def test_an_image_in_a_result_counts_two_thousand() -> None:
    assert claude_size(ToolResult("c1", (Text("x" * 40), Image("image/png", blob="ab")))) == 2_010


@pytest.mark.parametrize(("sizes", "tokens"), [((), 0), ((3,), 4), ((100, 200), 400), ((1,), 2), ((10, 10, 5), 34)])
@pytest.mark.states("CC-08")
def test_a_list_without_usage_counts_four_thirds_rounded_up(sizes: tuple[int, ...], tokens: int) -> None:
    assert claude_list_size(sizes) == tokens


@pytest.mark.parametrize(("length", "tokens"), [(0, 0), (1, 0), (2, 1), (5, 1), (6, 2), (40_400, 10_100)])
def test_opencode_rounds_a_quarter_of_the_characters_to_the_nearest(length: int, tokens: int) -> None:
    assert readable_size(ToolResult("c1", (Text("x" * length),))) == tokens


def test_opencode_counts_no_pictures() -> None:
    assert readable_size(ToolResult("c1", (Text("abcd"), Image("image/png", blob="ab")))) == 1


def test_json_size_counts_characters_and_not_bytes() -> None:
    assert json_size(Text("港口港口")) == json_size(Text("abcd")) == 20


def test_bytes_size_is_a_quarter_of_the_json() -> None:
    assert bytes_size(Text("港口")) == 76 + 6
    assert bytes_size(Image("image/png", blob="ab")) > 500_000


def test_our_rule_counts_a_signature_by_its_plaintext_and_whole_thinking_by_its_text() -> None:
    signature = Signature("anthropic", "claude-sonnet-4-5", "x" * 4_000)
    assert palimpsest_size(Thinking("let me see", signature=signature)) == palimpsest_size(Text("let me see"))
    assert palimpsest_size(Thinking("short", signature=signature, form="digest")) == 588


def test_our_rule_counts_an_opaque_item_without_encrypted_content_by_its_json() -> None:
    assert palimpsest_size(Opaque("openai", "m", '{"type":"web_search_call"}')) > 0
    assert palimpsest_size(Opaque("openai", "m", '{"encrypted_content":"' + "x" * 4_000 + '"}')) == 588


def test_a_tool_list_is_sized_by_its_bytes() -> None:
    assert tool_list_size(b"") == 0
    assert 5 <= tool_list_size(b'[{"name":"read"}]') <= 12


# Rows of one sign are what an estimate may count as cheaper than its signs.
ROWS = st.builds(str.__mul__, st.sampled_from("07aQ─—→ \n😀𠀀"), st.integers(1, 600))
TEXTS = st.text(max_size=300) | st.lists(ROWS | st.text(max_size=40)).map("".join)


@given(TEXTS, TEXTS)
def test_a_longer_text_is_never_smaller(one: str, other: str) -> None:
    text, longer = Text(one.encode("utf-8", "ignore").decode()), Text((one + other).encode("utf-8", "ignore").decode())
    assert all(rule(text) <= rule(longer) for rule in SIZE_RULES.values())
