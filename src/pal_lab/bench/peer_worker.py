"""Edits message lists by a peer; runs in another Python, which has that peer and not this package."""

import contextlib
import copy
import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

Messages: TypeAlias = list[dict[str, Any]]
Editor: TypeAlias = Callable[[Messages], Messages]
_MODEL = "claude-sonnet-4-5-20250929"
# Distributions by the first word of a name.
_PACKAGES = {"headroom": "headroom-ai", "llmtrim": "llmtrim", "litellm": "litellm"}


def _headroom() -> Editor:
    library = importlib.import_module("headroom")

    def edit(messages: Messages) -> Messages:
        # Its text model comes from a hub, which is not asked.
        found: Messages = library.compress(messages, model=_MODEL, kompress_model="disabled").messages
        return found

    return edit


def _headroom_frozen() -> Editor:
    """What was sent stays as it was sent, and only what is new is looked at; another past begins from nothing."""
    library = importlib.import_module("headroom")
    given: Messages = []
    sent: Messages = []

    def edit(messages: Messages) -> Messages:
        nonlocal given, sent
        plain = [_without_marks(message) for message in messages]
        known = sent if plain[: len(given)] == given else []
        both = [*copy.deepcopy(known), *messages[len(known) :]]
        found = library.compress(both, model=_MODEL, kompress_model="disabled", frozen_message_count=len(known)).messages
        given, sent = plain, found
        return list(found)

    return edit


def _llmtrim() -> Editor:
    library = importlib.import_module("llmtrim")

    def edit(messages: Messages) -> Messages:
        body = json.dumps({"model": _MODEL, "max_tokens": 8_000, "messages": messages})
        found: Messages = json.loads(library.compress(body, library.Provider.ANTHROPIC, None).request_json)["messages"]
        return found

    return edit


def _litellm(trigger: int, *, hidden: bool) -> Editor:
    compress = importlib.import_module("litellm.compression").compress

    def edit(messages: Messages) -> Messages:
        given = [_without_marks(message) for message in messages] if hidden else messages
        found: Messages = compress(given, _MODEL, call_type="anthropic_messages", compression_trigger=trigger)["messages"]
        return found

    return edit


def _without_marks(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    if not isinstance(content, list):
        return message
    return {**message, "content": [{key: value for key, value in block.items() if key != "cache_control"} for block in content]}


EDITORS: dict[str, Callable[[], Editor]] = {
    "headroom": _headroom,
    "headroom-frozen": _headroom_frozen,
    "llmtrim": _llmtrim,
    "litellm-100k": lambda: _litellm(100_000, hidden=False),
    "litellm-50k-hidden": lambda: _litellm(50_000, hidden=True),
}


def main() -> None:
    """Print a line with the version, and for each line of standard input, a list, one with `messages` and `ms`, or with an `error`.

    The first argument names the editor.
    """
    os.environ.update(HEADROOM_OFFLINE="1", LITELLM_LOCAL_MODEL_COST_MAP="True", HF_HUB_OFFLINE="1")
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What a library prints must not be taken for a reply.
    os.dup2(2, 1)
    name = sys.argv[1]
    try:
        edit = EDITORS[name]()
        output.write(json.dumps({"version": importlib.metadata.version(_PACKAGES[name.partition("-")[0]])}) + "\n")
    except ImportError as error:
        output.write(json.dumps({"error": str(error)}) + "\n")
        return
    finally:
        output.flush()
    for line in sys.stdin:
        messages = json.loads(line)
        begun = time.perf_counter()
        answer: dict[str, Any]
        try:
            with contextlib.redirect_stdout(sys.stderr):
                edited = edit(messages)
            answer = {"messages": edited, "ms": (time.perf_counter() - begun) * 1_000}
        except Exception as error:  # noqa: BLE001 - whatever a peer raises, its request would be sent as it was
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        output.write(json.dumps(answer) + "\n")
        output.flush()


if __name__ == "__main__":
    main()
