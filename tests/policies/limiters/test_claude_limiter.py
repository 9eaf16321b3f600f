"""Large tool results: what is written to a file, and what the model sees instead."""

import json
from collections.abc import Callable

import pytest
from claude_session import blocks_of, readable
from corpus import golden

from palimpsest.core.errors import StoreError
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Image, Part, Text, ToolResult
from palimpsest.core.plans import Answer, Save, Want, run_steps
from palimpsest.peers.clearing import ClaudeLimiter, length_of, placeholder, size_name
from palimpsest.policies.named import profile
from palimpsest.stores.in_memory import MemoryBlobs
from palimpsest.stores.sessions import MemoryResultFiles
from palimpsest.wire.models import card


def returned(*parts: Part, tool: str = "Bash", call_id: str = "toolu_1") -> ToolReturned:
    return ToolReturned(ToolResult(call_id, parts, error=True), tool=tool)


class Disk:
    """Keeps what is saved."""

    def __init__(self) -> None:
        self.blobs = MemoryBlobs()
        self.files = MemoryResultFiles("/results")

    def answer(self, want: Want) -> Answer:
        assert isinstance(want, Save)
        return self.files(want.name, want.data) if want.name else self.blobs.put(want.data)


def arrive(result: ToolReturned, answer: Callable[[Want], Answer] | None = None, limiter: ClaudeLimiter | None = None) -> ToolReturned:
    return run_steps((limiter or ClaudeLimiter())(result), answer or Disk().answer)


def shown(result: ToolReturned) -> str:
    (part,) = result.result.parts
    assert isinstance(part, Text)
    return part.text


@pytest.mark.parametrize(("tool", "limit"), [("Bash", 30_000), ("Grep", 400_000), ("mcp__x__y", 400_000)])
@pytest.mark.states("CC-13")
def test_a_result_of_exactly_the_limit_is_kept_and_one_character_more_is_offloaded(tool: str, limit: int) -> None:
    fits = returned(Text("x" * limit), tool=tool)
    assert arrive(fits) is fits
    disk = Disk()
    kept = arrive(returned(Text("x" * (limit + 1)), tool=tool), disk.answer)
    assert shown(kept).startswith("<persisted-output>\nOutput too large (")
    assert disk.files.files == {"/results/toolu_1.txt": b"x" * (limit + 1)}
    assert disk.blobs.get(kept.result.blob) == b"x" * (limit + 1)
    assert (kept.result.call_id, kept.result.error) == ("toolu_1", True)


@pytest.mark.states("CC-13")
def test_the_profiles_bound_what_arrives_so() -> None:
    assert profile("claude-code").limiter(card("claude-sonnet-4-5")) == ClaudeLimiter()
    assert profile("claude-code-2.1.325").limiter(card("claude-sonnet-4-5")) == ClaudeLimiter(short_names=True)


@pytest.mark.states("CC-13")
def test_list_content_is_measured_as_json_text() -> None:
    parts = (Text("é"), Text("b"))
    assert length_of(ToolResult("c", parts)) == len('[{"type":"text","text":"é"},{"type":"text","text":"b"}]')


@pytest.mark.states("CC-14")
def test_results_with_an_image_without_content_or_whose_file_cannot_be_written_are_passed_on_unchanged() -> None:
    def full(want: Want) -> Answer:
        raise StoreError("No space left on device")

    large = Text("x" * 500_000)
    for each in (returned(large, Image("image/png", blob="ab")), returned(), returned(Text(""))):
        assert arrive(each) is each
    whole = returned(large)
    assert arrive(whole, full) is whole


@pytest.mark.parametrize(
    ("text", "preview"),
    [
        ("a" * 1_500 + "\n" + "b" * 600, "a" * 1_500 + "\n...\n"),
        ("a" * 900 + "\n" + "b" * 1_500, "a" * 900 + "\n" + "b" * 1_099 + "\n...\n"),
        ("a" * 2_001, "a" * 2_000 + "\n...\n"),
        ("a" * 2_000, "a" * 2_000 + "\n"),
    ],
)
@pytest.mark.states("CC-15")
def test_the_preview_ends_at_the_last_newline_past_the_half_of_2000_characters_else_at_2000_with_dots_only_if_cut(
    text: str, preview: str
) -> None:
    size = size_name(len(text))
    expected = f"<persisted-output>\nOutput too large ({size}). Full output saved to: /a/b.txt\n\nPreview (first 2KB):\n"
    assert placeholder(text, "/a/b.txt") == f"{expected}{preview}</persisted-output>"


@pytest.mark.states("CC-16")
def test_list_content_is_stored_as_indented_json_text_as_txt_named_by_the_call_id() -> None:
    disk = Disk()
    arrive(returned(Text("x" * 20_000), Text("y" * 20_000), call_id="toolu_list"), disk.answer)
    arrive(returned(Text("z" * 40_000), call_id="toolu_text"), disk.answer)
    assert list(disk.files.files) == ["/results/toolu_list.json", "/results/toolu_text.txt"]
    stored = disk.files.files["/results/toolu_list.json"].decode()
    assert stored == json.dumps([{"type": "text", "text": "x" * 20_000}, {"type": "text", "text": "y" * 20_000}], indent=2)


@pytest.mark.states("CC-16")
def test_an_existing_file_is_not_rewritten() -> None:
    files = MemoryResultFiles("/results")
    assert files("a.txt", b"one") == files("a.txt", b"one") == "/results/a.txt"
    other = files("a.txt", b"two")
    assert files.files == {"/results/a.txt": b"one", other: b"two"}


@pytest.mark.parametrize(
    ("size", "name"),
    [(137_933, "134.7KB"), (2_048, "2KB"), (168_893, "164.9KB"), (400_001, "390.6KB"), (1_572_864, "1.5MB"), (1_000, "1000 bytes")],
)
@pytest.mark.states("CC-16")
def test_sizes_print_in_units_of_1024_with_one_decimal_that_is_not_zero(size: int, name: str) -> None:
    assert size_name(size) == name


@pytest.mark.parametrize(("version", "short"), [("2.1.19", False), ("2.1.325", True)])
def test_the_placeholder_is_the_one_that_the_real_program_wrote(version: str, short: bool) -> None:
    (saved,) = golden(f"claude/{version}/projects/*/*/tool-results/*.txt")
    (path,) = golden(f"claude/{version}/projects/*/{saved.parents[1].name}.jsonl")
    real = [
        block["content"]
        for line in readable(path)
        if line.get("type") == "user"
        for block in blocks_of(line)
        if block["type"] == "tool_result" and str(block["content"]).startswith("<persisted-output>")
    ]
    text = saved.read_text()
    folder = real[0].partition("saved to: ")[2].partition(saved.name)[0]
    assert real[0].startswith(placeholder(text, f"{folder}{saved.name}"))
    assert saved.name.startswith("b") == short


def test_v_the_file_of_a_bash_result_has_nine_characters_and_begins_with_b() -> None:
    disk = Disk()
    limiter = ClaudeLimiter(short_names=True)
    arrive(returned(Text("x" * 40_000)), disk.answer, limiter)
    arrive(returned(Text("x" * 500_000), tool="Grep"), disk.answer, limiter)
    first, second = disk.files.files
    assert (first[:10], len(first), first[-4:], second) == ("/results/b", len("/results/b12345678.txt"), ".txt", "/results/toolu_1.txt")
