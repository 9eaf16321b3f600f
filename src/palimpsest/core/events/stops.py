"""Stop reasons: one vocabulary for why a reply ended, and the words of providers and other agents mapped to it."""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, get_args

from palimpsest.core.items import Content, ToolCall

StopReason: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause", "context_window", "error", ""]
"""Why a reply ended; the empty word means that it is not known, or that the reply did not end by itself."""

# In lower case and with underscores for hyphens, for the same word is written in several ways.
_WORDS: Mapping[str, StopReason] = {
    **{word: word for word in get_args(StopReason)},
    # Messages.
    "pause_turn": "pause",
    "compaction": "pause",
    "model_context_window_exceeded": "context_window",
    # Responses: a status, or the reason for which a response is incomplete.
    "completed": "end_turn",
    "incomplete": "max_tokens",
    "max_output_tokens": "max_tokens",
    "failed": "error",
    "cancelled": "error",
    # Chat Completions, as OpenAI and other servers speak it.
    "stop": "end_turn",
    "eos": "end_turn",
    "eos_token": "end_turn",
    "length": "max_tokens",
    "model_length": "context_window",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "abort": "error",
    "insufficient_system_resource": "error",
    # Words of other agents' files.
    "tooluse": "tool_use",
    "aborted": "error",
    "safety": "refusal",
    "recitation": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
    "spii": "refusal",
    "malformed_function_call": "error",
}


def stop_reason(word: str) -> StopReason:
    """The stop reason that a word means: of this vocabulary, of a provider, of another agent's file or of a log of 0.1.0."""
    return _WORDS.get(word.lower().replace("-", "_"), "")


def decoded_stop(word: str, parts: Iterable[Content], *, refused: bool = False) -> tuple[StopReason, str]:
    """The stop reason of a reply that was just decoded, and the provider's own word where that differs.

    Some servers say that a turn ended although the reply calls a tool or is a refusal: then its parts decide.
    """
    reason = stop_reason(word)
    if reason == "end_turn":
        if refused:
            reason = "refusal"
        elif any(isinstance(part, ToolCall) for part in parts):
            reason = "tool_use"
    return reason, "" if word == reason else word
