"""Repairs call ids and unpaired calls of a request before it is sent, and adapts each item to the model that reads it."""

from collections import deque
from collections.abc import Callable
from hashlib import sha1, sha256
from itertools import count
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from palimpsest.core.errors import DamagedBlob, MissingBlob
from palimpsest.core.items import (
    Content,
    Document,
    Form,
    Image,
    Item,
    Opaque,
    Part,
    Role,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    text_of,
)
from palimpsest.core.text import lazy_pattern
from palimpsest.core.view import shown, speaker
from palimpsest.wire.encoding import MISSING_CALL_ID, BlockKind, Fragment, opaque_type
from palimpsest.wire.json_reading import Json, dump, is_object, tables_at, text
from palimpsest.wire.media import Fetch, inlined, is_inline, media_of
from palimpsest.wire.models import ModelCard, parse_model_name
from palimpsest.wire.request import RepairCase, RequestRepair
from palimpsest.wire.rules import ANTHROPIC_BLOCKS, RESPONSES_PARTS, block_violations

IdRule: TypeAlias = Literal["any", "claude", "mistral"]
"""Characters and lengths of call ids that a server accepts."""

_OPEN: dict[Form, tuple[RepairCase, bool]] = {
    "json": ("open_call", False),
    "free": ("open_free_call", True),
    "shell": ("open_shell_call", True),
    "search": ("open_search_call", False),
}
_ORPHAN: dict[Form, tuple[RepairCase, bool]] = {
    "json": ("orphan_result", True),
    "free": ("orphan_free_result", True),
    "shell": ("orphan_result", True),
    "search": ("orphan_search_result", False),
}
_PREFIX: dict[Form, str] = {"json": "fco", "shell": "fco", "free": "ctco", "search": "tso"}
_NAMESPACE = bytes.fromhex("90d38d3e6a5b4d52bfe22f1e634bfac4")
_NOT_CLAUDE = lazy_pattern(r"[^a-zA-Z0-9_-]")
_NOT_MISTRAL = lazy_pattern(r"[^a-zA-Z0-9]")
_MISTRAL_LENGTH = 9


def repair_pairs(fragments: list[Fragment], encoder: "RepairEncoder") -> tuple[list[Fragment], tuple[RequestRepair, ...]]:
    """Pair every call with one result after it; returns the fragments and the repairs. A valid list is returned unchanged."""
    open_by_key: set[str] = set()
    sent_ids: set[str] = set()
    call, result = BlockKind.CALL, BlockKind.RESULT
    for fragment in fragments:
        key = fragment.key
        if not key:
            continue
        if fragment.place == call:
            if fragment.wire_id in sent_ids:
                break
            sent_ids.add(fragment.wire_id)
            open_by_key.add(key)
        elif fragment.place == result:
            if key not in open_by_key:
                break
            open_by_key.remove(key)
    else:
        if not open_by_key:
            return fragments, ()
    return _RepairPass(encoder).run(fragments)


class RepairEncoder:
    """Encodes what a repair inserts: an item under another call id, and the result of an unanswered call."""

    def __init__(self, encode_under: Callable[[Item, str], Fragment], interrupted: str, id_rule: IdRule) -> None:
        self.encode_under = encode_under
        self.interrupted = interrupted
        self.id_rule = id_rule

    def error_result(self, call: Fragment) -> Fragment:
        """An error result for an unanswered call; it has the item id of the call."""
        content = call.item.content
        ref = inserted_id(call.form, content.ref)
        call_id = call.key.partition(":")[2]
        parts = () if call.form == "search" else (Text(self.interrupted),)
        return self.encode_under(
            Item(call.item.id, "result", ToolResult(call_id, parts, error=True, form=call.form, ref=ref)), call.wire_id
        )


class _RepairPass:
    """One pass over unpaired fragments: queues of open calls by pair key, oldest first."""

    def __init__(self, encoder: RepairEncoder) -> None:
        self.encoder = encoder
        self.sent_fragments: list[Fragment] = []
        self.repairs: list[RequestRepair] = []
        self.open_by_key: dict[str, deque[int]] = {}
        self.open_calls: dict[int, Fragment] = {}
        self.sent_ids: set[str] = set()

    def run(self, fragments: list[Fragment]) -> tuple[list[Fragment], tuple[RequestRepair, ...]]:
        for fragment in fragments:
            if not fragment.key:
                self.sent_fragments.append(fragment)
            elif fragment.place == BlockKind.CALL:
                self.add_call(fragment)
            else:
                self.add_result(fragment)
        for call in self.open_calls.values():
            case, bug = _OPEN[call.form]
            self.repairs.append(RequestRepair(case, call.item.id, call.wire_id, bug))
        repaired: list[Fragment] = []
        for index, fragment in enumerate(self.sent_fragments):
            repaired.append(fragment)
            if index in self.open_calls:
                repaired.append(self.encoder.error_result(fragment))
        return repaired, tuple(self.repairs)

    def add_call(self, fragment: Fragment) -> None:
        if fragment.wire_id in self.sent_ids:
            other = unused_call_id(fragment.wire_id, fragment.key, self.sent_ids, self.encoder.id_rule)
            self.repairs.append(RequestRepair("renamed_call", fragment.item.id, other))
            fragment = self.encoder.encode_under(fragment.item, other)
        self.sent_ids.add(fragment.wire_id)
        self.open_by_key.setdefault(fragment.key, deque()).append(len(self.sent_fragments))
        self.open_calls[len(self.sent_fragments)] = fragment
        self.sent_fragments.append(fragment)

    def add_result(self, fragment: Fragment) -> None:
        queue = self.open_by_key.get(fragment.key)
        if not queue:
            case, bug = _ORPHAN[fragment.form]
            if queue is not None:
                case, bug = "duplicate_result", True
            self.repairs.append(RequestRepair(case, fragment.item.id, fragment.wire_id, bug))
            return
        # A result answers the call of its wire id, or else the oldest open call.
        index = next((place for place in queue if self.open_calls[place].wire_id == fragment.wire_id), queue[0])
        queue.remove(index)
        call = self.open_calls.pop(index)
        if call.wire_id != fragment.wire_id:
            fragment = self.encoder.encode_under(fragment.item, call.wire_id)
        self.sent_fragments.append(fragment)


def valid_call_id(call_id: str, rule: IdRule) -> str:
    """A call id with only the characters that a server accepts."""
    match rule:
        case "any":
            return call_id or MISSING_CALL_ID
        case "claude":
            return _NOT_CLAUDE.sub("_", call_id) or MISSING_CALL_ID
        case "mistral":
            return _NOT_MISTRAL.sub("", call_id)[:_MISTRAL_LENGTH].ljust(_MISTRAL_LENGTH, "0")


def unused_call_id(wire_id: str, key: str, taken: set[str], rule: IdRule) -> str:
    """A free id for a call whose own is taken; deterministic for the same calls."""
    if rule == "mistral":
        candidates = (sha256(f"{key}:{number}".encode()).hexdigest()[:_MISTRAL_LENGTH] for number in count(2))
    else:
        candidates = (f"{wire_id}_{number}" for number in count(2))
    return next(candidate for candidate in candidates if candidate not in taken)


def inserted_id(form: Form, call_item: str) -> str:
    """The item id of an inserted output: a name-based UUID of the id of its call, so that it is the same each time."""
    if not call_item:
        return ""
    prefix = _PREFIX[form]
    digest = bytearray(sha1(_NAMESPACE + f"{prefix}:{call_item}".encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{prefix}_{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def provider_call_id(call: ToolCall, rule: IdRule) -> str:
    """The id that the provider gave a call, if it was recorded and its characters are accepted; else empty."""
    return call.given if call.given and valid_call_id(call.given, rule) == call.given else ""


class ProviderCallIds:
    """Encodes calls and their results under the ids that the provider gave, and caches these fragments while they are in the view.

    The first call with a provider id gets it, unless another call is recorded under that id: new calls never change earlier ones.
    """

    def __init__(self, encode_under: Callable[[Item, str], Fragment]) -> None:
        self._encode_under = encode_under
        self.cached: dict[int, Fragment] = {}

    def apply(self, fragments: list[Fragment]) -> list[Fragment]:
        """The fragments under the ids they are sent with; a list without provider ids is returned unchanged."""
        with_provider_id = [fragment for fragment in fragments if fragment.provider_id]
        if not with_provider_id:
            self.cached = {}
            return fragments
        taken = {fragment.wire_id for fragment in fragments if fragment.place == BlockKind.CALL and fragment.key}
        id_by_key: dict[str, str] = {}
        for fragment in with_provider_id:
            if fragment.provider_id not in taken:
                taken.add(fragment.provider_id)
                id_by_key[fragment.key] = fragment.provider_id
        kept, self.cached = self.cached, {}
        return [
            self._encoded_under(fragment, id_by_key[fragment.key], kept) if fragment.key in id_by_key else fragment
            for fragment in fragments
        ]

    def adopt(self, other: "ProviderCallIds") -> None:
        """Copy the cache of another instance."""
        self.cached = dict(other.cached)

    def _encoded_under(self, fragment: Fragment, name: str, kept: dict[int, Fragment]) -> Fragment:
        found = kept.get(id(fragment.item))
        if found is None or found.wire_id != name:
            found = self._encode_under(fragment.item, name)
        self.cached[id(fragment.item)] = found
        return found


# Pairs are checked by their item kinds; a call or result inside an opaque block would stay unpaired.
_PAIRED: Final = frozenset({"tool_use", "tool_result"})
_WITHIN_RESULTS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference"})
_BREAKPOINT: Final = "cache_control"


def sendable_block(data: str, role: Role, *, within_result: bool = False, binds: bool = False) -> str | None:
    """The JSON of an opaque block without cache breakpoints, or `None` if the provider would reject it.

    A model that `binds` thinking to what stands before it gets a block of a kind that is not known yet as it came in its reply.
    """
    block = msgspec.json.decode(data, type=dict[str, object])
    bare = _without_breakpoints(block)
    kind = text(bare, "type")
    if kind in _PAIRED or (within_result and kind not in _WITHIN_RESULTS):
        return None
    is_new = binds and role == "assistant" and kind != "" and kind not in ANTHROPIC_BLOCKS
    if not is_new and any(block_violations(bare, "assistant" if role == "assistant" else "user")):
        return None
    # Unchanged bytes where possible, because providers compare what they sent.
    return data.strip() if bare is block else dump(bare)


def _without_breakpoints(block: Json) -> Json:
    with_breakpoint = [part for part in tables_at(block, "content") if _BREAKPOINT in part]
    if _BREAKPOINT not in block and not with_breakpoint:
        return block
    bare = {key: value for key, value in block.items() if key != _BREAKPOINT}
    content = bare.get("content")
    if with_breakpoint and isinstance(content, list):
        bare["content"] = [
            {key: value for key, value in part.items() if key != _BREAKPOINT} if part in with_breakpoint else part for part in content
        ]
    return bare


_PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PAPERS = frozenset({"application/pdf", "text/plain"})


def sendable_content(item: Item, card: ModelCard, fetch: Fetch) -> Content | None:
    """The content that this model is sent for an item, or `None` if it is sent nothing; blobs are data URLs in it.

    A text takes the place of a blob that is missing or damaged.
    """
    content = shown(item)
    match content:
        case None:
            return None
        case Text():
            # An empty text between two thoughts of a reply is sent where thinking is bound to it.
            return content if content.text or (card.binds_thinking and content.role == "assistant") else None
        case Thinking():
            return _thinking(content, card)
        case Image() | Document():
            if role_of(item) == "assistant":
                return Text(f"[{_name(content)}]", "assistant", ref=content.ref)
            return _sendable_part(content, card, fetch)
        case Opaque():
            return _opaque(content, card, role_of(item))
        case ToolResult():
            if not content.call_id and card.wire != "responses":
                return Text(text_shown) if (text_shown := text_of(content)) else None
            return _sendable_result(content, card, fetch)
        case ToolCall():
            return content


def role_of(item: Item) -> Role:
    """The role of an item, by its content or else by its kind."""
    return item.content.role if isinstance(item.content, Text) else speaker(item.kind)


def may_read_state(provider: str, model: str, card: ModelCard) -> bool:
    """Whether this model can use signatures and encrypted items of a provider and model.

    OpenAI accepts them across a model family, but behind what a model that drops reasoning cannot use it may drop its own. Some models read
    the thinking of others, which their cards name.
    """
    if provider != card.provider:
        return False
    if model in {card.name, card.api_name} or parse_model_name(model).card in card.reads_thinking:
        return True
    if card.wire == "responses" and card.family and not card.drops_reasoning:
        return model.startswith(card.family)
    return parse_model_name(model).card == parse_model_name(card.api_name or card.name).card


def usable_signature(content: Thinking, card: ModelCard) -> Signature | None:
    """The signature or encrypted content of a thinking item, if this model can use it."""
    signature = content.signature
    return signature if signature is not None and may_read_state(signature.provider, signature.model, card) else None


def _thinking(content: Thinking, card: ModelCard) -> Thinking | None:
    if content.signature is None:
        return content if content.text else None
    if usable_signature(content, card) is not None:
        return content
    # Without its signature the thinking of another model would look like that of this model.
    return None


def _sendable_result(content: ToolResult, card: ModelCard, fetch: Fetch) -> ToolResult:
    fitted = tuple(
        fitted_part for part in content.parts if (fitted_part := _sendable_part(part, card, fetch, within_result=True)) is not None
    )
    return content if fitted == content.parts else replace(content, parts=fitted)


def _sendable_part(part: Part, card: ModelCard, fetch: Fetch, *, within_result: bool = False) -> Part | None:
    match part:
        case Text():
            return part if part.text else None
        case Image() | Document() if not part.blob and not part.url:
            return _placeholder(part, "its bytes were not kept")
        case Image():
            return (
                _whole(part, fetch)
                if card.images and _is_supported_media(part, card)
                else _unreadable(part, "see images" if not card.images else "see this format")
            )
        case Document():
            readable = card.documents and _is_supported_media(part, card)
            return _whole(part, fetch) if readable else _unreadable(part, "read documents" if not card.documents else "read this format")
        case Opaque():
            return _opaque(part, card, "user", within_result=within_result)


def _whole(part: Image | Document, fetch: Fetch) -> Part:
    try:
        return inlined(part, fetch)
    except DamagedBlob:
        return _placeholder(part, "its bytes are damaged")
    except MissingBlob:
        return _placeholder(part, "its bytes are missing")


def _opaque(content: Opaque, card: ModelCard, role: Role, *, within_result: bool = False) -> Opaque | Text | None:
    # Chat Completions has no provider-specific items, so that it always gets the text fallback.
    if card.wire != "chat" and may_read_state(content.provider, content.model, card) and is_object(content.data):
        data: str | None = content.data
        if card.wire == "anthropic":
            data = sendable_block(content.data, role, within_result=within_result, binds=card.binds_thinking)
        elif within_result and opaque_type(content) not in RESPONSES_PARTS:
            data = None
        if data is not None:
            return content if data == content.data else replace(content, data=data)
    return Text(content.text_fallback, role, ref=content.ref) if content.text_fallback else None


def _is_supported_media(part: Image | Document, card: ModelCard) -> bool:
    if card.wire != "anthropic" or not is_inline(part):
        return True
    return media_of(part) in (_PICTURES if isinstance(part, Image) else _PAPERS)


def _name(part: Image | Document) -> str:
    if isinstance(part, Image):
        return f"image {part.media}"
    return f"document {part.name} {part.media}" if part.name else f"document {part.media}"


def _unreadable(part: Image | Document, sense: str) -> Text:
    return _placeholder(part, f"this model cannot {sense}")


def _placeholder(part: Image | Document, reason: str) -> Text:
    return Text(f"[{_name(part)} not shown: {reason}]", ref=part.ref)
