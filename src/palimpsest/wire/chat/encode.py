"""Encodes a view for Chat Completions, of OpenAI and of compatible servers."""

from itertools import groupby, takewhile

from palimpsest.core.items import Document, Image, Item, Opaque, Role, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.encoding.fragments import Assembled, BlockKind, Fragment, dump, empty_fragment, extra_members, object_members
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.encoding.messages import alternating_messages, framed_statement, is_statement
from palimpsest.wire.encoding.options import chat_fields
from palimpsest.wire.encoding.repair import provider_call_id, valid_call_id
from palimpsest.wire.encoding.sendable import sendable_content
from palimpsest.wire.encoding.tools import arguments_object, pair_key, sent_name, wire_names
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params, RequestRepair, Tool, is_given

_OPENING_TEXT = "Go on."
_DONE_MESSAGE = b',{"role":"assistant","content":"Done."}'
_TEXT = "text"


class ChatWire:
    """Encoder for Chat Completions: tool messages directly after their calls, images only in user messages.

    The body of a text fragment is a JSON string, so that a message of one text needs no list of parts; its group is `text`.
    """

    def __init__(self, card: ModelCard, tools: tuple[Tool, ...], params: Params, fetch: Fetch) -> None:
        self._card = card
        self._fetch = fetch
        self._names = wire_names(tools, "chat")
        self._echo = params.echo
        self._mistral = card.call_ids == "mistral"
        self._prefix = b"{" + object_members(chat_fields(card, tools, params))
        self._suffix = extra_members(params.extra) if is_given(params.extra) else b""

    def head(self, item: Item) -> Fragment:
        """A text of the head; the group is its role."""
        content = sendable_content(item, self._card, self._fetch)
        if not isinstance(content, Text):
            return empty_fragment(item)
        return Fragment(item, BlockKind.USER, content.text.encode(), group=self._role(content.role))

    def _role(self, role: Role) -> str:
        # Only OpenAI has the role developer; the chat templates of other servers fail on it.
        return "system" if role == "developer" and self._card.provider != "openai" else role

    def fragment(self, item: Item, wire_id: str = "") -> Fragment:
        """A text, a part, a tool call or a tool message."""
        content = sendable_content(item, self._card, self._fetch)
        match content:
            case None:
                return empty_fragment(item)
            case Text():
                return self._text(item, content)
            case Thinking():
                return Fragment(item, BlockKind.THINKING, dump(content.text)) if self._echo and content.text else empty_fragment(item)
            case Image() | Document():
                return Fragment(item, BlockKind.USER, self._media(content))
            case Opaque():
                return empty_fragment(item)
            case ToolCall():
                name = wire_id or valid_call_id(content.call_id, self._card.call_ids)
                function = {"name": sent_name(content.tool, self._names, "chat"), "arguments": arguments_object(content).decode()}
                body = dump({"id": name, "type": "function", "function": function})
                provider_id = provider_call_id(content, self._card.call_ids)
                return Fragment(item, BlockKind.CALL, body, pair_key(content.call_id), name, content.form, provider_id=provider_id)
            case ToolResult():
                return self._result(item, content, wire_id)

    def _text(self, item: Item, content: Text) -> Fragment:
        body = dump(content.text)
        if content.role == "assistant":
            return Fragment(item, BlockKind.ASSISTANT, body, group=_TEXT)
        if not is_statement(content):
            return Fragment(item, BlockKind.USER, body, group=_TEXT)
        if not self._card.takes_system_messages:
            return Fragment(item, BlockKind.USER, dump(framed_statement(content.text)), group=_TEXT)
        return Fragment(item, BlockKind.USER, b',{"role":"%s","content":%s}' % (self._role(content.role).encode(), body), group="message")

    def _result(self, item: Item, content: ToolResult, wire_id: str) -> Fragment:
        name = wire_id or valid_call_id(content.call_id, self._card.call_ids)
        texts = [part.text for part in content.parts if isinstance(part, Text)]
        output: object = "".join(texts) if len(texts) < 2 else [{"type": "text", "text": text} for text in texts]
        shown = [self._media(part) for part in content.parts if isinstance(part, Image | Document)]
        aside = b""
        if shown:
            aside = b",".join((dump({"type": "text", "text": f"[from the result of call {name}]"}), *shown))
            output = output or "[shown in the next message]"
        body = b"," + dump({"role": "tool", "tool_call_id": name, "content": output})
        return Fragment(item, BlockKind.RESULT, body, pair_key(content.call_id), name, content.form, aside=aside)

    def _media(self, part: Image | Document) -> bytes:
        if isinstance(part, Image):
            detail = {"detail": part.detail} if part.detail else {}
            return dump({"type": "image_url", "image_url": {"url": part.url, **detail}})
        return dump({"type": "file", "file": {"filename": part.name or "file", "file_data": part.url}})

    def assemble(self, view: View, heads: list[Fragment], fragments: list[Fragment]) -> Assembled:
        """Join the fragments into the body: the head, then alternating messages."""
        del view
        messages = alternating_messages(fragments)
        repairs: tuple[RequestRepair, ...] = ()
        if not messages:
            opener = Item("", "notice", Text(_OPENING_TEXT))
            messages = [(False, [self._text(opener, Text(_OPENING_TEXT))])]
            repairs = (RequestRepair("no_first_user", ""),)
        chunks = [self._prefix, b',"messages":[']
        start = len(chunks)
        _add_head(chunks, [head for head in heads if head.place])
        for from_model, blocks in messages:
            if from_model:
                _add_assistant(chunks, blocks)
            else:
                self._add_user_side(chunks, blocks)
        chunks[start] = chunks[start][1:]
        chunks += (b"]", self._suffix, b"}")
        return Assembled(b"".join(chunks), repairs=repairs)

    def _add_user_side(self, chunks: list[bytes], blocks: list[Fragment]) -> None:
        results = list(takewhile(lambda block: block.place == BlockKind.RESULT, blocks))
        chunks += (block.body for block in results)
        asides = [block.aside for block in results if block.aside]
        parts: list[Fragment] = []
        rest = len(results)
        if rest == len(blocks) and not asides:
            return
        if rest and self._mistral:
            chunks.append(_DONE_MESSAGE)
        for block in blocks[rest:]:
            if block.group != "message":
                parts.append(block)
                continue
            _add_user(chunks, parts, asides)
            parts, asides = [], []
            chunks.append(block.body)
        _add_user(chunks, parts, asides)


def _add_user(chunks: list[bytes], parts: list[Fragment], asides: list[bytes]) -> None:
    if not parts and not asides:
        return
    chunks.append(b',{"role":"user","content":')
    if len(parts) == 1 and not asides and parts[0].group:
        chunks.append(parts[0].body)
    else:
        chunks += (b"[", b",".join((*asides, *map(_as_part, parts))), b"]")
    chunks.append(b"}")


def _add_assistant(chunks: list[bytes], blocks: list[Fragment]) -> None:
    call, thinking = BlockKind.CALL, BlockKind.THINKING
    if len(blocks) == 1 and blocks[0].place < thinking:
        chunks += (b',{"role":"assistant","content":', blocks[0].body, b"}")
        return
    texts = [block for block in blocks if block.place < thinking]
    calls = [block.body for block in blocks if block.place == call]
    thoughts = [block for block in blocks if block.place == thinking]
    chunks.append(b',{"role":"assistant","content":')
    if not texts:
        chunks.append(b"null")
    elif len(texts) == 1:
        chunks.append(texts[0].body)
    else:
        chunks += (b"[", b",".join(map(_as_part, texts)), b"]")
    if thoughts:
        chunks += (b',"reasoning_content":"', *(thought.body[1:-1] for thought in thoughts), b'"')
    if calls:
        chunks += (b',"tool_calls":[', b",".join(calls), b"]")
    chunks.append(b"}")


def _as_part(fragment: Fragment) -> bytes:
    return b'{"type":"text","text":' + fragment.body + b"}" if fragment.group else fragment.body


def _add_head(chunks: list[bytes], heads: list[Fragment]) -> None:
    """One message per run of equal roles, because many servers accept a single system message only."""
    for role, run in groupby(heads, key=lambda head: head.group):
        text = b"\n\n".join(head.body for head in run).decode()
        chunks.append(b',{"role":"%s","content":%s}' % (role.encode(), dump(text)))
