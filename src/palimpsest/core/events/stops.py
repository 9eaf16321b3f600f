"""Stop reasons: one vocabulary, and the mapping of the words of providers and other agents to it."""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, get_args

from palimpsest.core.items import Content, ToolCall

StopReason: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause", "context_window", "error", ""]
"""Why a reply ended; empty if that is unknown, or if the reply was interrupted."""

# Keys are in lower case with underscores, because the same word occurs in several spellings.
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
    # Chat Completions, of OpenAI and compatible servers.
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
    """Return the stop reason for a word of this vocabulary, a provider, another agent or a log of 0.1.0; empty if it is unknown."""
    return _WORDS.get(word.lower().replace("-", "_"), "")


def decoded_stop(word: str, parts: Iterable[Content], *, refused: bool = False) -> tuple[StopReason, str]:
    """Return the stop reason of a decoded reply, and the provider's own word if it differs.

    Some servers report the end of a turn although the reply calls a tool or is a refusal: then the parts of the reply decide.
    """
    reason = stop_reason(word)
    if reason == "end_turn":
        if refused:
            reason = "refusal"
        elif any(isinstance(part, ToolCall) for part in parts):
            reason = "tool_use"
    return reason, "" if word == reason else word
