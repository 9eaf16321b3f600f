"""Conversations that the provider holds: created, continued once from each reply, and gone five minutes after their last request."""

from dataclasses import replace
from typing import Any, Final, NamedTuple

from palimpsest.testing.strict.answers import JsonObject, StrictRefusal, StrictRequest, canonical
from palimpsest.testing.strict.binding import by_value

_LIFETIME_S: Final = 300.0


class HeldConversation(NamedTuple):
    """What a provider holds of a conversation behind one reply; `until` is the time in seconds when it is gone."""

    account: str
    body: JsonObject
    messages: tuple[JsonObject, ...]
    until: float


class HeldConversations:
    """The conversations by the id of their last reply."""

    def __init__(self) -> None:
        self._held: dict[str, HeldConversation] = {}
        self._continued: set[str] = set()

    def whole(self, request: StrictRequest, now: float) -> StrictRequest:
        """Return a request with the whole list that it stands for. Raises `StrictRefusal` if its thread is not there or does not fit."""
        thread = request.body.get("thread")
        if thread is None:
            return request
        kind = thread.get("type") if isinstance(thread, dict) else None
        if kind not in {"create", "continue"}:
            raise StrictRefusal("thread", "thread: Input tag does not match any of the expected tags: 'create', 'continue'")
        if request.path.endswith("/count_tokens") or request.body.get("compaction") is not None:
            raise _refused("This request does not support `thread`.", "thread_unsupported_request")
        if kind == "create":
            return request
        previous = thread.get("previous_message_id")
        if not isinstance(previous, str):
            raise StrictRefusal("thread", "thread.continue.previous_message_id: Input should be a valid string")
        return self._continuation(request, previous, now)

    def _continuation(self, request: StrictRequest, previous: str, now: float) -> StrictRequest:
        held = self._held.get(previous)
        if held is None or held.account != request.account or held.until <= now:
            raise StrictRefusal("thread_not_found", "Thread not found.", 404, "not_found_error", "thread_not_found")
        if previous in self._continued:
            raise _refused("This thread was already continued from that message.", "thread_already_continued")
        for field in ("model", "system", "tools"):
            if field in request.body and _value(request.body[field]) != _value(held.body.get(field)):
                raise _refused(f"`{field}` differs from the one the thread was created with.", "thread_fingerprint_mismatch")
        kept: JsonObject = {field: _unmarked(held.body[field]) for field in ("system", "tools") if field in held.body}
        return replace(request, body={**kept, **request.body}, messages=(*held.messages, *request.messages))

    def keep(self, request: StrictRequest, message: JsonObject, now: float) -> None:
        """Hold the conversation behind a reply, if the request asked for that."""
        thread = request.body.get("thread")
        if isinstance(thread, dict):
            self._continued.add(str(thread.get("previous_message_id")))
            reply = {"role": "assistant", "content": message["content"]}
            listed = tuple({**each, "content": _unmarked(each.get("content"))} for each in request.messages)
            conversation = HeldConversation(request.account, request.body, (*listed, reply), now + _LIFETIME_S)
            self._held[message["id"]] = conversation


def _unmarked(blocks: Any) -> Any:
    """Blocks without their cache breakpoints: those count for the request that carries them, not for its continuations."""
    if not isinstance(blocks, list):
        return blocks
    bare = ({key: value for key, value in block.items() if key != "cache_control"} for block in blocks)
    return [{**block, "content": _unmarked(block["content"])} if "content" in block else block for block in bare]


def _refused(message: str, code: str) -> StrictRefusal:
    return StrictRefusal(code, message, code=code)


def _value(field: Any) -> object:
    blocks = [{"type": "text", "text": field}] if isinstance(field, str) else field or []
    return canonical([by_value(block) for block in blocks])
