"""Anthropic Messages as the strict double plays it, and the conversations that the provider holds for a while."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from palimpsest.testing.strict.answers import (
    BilledTokenClasses,
    JsonObject,
    ScriptedReply,
    StrictModel,
    StrictRefusal,
    StrictRequest,
    canonical,
    strict_model,
    tokens_of_text,
)
from palimpsest.testing.strict.binding import (
    BINDING_BETA,
    THINKING,
    Bindings,
    Prefix,
    ThinkingFate,
    by_value,
    edited_reading,
    is_over_threshold,
    signed_summary,
    threshold_edit,
)
from palimpsest.testing.strict.cache import BreakpointCache, CachedBlock, MissReasons, iteration_of, prompt_blocks, usage_of
from palimpsest.testing.strict.rules import check_envelope, check_request_rules

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


class AnsweredMessage(NamedTuple):
    """What a request became: itself with its whole list, the JSON of its reply, the fate of its thinking, and its bill."""

    request: StrictRequest
    reply: JsonObject
    fates: tuple[ThinkingFate, ...] = ()
    billed: tuple[BilledTokenClasses, ...] = ()
    model: StrictModel | None = None


Script = Callable[[StrictRequest], ScriptedReply]


class StrictMessages:
    """The state behind `/v1/messages`: the cache, the conversations it holds, and what is remembered of replies.

    `script` gives the replies and `summarise` what a compaction says; both are asked only for requests that are accepted.
    """

    def __init__(self, bindings: Bindings, script: Script, summarise: Script, *, window: int | None) -> None:
        self._bindings = bindings
        self._script = script
        self._summarise = summarise
        self._window = window
        self._cache = BreakpointCache()
        self._misses = MissReasons()
        self._held = HeldConversations()
        self._replies = 0

    def answer(self, request: StrictRequest, now: float) -> AnsweredMessage:
        """Answer a request at a time in seconds. Raises `StrictRefusal`."""
        model = _known_model(request)
        check_envelope(request, model)
        request = self._held.whole(request, now)
        check_request_rules(request, model)
        fates, prefix = self._bindings.judge(request, model)
        unread: dict[tuple[int, int], JsonObject | None] = {(fate.message, fate.block): None for fate in fates if fate.dropped}
        tokens = sum(block.tokens for block in prompt_blocks(request, model, unread))
        reading = edited_reading(request, tokens)
        blocks = prompt_blocks(request, model, unread | reading.replaced)
        accepted = _AcceptedRequest(request, model, fates, prefix, blocks, reading.applied, now)
        if accepted.tokens > (limit := self._window or model.window):
            raise StrictRefusal("window", f"prompt is too long: {accepted.tokens} tokens > {limit} maximum")
        if request.path.endswith("/count_tokens"):
            return AnsweredMessage(request, {"input_tokens": accepted.tokens}, fates, (), model)
        if request.body.get("compaction") is not None:
            return self._compacted(accepted)
        return self._replied(accepted)

    def _replied(self, accepted: "_AcceptedRequest") -> AnsweredMessage:
        """The next reply; past a threshold behind the block of a compaction, which stands alone if the client wants a pause."""
        request, model = accepted.request, accepted.model
        edit = threshold_edit(request)
        bills: list[BilledTokenClasses] = []
        head: list[JsonObject] = []
        if edit is not None and is_over_threshold(edit, accepted.tokens):
            said = self._summarise(request)
            summary = _text_of(said) or None
            head = [{"type": "compaction", "content": summary}]
            bills.append(self._billed(accepted, tokens_of_text(summary or ""), 0))
            if summary is not None:
                message = {"role": "assistant", "content": head}
                shorter = replace(request, messages=(message,))
                accepted = accepted._replace(blocks=prompt_blocks(shorter, model, {}))
        paused = bool(head) and bool((edit or {}).get("pause_after_compaction"))
        empty = ScriptedReply(stop_reason="compaction" if paused else "max_tokens")
        scripted = empty if paused or not request.body["max_tokens"] else self._script(request)
        self._replies += 1
        content, output, thought = self._signed(scripted, accepted, head)
        if not paused:
            bills.append(self._billed(accepted, output, thought))
        return self._message(accepted, content, scripted.stop_reason or _stop_reason(content), bills, compacted=bool(head))

    def _compacted(self, accepted: "_AcceptedRequest") -> AnsweredMessage:
        """The signed block of a compaction on demand, or nothing with the reason why there is no summary. Both are billed."""
        said = self._summarise(accepted.request)
        self._replies += 1
        summary = _text_of(said)
        bill = self._billed(accepted, tokens_of_text(summary), 0)
        content = [signed_summary(accepted.request, accepted.model, accepted.prefix, summary)] if summary else []
        stop_reason = "compaction" if content else said.stop_reason or "end_turn"
        return self._message(accepted, content, stop_reason, [bill], compacted=True)

    def _billed(self, accepted: "_AcceptedRequest", output: int, thought: int) -> BilledTokenClasses:
        prompt = self._cache.bill(accepted.blocks, accepted.model, accepted.request.account, accepted.now)
        return BilledTokenClasses(prompt.input, prompt.read, prompt.written, prompt.written_long, output, thought)

    def _message(
        self, accepted: "_AcceptedRequest", content: list[JsonObject], stop_reason: str, bills: list[BilledTokenClasses], *, compacted: bool
    ) -> AnsweredMessage:
        request = accepted.request
        # The tokens of a compaction are not in the fields of the whole call.
        shown = bills[-1] if len(bills) == 2 or not compacted else BilledTokenClasses()
        message: JsonObject = {
            "id": f"msg_{self._replies}",
            "type": "message",
            "role": "assistant",
            "model": request.body["model"],
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage_of(shown),
        }
        if compacted:
            kinds = ("compaction", "message")
            message["usage"]["iterations"] = [iteration_of(kind, bill) for kind, bill in zip(kinds, bills, strict=False)]
        if BINDING_BETA in request.betas:
            message["input_transformations"] = [fate.transformation for fate in accepted.fates if fate.reason]
        if request.body.get("context_management") is not None:
            message["context_management"] = {"applied_edits": accepted.applied}
        if isinstance(request.body.get("diagnostics"), dict):
            message["diagnostics"] = self._misses.diagnose(request, accepted.blocks)
            self._misses.keep(message["id"], request, accepted.blocks)
        self._held.keep(request, message, accepted.now)
        return AnsweredMessage(request, message, accepted.fates, tuple(bills), accepted.model)

    def _signed(self, scripted: ScriptedReply, accepted: "_AcceptedRequest", head: list[JsonObject]) -> tuple[list[JsonObject], int, int]:
        """The blocks of a reply behind its head with ids and signatures, and their tokens: all, and those of thinking."""
        request, model, prefix = accepted.request, accepted.model, accepted.prefix
        shown = (request.body.get("thinking") or {}).get("display") == "summarized"
        content = list(head)
        output = thought = 0
        prefix.open({"role": "assistant", "content": "something"})
        for block in head:
            prefix.add(block)
        for place, block in enumerate(scripted.blocks):
            number = f"{self._replies}_{place}"
            tokens = tokens_of_text(canonical(block))
            if block["type"] in THINKING:
                if not _thinks(request, model):
                    continue
                thought += tokens
                plain = {**block, "thinking": block["thinking"] if shown else ""} if block["type"] == "thinking" else block
                signed = prefix.sign(plain, number, model.name, request.account, tokens)
            else:
                signed = {"id": f"toolu_{number}", **block} if block["type"] == "tool_use" else block
                prefix.add(signed)
            output += tokens
            content.append(signed)
        return content, output, thought


class _AcceptedRequest(NamedTuple):
    """A request that broke no rule: what became of its thinking, the prefix behind it, and what the model reads."""

    request: StrictRequest
    model: StrictModel
    fates: tuple[ThinkingFate, ...]
    prefix: Prefix
    blocks: list[CachedBlock]
    applied: list[JsonObject]
    now: float

    @property
    def tokens(self) -> int:
        return sum(block.tokens for block in self.blocks)


def _text_of(said: ScriptedReply) -> str:
    return "".join(block["text"] for block in said.blocks if block["type"] == "text")


def _known_model(request: StrictRequest) -> StrictModel:
    name = request.body.get("model")
    model = strict_model(name) if isinstance(name, str) else None
    if model is None or model.provider != "anthropic":
        raise StrictRefusal("model", f"model: {name}", 404, "not_found_error")
    return model


def _thinks(request: StrictRequest, model: StrictModel) -> bool:
    thinking = request.body.get("thinking")
    return model.thinks if thinking is None else thinking["type"] in {"adaptive", "enabled", "between_tools"}


def _stop_reason(content: list[JsonObject]) -> str:
    return "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
