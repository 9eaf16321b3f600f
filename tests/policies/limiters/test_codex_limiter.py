"""Results of tools, limited by the tool and once more when they are recorded."""

import pytest
from codex_work import BOTH, codex_session
from hypothesis import example, given
from hypothesis import strategies as st
from workplace import offline

from palimpsest.agent.session import Session
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Image, Text, ToolResult, text_of
from palimpsest.peers.clearing import CapturedOutput, CodexLimiter, CommandStatus, bounded_body, with_header
from palimpsest.wire.models import card

NUMBERS = "".join(f"{number}\n" for number in range(1, 20_001))
DONE = CommandStatus(exit=0, seconds=0.25, chunk="a1b2c3")


def arrive(session: Session, result: ToolResult) -> ToolResult:
    return offline(session, session.profile.limiter(session.card)(ToolReturned(result, tool="shell"))).result


def run(session: Session, output: CapturedOutput, requested_tokens: int | None = None) -> ToolResult:
    limiter = session.profile.limiter(session.card)
    assert isinstance(limiter, CodexLimiter)
    return offline(session, limiter.command("c1", output, DONE, requested_tokens=requested_tokens))


@pytest.mark.states("CX-25")
def test_an_output_bounded_by_its_tool_is_not_cut_again_when_recorded() -> None:
    session = codex_session()
    bounded = run(session, CapturedOutput(NUMBERS))
    assert "tokens truncated…" in text_of(bounded)
    assert len(text_of(bounded).encode()) > 40_000
    assert arrive(session, bounded) == bounded


@given(st.text(max_size=400), st.integers(10, 60), st.booleans())
@example(text="000\x80\x80\x80\x80\x80\x80\x80\U00010000", limit=10, warns=True)
@pytest.mark.states("CX-25")
def test_whatever_the_output_is_the_header_fits_the_slack(text: str, limit: int, warns: bool) -> None:
    # The original's smallest limit is far above its header; here the body alone shows the rule.
    session = codex_session()
    limiter = CodexLimiter(limit * 20, warns=warns)
    bounded = offline(session, limiter.command("c1", CapturedOutput(text * 40), DONE))
    assert offline(session, limiter(ToolReturned(bounded))).result.parts == bounded.parts


@pytest.mark.states("CX-25")
def test_an_output_not_bounded_by_its_tool_is_cut_at_the_limit_and_a_fifth() -> None:
    session = codex_session()
    fits, cut = "x" * 48_000, "x" * 48_001
    assert arrive(session, ToolResult("c1", (Text(fits),))) == ToolResult("c1", (Text(fits),))
    assert text_of(arrive(session, ToolResult("c1", (Text(cut),)))) == "x" * 24_000 + "…1 tokens truncated…" + "x" * 24_000


@pytest.mark.states("CX-26")
def test_the_argument_can_lower_and_never_raise_the_limit() -> None:
    output = CapturedOutput(NUMBERS)
    assert "…26724 tokens truncated…" in bounded_body(output, 10_000, requested_tokens=500).text
    assert bounded_body(output, 500, requested_tokens=20_000) == bounded_body(output, 500)
    assert "…98894 chars truncated…" in bounded_body(output, 10_000, "bytes").text
    assert "…106894 chars truncated…" in bounded_body(output, 10_000, "bytes", requested_tokens=500).text


@pytest.mark.states("CX-26")
def test_the_header_tells_code_time_and_original_token_count() -> None:
    session = codex_session()
    head, _, body = text_of(run(session, CapturedOutput(NUMBERS), requested_tokens=500)).partition("Output:\n")
    assert head == "Chunk ID: a1b2c3\nWall time: 0.2500 seconds\nProcess exited with code 0\nOriginal token count: 27224\n"
    assert body.startswith("Total output lines: 20000\n\n1\n2\n3\n")
    running = with_header(CapturedOutput("ok"), "ok", CommandStatus(running=7, seconds=10))
    assert running == "Wall time: 10.0000 seconds\nProcess running with session ID 7\nOriginal token count: 1\nOutput:\nok"


@pytest.mark.states("CX-26")
def test_the_newer_version_begins_what_was_cut_with_a_warning() -> None:
    body = text_of(run(codex_session("codex-0.166"), CapturedOutput(NUMBERS))).partition("Output:\n")[2]
    assert body.startswith("Warning: truncated output (original token count: 27224)\nTotal output lines: 20000\n\n1\n2\n")
    short = text_of(run(codex_session("codex-0.166"), CapturedOutput("ok")))
    assert short.endswith("\nOriginal token count: 1\nOutput:\nok")


@pytest.mark.states("CX-27")
def test_in_a_content_list_images_stay_and_later_texts_become_one_line() -> None:
    session = codex_session(settings={"tool_output_token_limit": "10"})
    image = Image("image/png", "blob")
    result = ToolResult("c1", (Text("a" * 40), image, Text("b" * 40), Text("c"), Text("d")))
    assert arrive(session, result).parts == (
        Text("a" * 40),
        image,
        Text("bbbb…8 tokens truncated…bbbb"),
        Text("[omitted 2 text items ...]"),
    )


@pytest.mark.parametrize("name", ["codex", "codex-0.166"])
@pytest.mark.states("CX-28")
def test_the_full_output_of_every_truncated_result_can_be_read_back_from_its_blob(name: str) -> None:
    session = codex_session(name)
    by_tool, by_record = run(session, CapturedOutput(NUMBERS)), arrive(session, ToolResult("c2", (Text(NUMBERS),)))
    for result in (by_tool, by_record, arrive(session, by_tool)):
        assert session.environment.blobs.get(result.blob).decode() == NUMBERS
    listed = arrive(session, ToolResult("c3", (Text(NUMBERS), Image("image/png", "blob"), Text("end"))))
    assert session.environment.blobs.get(listed.blob).decode() == f"{NUMBERS}\nend"
    assert run(session, CapturedOutput("short")).blob == ""


def test_the_size_that_is_told_counts_what_was_not_kept() -> None:
    kept = CapturedOutput("a" * 524_288 + "\n... 951424 bytes omitted ...\n" + "b" * 524_288, 951_424)
    assert "... 951424 bytes omitted ..." in bounded_body(kept, 500, warns=True).text.split("\n\n")[0]
    # A quarter of all that was written, kept or not.
    assert "Original token count: 500000\n" in with_header(kept, "", DONE)


UNKNOWN = ("openai-compatible/custom-model", "local/small")


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("model", UNKNOWN)
@pytest.mark.states("CX-24")
def test_what_an_unknown_model_reads_is_bounded_at_10_000_bytes(name: str, model: str) -> None:
    session = codex_session(name, card(model))
    first = "".join(f"{number}\n" for number in range(1, 3_001))
    assert "…3893 chars truncated…" in text_of(run(session, CapturedOutput(first)))
    assert "…98894 chars truncated…" in text_of(run(session, CapturedOutput(NUMBERS)))
    whole = arrive(session, ToolResult("c1", (Text("x" * 12_000),)))
    assert whole == ToolResult("c1", (Text("x" * 12_000),))
    assert "…1 chars truncated…" in text_of(arrive(session, ToolResult("c1", (Text("x" * 12_001),))))


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-24")
def test_a_setting_in_tokens_is_four_times_as_many_bytes_for_an_unknown_model(name: str) -> None:
    session = codex_session(name, card(UNKNOWN[0]), {"tool_output_token_limit": "500"})
    assert "…106894 chars truncated…" in text_of(run(session, CapturedOutput(NUMBERS)))


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-24")
def test_what_a_model_of_the_catalogue_reads_is_bounded_at_10_000_tokens(name: str) -> None:
    session = codex_session(name, card("gpt-5.5"))
    assert "…17224 tokens truncated…" in text_of(run(session, CapturedOutput(NUMBERS)))
    assert "…1 tokens truncated…" in text_of(arrive(session, ToolResult("c1", (Text("x" * 48_001),))))
    small = codex_session(name, card("gpt-5.5"), {"tool_output_token_limit": "500"})
    assert "…26724 tokens truncated…" in text_of(run(small, CapturedOutput(NUMBERS)))
