"""Encodes a view for OpenAI Responses, in the dialects of two versions of Codex."""

from itertools import chain

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.items import Document, Image, Item, Opaque, Part, Role, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.tool_changes import is_tool_change, placed_changes
from palimpsest.core.view import View
from palimpsest.wire.encoding.fragments import Assembled, BlockKind, Fragment, dump, empty_fragment, extra_members, object_members
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.encoding.messages import CHANGED
from palimpsest.wire.encoding.options import responses_fields, responses_tool
from palimpsest.wire.encoding.repair import provider_call_id, valid_call_id
from palimpsest.wire.encoding.sendable import role_of, sendable_content, usable_signature
from palimpsest.wire.encoding.tools import arguments_object, call_kind, opaque_type, pair_key, sent_name, wire_names
from palimpsest.wire.json_reading import is_object
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params, Tool, is_deferred, is_given
from palimpsest.wire.rules.responses import RESPONSES_ITEMS, RESPONSES_PARTS

_OUTPUTS = {"function": "function_call_output", "custom": "custom_tool_call_output", "search": "tool_search_output"}


class ResponsesWire:
    """Encoder for OpenAI Responses: a flat list of items in the order of the view."""

    def __init__(self, card: ModelCard, tools: tuple[Tool, ...], params: Params, fetch: Fetch) -> None:
        self._card = card
        self._fetch = fetch
        self._names = wire_names(tools, "responses")
        self._ids = params.dialect == "codex-0.166"
        self._readable_output = not self._ids and any(tool.name == "apply_patch" and tool.form == "free" for tool in tools)
        self._tools = {tool.name: replace(tool, name=self._names[tool.name]) for tool in tools}
        self._deferred = [tool.name for tool in tools if card.takes_tool_changes and is_deferred(tool, "responses")]
        self._fields = responses_fields(card, tools, params)
        self._prefix = b"{" + object_members(self._fields)
        self._suffix = extra_members(params.extra) if is_given(params.extra) else b""

    def head(self, item: Item) -> Fragment:
        """Encode a head item; base instructions stay plain text, because they may go into the field `instructions`."""
        content = sendable_content(item, self._card, self._fetch)
        if not isinstance(content, Text):
            return empty_fragment(item)
        if content.role == "system":
            return Fragment(item, BlockKind.ASSISTANT, content.text.encode())
        return self._message_part(item, content.role, content.phase, content.ref, self._part(content, content.role))

    def fragment(self, item: Item, wire_id: str = "") -> Fragment:
        """Encode an item as an input item, or as a part of one that adjacent fragments complete."""
        if is_tool_change(item):
            # Its tools are known where the body is assembled.
            return Fragment(item, BlockKind.USER, group=CHANGED) if self._card.takes_tool_changes else empty_fragment(item)
        content = sendable_content(item, self._card, self._fetch)
        match content:
            case None:
                return empty_fragment(item)
            case Text():
                return self._message_part(item, content.role, content.phase, content.ref, self._part(content, content.role))
            case Image() | Document():
                return self._message_part(item, "user", "", content.ref, self._part(content, "user"))
            case Thinking():
                return self._thinking(item, content)
            case Opaque():
                return self._opaque(item, content)
            case ToolCall():
                return self._call(item, content, wire_id)
            case ToolResult():
                return self._result(item, content, wire_id)

    def _message_part(self, item: Item, role: Role, phase: str, ref: str, part: bytes) -> Fragment:
        event, _, rest = item.id.partition(".")
        # Contents of one event are parts of one message; contents that an edit inserted are separate messages.
        origin = ref or (item.id if "." in rest else event)
        opening = b',{"type":"message"' + self._id(ref) + b',"role":"%s","content":[' % role.encode()
        closing = b'],"phase":%s}' % dump(phase) if phase else b"]}"
        place = BlockKind.ASSISTANT if role == "assistant" else BlockKind.USER
        return Fragment(item, place, part, group=f"{role}:{phase}:{origin}", opening=opening, closing=closing)

    def _id(self, ref: str) -> bytes:
        return b',"id":' + dump(ref) if self._ids and ref else b""

    def _thinking(self, item: Item, content: Thinking) -> Fragment:
        part = b""
        if content.text:
            part = dump({"type": "summary_text" if content.form == "digest" else "reasoning_text", "text": content.text})
        signature = usable_signature(content, self._card)
        encrypted = dump(signature.data) if signature is not None else b""
        field = b"summary" if content.form == "digest" else b"content"
        group = f"reasoning:{content.ref or item.id}"
        # The parts of a reasoning item carry the name of their list in `opening` and the encrypted content in `closing`.
        return Fragment(item, BlockKind.THINKING, part, group=group, opening=field, closing=encrypted, aside=self._id(content.ref))

    def _opaque(self, item: Item, content: Opaque) -> Fragment:
        kind = opaque_type(content)
        if kind == "input_audio" and not self._card.audio:
            words = Text("[audio not shown: this model cannot hear]", role_of(item))
            return self._message_part(item, words.role, "", content.ref, self._part(words, words.role))
        if kind in RESPONSES_PARTS:
            return self._message_part(item, role_of(item), "", content.ref, content.data.encode())
        if kind not in RESPONSES_ITEMS:
            return empty_fragment(item)
        data = content.data.encode()
        if kind == "image_generation_call" and not self._card.images:
            data = dump({**msgspec.json.decode(data, type=dict[str, object]), "result": ""})
        return Fragment(item, BlockKind.ASSISTANT, b"," + data)

    def _call(self, item: Item, content: ToolCall, wire_id: str) -> Fragment:
        name = wire_id or valid_call_id(content.call_id, self._card.call_ids)
        key = pair_key(content.call_id, content.form)
        fields: dict[str, object] = {"call_id": name}
        if not content.call_id and content.form in {"shell", "search"}:
            # The server ran the call, so that it has no id and expects no output.
            key, fields = "", {}
        match content.form:
            case "json":
                kind = "function_call"
                fields = {
                    "name": sent_name(content.tool, self._names, "responses"),
                    "arguments": arguments_object(content).decode(),
                    "call_id": name,
                }
            case "free":
                kind = "custom_tool_call"
                fields |= {"name": sent_name(content.tool, self._names, "responses"), "input": content.args}
            case "shell":
                kind = "local_shell_call"
                fields |= {"status": "completed", "action": _action(content)}
            case "search":
                kind = "tool_search_call"
                fields |= {
                    "status": "completed",
                    "execution": "client" if fields else "server",
                    "arguments": Raw(arguments_object(content)),
                }
        provider_id = provider_call_id(content, self._card.call_ids) if key else ""
        return Fragment(item, BlockKind.CALL, self._item(kind, content.ref, fields), key, name, content.form, provider_id=provider_id)

    def _result(self, item: Item, content: ToolResult, wire_id: str) -> Fragment:
        kind = call_kind(content.form)
        name = wire_id or valid_call_id(content.call_id, self._card.call_ids)
        # A result without a call, such as a notification, has no id.
        fields: dict[str, object] = {"call_id": name} if content.call_id or wire_id else {}
        if kind == "search":
            fields |= {"status": "completed", "execution": "client" if fields else "server", "tools": _found_tools(content)}
        else:
            fields["output"] = self._output(content)
        key = pair_key(content.call_id, content.form) if content.call_id else ""
        return Fragment(item, BlockKind.RESULT, self._item(_OUTPUTS[kind], content.ref, fields), key, name, content.form)

    def _output(self, content: ToolResult) -> object:
        match content.parts:
            case ():
                return ""
            case (Text(text=text),):
                return _readable(text) if self._readable_output else text
            case parts:
                return [Raw(self._part(part, "user")) for part in parts]

    def _item(self, kind: str, ref: str, fields: dict[str, object]) -> bytes:
        return b',{"type":"%s"' % kind.encode() + self._id(ref) + b"," + object_members(fields) + b"}"

    def _part(self, part: Part, role: Role) -> bytes:
        match part:
            case Text():
                return dump({"type": "output_text" if role == "assistant" else "input_text", "text": part.text})
            case Image():
                return dump({"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"})
            case Document():
                if part.url and not part.url.startswith("data:"):
                    return dump({"type": "input_file", "file_url": part.url})
                return dump({"type": "input_file", "filename": part.name or "file", "file_data": part.url})
            case Opaque():
                return part.data.encode()

    def assemble(self, view: View, heads: list[Fragment], fragments: list[Fragment]) -> Assembled:
        """Join the fragments into the body; base instructions go into their field or into the first developer message."""
        del view
        fragments, removed = self._with_tool_changes(fragments)
        chunks = [self._prefix if not removed else b"{" + object_members(self._fields | self._choice_without(removed))]
        base = b"\n\n".join(head.body for head in heads if head.place and not head.group).decode()
        lead = [head for head in heads if head.group]
        if base and not self._ids:
            chunks += (b',"instructions":', dump(base))
        elif base:
            base_item = Item("head", "context", Text(base, "developer"))
            lead.insert(0, self.fragment(base_item))
        chunks.append(b',"input":[')
        _add_items(chunks, lead, fragments)
        chunks += (b"]", self._suffix, b"}")
        return Assembled(b"".join(chunks))

    def _with_tool_changes(self, fragments: list[Fragment]) -> tuple[list[Fragment], frozenset[str]]:
        """The fragments with other efforts and, each at its first place, the tools that join; and the tools that are removed at the end."""
        if not any(fragment.group == CHANGED for fragment in fragments):
            return fragments, frozenset()
        joined: set[str] = set()
        bodies: dict[str, bytes] = {}
        available = frozenset(self._tools)
        for placed in placed_changes([each.item for each in fragments if each.group == CHANGED], self._tools, self._deferred):
            new = [name for name in placed.change.added if name in self._deferred and name not in joined]
            joined.update(new)
            said: list[dict[str, object]] = []
            if new:
                declarations = [responses_tool(self._tools[name]) for name in new]
                said.append({"type": "additional_tools", "role": "developer", "tools": declarations})
            if placed.change.effort:
                said.append({"type": "configuration_update", "reasoning": {"effort": placed.change.effort}})
            if said:
                bodies[placed.item.id] = b"".join(b"," + dump(each) for each in said)
            available = placed.available
        shown = (each for each in fragments if each.group != CHANGED or each.item.id in bodies)
        whole = [replace(each, group="", body=bodies[each.item.id]) if each.group == CHANGED else each for each in shown]
        return whole, frozenset(self._tools) - available

    def _choice_without(self, removed: frozenset[str]) -> dict[str, object]:
        """The field that lets the model call only the other tools: a removed one stays declared, as what was thought behind it needs."""
        choice = self._fields.get("tool_choice")
        if choice not in ("auto", "required"):
            return {}
        left = [msgspec.json.decode(dump(responses_tool(tool))) for name, tool in self._tools.items() if name not in removed]
        named = [{key: tool[key] for key in ("type", "name") if key in tool} for tool in left]
        return {"tool_choice": {"type": "allowed_tools", "mode": choice, "tools": named}}


def reply_items(fragments: list[Fragment]) -> tuple[Raw, ...]:
    """Return the items in which the contents of one reply are sent back."""
    chunks: list[bytes] = []
    _add_items(chunks, [], fragments)
    return msgspec.json.decode(b"[" + b"".join(chunks) + b"]", type=tuple[Raw, ...])


def _add_items(chunks: list[bytes], lead: list[Fragment], fragments: list[Fragment]) -> None:
    start = len(chunks)
    thinking = BlockKind.THINKING
    add = chunks.append
    parts: list[Fragment] = []
    group, closing = "", b""
    for fragment in chain(lead, fragments):
        if not fragment.place:
            continue
        if parts and (fragment.place != thinking or fragment.group != parts[0].group):
            add(_reasoning(parts))
            parts = []
        if group:
            if fragment.group == group:
                add(b",")
                add(fragment.body)
                continue
            add(closing)
            group = ""
        if fragment.place == thinking:
            parts.append(fragment)
        elif fragment.group:
            add(fragment.opening)
            add(fragment.body)
            group, closing = fragment.group, fragment.closing
        else:
            add(fragment.body)
    if parts:
        add(_reasoning(parts))
    if group:
        add(closing)
    first = next((index for index in range(start, len(chunks)) if chunks[index]), None)
    if first is not None:
        chunks[first] = chunks[first][1:]


def _reasoning(parts: list[Fragment]) -> bytes:
    """One reasoning item of all parts; empty if there is no encrypted content that this model can use."""
    signature = next((part.closing for part in parts if part.closing), b"")
    if not signature:
        return b""
    summary = b",".join(part.body for part in parts if part.body and part.opening == b"summary")
    content = b",".join(part.body for part in parts if part.body and part.opening == b"content")
    content_field = b',"content":[' + content + b"]" if content else b""
    return b',{"type":"reasoning"%s,"summary":[%s]%s,"encrypted_content":%s}' % (parts[0].aside, summary, content_field, signature)


def _action(call: ToolCall) -> object:
    """The action of a shell call: verbatim if it is a valid command, else a command with the arguments as its only word."""
    if is_object(call.args):
        action = msgspec.json.decode(call.args)
        command = action.get("command")
        if action.get("type") == "exec" and isinstance(command, list) and all(isinstance(word, str) for word in command):
            return Raw(call.args.encode())
        if isinstance(command, list) and all(isinstance(word, str) for word in command):
            return {**action, "type": "exec", "env": action.get("env") or {}}
    return {"type": "exec", "command": [call.args], "env": {}}


def _found_tools(result: ToolResult) -> object:
    """The tools in the result of a search, which is the JSON of a list or of an object with the list `tools`."""
    text = "".join(part.text for part in result.parts if isinstance(part, Text))
    try:
        found = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, RecursionError):
        return []
    tools = found.get("tools") if isinstance(found, dict) else found
    return tools if isinstance(tools, list) else []


def _readable(text: str) -> str:
    """The output of a command as plain lines, if it was recorded as JSON with exit code and duration in seconds."""
    if not text.startswith("{") or not is_object(text):
        return text
    recorded = msgspec.json.decode(text)
    metadata = recorded.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(recorded.get("output"), str):
        return text
    code, seconds = metadata.get("exit_code"), metadata.get("duration_seconds")
    if code is None or seconds is None:
        return text
    return f"Exit code: {code}\nWall time: {seconds} seconds\nOutput:\n{recorded['output']}"
