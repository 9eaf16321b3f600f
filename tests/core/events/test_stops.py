from every_case import every_case

from palimpsest.core.events import StopReason, decoded_stop, stop_reason
from palimpsest.core.items import Content, Text, ToolCall

SAID: tuple[Content, ...] = (Text("Done.", "assistant"),)
CALLED: tuple[Content, ...] = (*SAID, ToolCall("c1", "read", "{}"))


@every_case(
    ("word", "reason"),
    [
        ("end_turn", "end_turn"),
        ("pause_turn", "pause"),
        ("model_context_window_exceeded", "context_window"),
        ("completed", "end_turn"),
        ("max_output_tokens", "max_tokens"),
        ("failed", "error"),
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("content_filter", "refusal"),
        ("tool-calls", "tool_use"),
        ("content-filter", "refusal"),
        ("toolUse", "tool_use"),
        ("aborted", "error"),
        ("MAX_TOKENS", "max_tokens"),
        ("SAFETY", "refusal"),
        ("in_progress", ""),
        ("", ""),
    ],
)
def test_the_word_of_any_provider_or_program_has_its_stop_reason(word: str, reason: StopReason) -> None:
    assert stop_reason(word) == reason


@every_case("reason", ["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause", "context_window", "error", ""])
def test_a_word_of_the_vocabulary_means_itself(reason: StopReason) -> None:
    assert stop_reason(reason) == reason


def test_the_providers_own_word_is_kept_where_it_differs() -> None:
    assert decoded_stop("end_turn", SAID) == ("end_turn", "")
    assert decoded_stop("stop", SAID) == ("end_turn", "stop")
    assert decoded_stop("solar_flare", SAID) == ("", "solar_flare")


def test_a_reply_that_calls_a_tool_or_refuses_did_not_end_its_turn() -> None:
    assert decoded_stop("completed", CALLED) == ("tool_use", "completed")
    assert decoded_stop("completed", SAID, refused=True) == ("refusal", "completed")
    assert decoded_stop("end_turn", CALLED) == ("tool_use", "end_turn")
    assert decoded_stop("length", CALLED) == ("max_tokens", "length")
