"""Compaction as Claude Code, OpenCode and the profile `classroom` do it: by summary or running notes, with transcript lines."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.audit.gate import pinned
from palimpsest.core.errors import BadInput, CannotFold, NoModel, WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import (
    MODEL_KINDS,
    Content,
    Document,
    Fold,
    Image,
    Into,
    Item,
    Keep,
    Opaque,
    Part,
    Put,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    pairs_of,
    pending_calls,
    rounds,
    safe_cuts,
    seq_of,
    settled,
    text_of,
)
from palimpsest.core.plans import Ask, Moment, Plan, Proposal, Save, Situation, Steps, ask, save
from palimpsest.core.text import counted, within, without_tags
from palimpsest.core.tokens import CountsTokens
from palimpsest.core.view import RunningNotes, View, shown
from palimpsest.policies.handoff import RETRIES, ask_dropping_rounds, ask_halving_rounds
from palimpsest.policies.limits import fold_threshold, is_fold_due, prompt
from palimpsest.wire.responses import item_json

# A refusal is short and comes at the start of a reply; a longer text is a summary that may mention one.
_LONGEST_REFUSAL: Final = 800
_APOLOGIES: Final = (
    r"(?:i['’]?m |i am )?(?:very |so |really |afraid )?sorry\b",
    r"(?:my apologies|apologies|i apologi[sz]e|unfortunately|regrettably|no|nope|but)\b",
    r"as an? (?:ai|large language model|language model)\b(?: model| assistant)?",
    r"(?:非常|很|实在|真)?(?:抱歉|对不起|不好意思|遗憾)",
    r"作为(?:一个|一名)?(?:AI|人工智能|语言模型)(?:助手|模型)?",
)
_REFUSALS: Final = (
    r"i(?:['’]m| am) (?:afraid i (?:can['’]?t|cannot)|unable|not able|not permitted|not allowed|not comfortable)\b",
    r"i (?:really |simply )?(?:can['’]?t|cannot|can not|won['’]t|will not|refuse|decline)\b",
    r"i (?:must (?:decline|refuse|not)|(?:have|need) to (?:decline|refuse))\b",
    r"i['’]d (?:rather|prefer) not|i['’](?:m|d) going to (?:decline|refuse)",
    r"(?:that|this|it)(?:['’]s| is) (?:not )?(?:something|a request) (?:that )?i (?:can['’]?t|cannot|can|will not|won['’]t|am)",
    r"this (?:request|conversation) (?:violates|goes against)",
    r"(?:这个请求|这|该请求)?[，,]?我(?:暂时|目前|恐怕|实在|们)?(?:不能|无法|没法|没办法|不便|不会|拒绝)",
    r"(?:这个|这样的|该)(?:请求|要求)?我?(?:不能|无法|没法|没办法)",
    r"恕(?:我)?(?:不能|无法|难以)",
)
_OPENING: Final = re.compile("|".join(_APOLOGIES), re.IGNORECASE)
_REFUSAL: Final = re.compile("|".join(_REFUSALS), re.IGNORECASE)
_SEPARATORS: Final = " \t\n,.;:!—-，。；：！"
# "I cannot reproduce the bug" reports on the work and refuses nothing.
_WORK_VERBS: Final = re.compile(
    r"(?:yet |still |really |simply )?"
    r"(?:find|reproduce|run|build|compile|connect|see|tell|explain|get|start|fix|install|reach|open|access the|load)\b"
    r"|(?:找到|复现|运行|编译|连接|访问|确定|定位|安装|打开|加载|启动)",
    re.IGNORECASE,
)


def checked_summary(reply: ModelReplied) -> str:
    """Return the text of a summary; raise `WireError` if it is a tool call, `BadInput` if it is empty or a refusal."""
    if any(isinstance(part, ToolCall) for part in reply.parts):
        raise WireError("the summary is a tool call")
    text = "\n".join(text_of(part) for part in reply.parts if isinstance(part, Text)).strip()
    if not text:
        raise BadInput("the summary is empty")
    if is_refusal(text):
        raise BadInput("the model refused to summarise")
    return text


def is_refusal(text: str) -> bool:
    """Return whether a reply refuses to write a summary."""
    rest = text.strip()
    if len(rest) > _LONGEST_REFUSAL:
        return False
    while (opening := _OPENING.match(rest)) is not None:
        rest = rest[opening.end() :].lstrip(_SEPARATORS)
    found = _REFUSAL.match(rest)
    return found is not None and _WORK_VERBS.match(rest[found.end() :].lstrip()) is None


_ANALYSIS = re.compile(r"<analysis>(.*?)</analysis>", re.DOTALL | re.IGNORECASE)
_UNCLOSED_ANALYSIS = re.compile(r"<analysis>.*", re.DOTALL | re.IGNORECASE)
_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ContinuationMessage:
    """Builds the message that carries a summary and asks the model to continue.

    As documented, it mentions kept messages, and asks to continue only after an automatic compaction. With `measured`, as 2.1.325 was
    observed, it lists the used tools, always asks to continue, and ends with a note on verbatim messages. `keep_analysis` keeps the
    analysis that precedes the summary in a reply.
    """

    measured: bool = False
    keep_analysis: bool = False

    def message(self, summary: str, transcript: str, *, automatic: bool, kept: bool, tools: tuple[str, ...] = ()) -> str:
        """Return the text of the message; `kept` says whether messages after the summary stay. Without a transcript none is named."""
        parts = [prompt("claude_code/continued_opening")]
        if self.measured and tools:
            used = without_tags(", ".join(sorted(set(tools))), "tools-used-before-summary")
            parts.append(within("system-reminder", f"<tools-used-before-summary>{used}</tools-used-before-summary>"))
        parts += [summary, *([prompt("claude_code/continued_pointer", transcript=transcript)] if transcript else [])]
        if self.measured:
            parts += [prompt("claude_code/continued_work"), prompt("claude_code/continued_verbatim")]
        else:
            parts += [prompt("claude_code/continued_recent")] if kept else []
            parts += [prompt("claude_code/continued_work")] if automatic else []
        return "\n\n".join(parts)

    def summary_of(self, reply: ModelReplied) -> str:
        """Return the labelled summary in a reply; empty if the reply has none, is a refusal, or calls a tool instead."""
        text = "\n".join(part.text for part in reply.parts if isinstance(part, Text)).strip()
        if any(isinstance(part, ToolCall) for part in reply.parts) and not _SUMMARY.search(text):
            return ""
        analysis = _ANALYSIS.search(text)
        rest = _ANALYSIS.sub("", text)
        rest = rest if _SUMMARY.search(rest) else _UNCLOSED_ANALYSIS.sub("", rest)
        found = _SUMMARY.search(rest)
        summary = (found[1] if found else rest).strip()
        if not summary or is_refusal(summary):
            return ""
        if self.keep_analysis and analysis and analysis[1].strip():
            return f"Analysis:\n{analysis[1].strip()}\n\nSummary:\n{summary}"
        return f"Summary:\n{summary}"


_CONVERSATION_KINDS = frozenset({"user", "steering", "assistant", "thinking", "call", "result"})
NO_SUMMARY = "no assistant message in summarization response"


@dataclass(frozen=True, slots=True)
class Summarize:
    """Asks a model for a summary and folds the conversation into it.

    auto, asked, overflow: whether to run when the budget is reached, when the user asks, and after a request that was too long.
    keeps_round: keep the last round and the newest user message; a summary request that is too long then covers half as many rounds.
    images: show images and documents to the summarizing model.
    retries: how often a summary request that is too long is sent again without its oldest rounds.
    report: the notice to the user after the fold.
    """

    auto: bool = True
    asked: bool = True
    overflow: bool = False
    keeps_round: bool = False
    images: bool = False
    retries: int = RETRIES
    form: ContinuationMessage = field(default_factory=ContinuationMessage)
    report: str = "Conversation compacted"
    breakpoint_rule: str = ""
    name: str = "summarize"
    shrinks: bool = True

    @property
    def moments(self) -> frozenset[Moment]:
        """Return the moments that the switches `auto`, `asked` and `overflow` turn on."""
        wanted: tuple[tuple[bool, Moment], ...] = (
            (self.auto, "before_call"),
            (self.asked, "asked"),
            (self.auto and self.overflow, "overflow"),
        )
        return frozenset(moment for on, moment in wanted if on)

    def plan(self, situation: Situation) -> Plan:
        """Plan a summary request and a fold, if one is due and there is something to fold."""
        if situation.moment == "before_call" and not is_fold_due(situation):
            return ()
        if not any(item.kind in _CONVERSATION_KINDS for item in situation.view.items):
            return Proposal(notices=("There is nothing to compact.",)) if situation.moment == "asked" else ()
        return self._fold_all_but_last_round(situation) if self.keeps_round else self._fold_all(situation)

    def _fold_all(self, situation: Situation) -> Steps:
        items = situation.view.items
        reply = yield from ask_dropping_rounds(self._items_to_send(items), request_text(situation), situation.tokens, self.retries)
        return self._fold(situation, reply, len(items))

    def _fold_all_but_last_round(self, situation: Situation) -> Steps:
        items = situation.view.items
        count = len(rounds(items)) - 1
        if count < 1 and situation.moment == "overflow":
            raise NoModel("there is only one exchange, which no summary of what came before can shorten")
        if count < 1:
            raise CannotFold("too_few_groups: there is only one exchange, and that stays", kind="too_few_groups")
        if situation.moment == "overflow":
            count = max(1, count // 2)
        reply, end = yield from ask_halving_rounds(self._items_to_send(items), count, request_text(situation), self.breakpoint_rule)
        return self._fold(situation, reply, end)

    def _items_to_send(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        return items if self.images else strip_images(items)

    def _fold(self, situation: Situation, reply: ModelReplied, end: int) -> Proposal:
        """Return the fold of the items before `end` into the summary; pinned items and pending calls stay."""
        summary = self.form.summary_of(reply)
        if not summary:
            raise CannotFold(NO_SUMMARY, kind="no_summary")
        items = situation.view.items
        folded = items[:end]
        tools = tuple(item.content.tool for item in folded if isinstance(item.content, ToolCall))
        kept_ids = pinned(situation.view).union(item.id for item in pending_calls(items))
        keeps = tuple(Keep(item.id) for item in folded if item.id in kept_ids)
        automatic = situation.moment != "asked"
        text = self.form.message(
            summary,
            situation.transcript,
            automatic=automatic,
            kept=bool(keeps) or end < len(items),
            tools=(*tools, *situation.health.called),
        )
        edit = Fold(folded[0].id, folded[-1].id, (Put("summary", Text(text)), *keeps))
        return Proposal((edit,), _why(situation), notices=(self.report,))


def request_text(situation: Situation) -> str:
    """Return the prompt for a summary, with the instructions that the user gave for this compaction."""
    instructions = situation.asked.strip()
    return prompt("claude_code/nine_sections", instructions=f"Additional Instructions:\n{instructions}" if instructions else "")


def _why(situation: Situation) -> str:
    match situation.moment:
        case "asked":
            return "manual"
        case "overflow":
            return "auto: the provider found the request too long"
        case _:
            return f"auto: {situation.used:,} tokens are used, and compaction is due at {situation.budget.compact_at or 0:,}"


IMAGE = "[image]"
DOCUMENT = "[document]"


def strip_images(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Replace images and documents by `[image]` and `[document]`, also in tool results; unchanged items stay the same objects."""
    return tuple(item if (content := _without_files(item.content)) is item.content else replace(item, content=content) for item in items)


def _without_files(content: Content) -> Content:
    if isinstance(content, ToolResult):
        plain = tuple(_part_without_file(part) for part in content.parts)
        return content if plain == content.parts else replace(content, parts=plain)
    return _part_without_file(content) if isinstance(content, Image | Document) else content


def _part_without_file(part: Part) -> Part:
    return Text(IMAGE if isinstance(part, Image) else DOCUMENT, ref=part.ref) if isinstance(part, Image | Document) else part


MIN_TOKENS = 10_000
MAX_TOKENS = 40_000
MIN_TEXTS = 5


@dataclass(frozen=True, slots=True)
class SwapNotes:
    """Folds what the running notes cover; keeps at least `least` tokens and `texts` messages with text, and at most `most` tokens.

    Does nothing, so that a summary is made instead: without notes, with notes that equal their `template`, without a place to cut, when
    the view would still be over the budget, and when the user gave instructions for the compaction.
    """

    least: int = MIN_TOKENS
    most: int = MAX_TOKENS
    texts: int = MIN_TEXTS
    auto: bool = True
    asked: bool = True
    template: str = ""
    form: ContinuationMessage = field(default_factory=ContinuationMessage)
    report: str = "Conversation compacted"
    name: str = "swap_notes"
    shrinks: bool = True

    @property
    def moments(self) -> frozenset[Moment]:
        """Return the moments that the switches `auto` and `asked` turn on."""
        wanted: tuple[tuple[bool, Moment], ...] = ((self.auto, "before_call"), (self.asked, "asked"))
        return frozenset(moment for on, moment in wanted if on)

    def plan(self, situation: Situation) -> Plan:
        """Propose one fold into the notes, if it is due and possible."""
        if situation.asked.strip() or (situation.moment == "before_call" and not is_fold_due(situation)):
            return ()
        notes, view = situation.view.notes, situation.view
        if notes is None or is_empty_notes(notes.text, self.template):
            return ()
        start = self.kept_start(situation, notes)
        if start is None or start <= _after_summary(view.items):
            return ()
        automatic = situation.moment != "asked"
        text = self.form.message(f"Summary:\n{notes.text.strip()}", situation.transcript, automatic=automatic, kept=start < len(view.items))
        folded = view.items[:start]
        kept_ids = pinned(view).union(item.id for item in pending_calls(view.items))
        keeps = tuple(Keep(item.id) for item in folded if item.id in kept_ids)
        put = Put("summary", Text(text))
        if self._still_full(situation, put, [item for item in folded if item.id in kept_ids] + list(view.items[start:])):
            return ()
        covered = counted(start, "item")
        why = f"{'auto' if automatic else 'manual'}: the running notes stand for {covered}, the newest {len(view.items) - start} stay"
        return Proposal((Fold(folded[0].id, folded[-1].id, (put, *keeps)),), why, notices=(self.report,))

    def kept_start(self, situation: Situation, notes: RunningNotes) -> int | None:
        """Return the index of the first message that stays; `None` if the view has no item that the notes cover."""
        items, counter = situation.view.items, situation.tokens
        covered = _covered_end(situation.view, notes)
        if covered is None:
            return None
        floor = _after_summary(items)
        start = max(covered, floor)
        tokens = sum(counter.item(item) for item in items[start:])
        while start > floor and tokens < self.most and (tokens < self.least or _count_texts(items[start:]) < self.texts):
            earlier = _message_start(items, start - 1, floor)
            tokens += sum(counter.item(item) for item in items[earlier:start])
            start = earlier
        return _with_calls(items, start, floor)

    def _still_full(self, situation: Situation, put: Put, kept: list[Item]) -> bool:
        level = situation.budget.compact_at
        counter = situation.tokens
        rest = sum(counter.item(item) for item in (*situation.view.head, *kept)) + situation.tools_tokens
        return level is not None and rest + counter.content(put.content) >= level


def is_empty_notes(notes: str, template: str = "") -> bool:
    """Return whether notes have no content: they equal the template, or have only headings and lines in italics."""
    if notes.strip() == template.strip():
        return True
    lines = [line.strip() for line in notes.splitlines() if line.strip()]
    return all(line.startswith("#") or (len(line) > 1 and line[0] == line[-1] == "_") for line in lines)


def _covered_end(view: View, notes: RunningNotes) -> int | None:
    """Return the index after the last item that the notes cover; items made by an edit do not count, as their number is the edit's."""
    if not 0 <= notes.covers <= view.seq:
        return None
    places = [place for place, item in enumerate(view.items) if item.id.count(".") == 1 and seq_of(item.id) <= notes.covers]
    return places[-1] + 1 if places else None


def _after_summary(items: tuple[Item, ...]) -> int:
    """Return the index after the last summary; kept messages begin there at the earliest."""
    return max((place + 1 for place, item in enumerate(items) if item.kind == "summary"), default=0)


def _message_start(items: tuple[Item, ...], place: int, floor: int) -> int:
    """Return the start of the message of an item: the run of items of the same side, model or user."""
    by_model = items[place].kind in MODEL_KINDS
    while place > floor and (items[place - 1].kind in MODEL_KINDS) == by_model:
        place -= 1
    return place


def _count_texts(items: tuple[Item, ...]) -> int:
    """Return how many messages contain text."""
    count, side, counted = 0, None, False
    for item in items:
        if (item.kind in MODEL_KINDS) != side:
            side, counted = item.kind in MODEL_KINDS, False
        if not counted and isinstance(item.content, Text) and item.content.text.strip():
            count, counted = count + 1, True
    return count


def _with_calls(items: tuple[Item, ...], start: int, floor: int) -> int:
    """Move a start back until every result after it has its call after it too."""
    places = {item.id: place for place, item in enumerate(items)}
    calls_before = [places[call.id] for call, result in pairs_of(items) if places[call.id] < start <= places[result.id]]
    if not calls_before:
        return start
    return _with_calls(items, _message_start(items, min(calls_before), floor), floor)


_encode_wire: Final = msgspec.json.Encoder().encode


def message_lines(items: Iterable[Item]) -> bytes:
    """Return one message a line, with what stubs stand for; what JSON cannot express, such as an image, stands as text.

    Items that are hidden without a stub, such as a note that the user had forgotten, are left out.
    """
    return b"".join(_encode_wire(message) + b"\n" for message in _messages(item for item in items if not item.hidden))


def _messages(items: Iterable[Item]) -> Iterator[dict[str, Any]]:
    """Yield the messages: runs of items of one role."""
    role, blocks = "", list[dict[str, Any]]()
    for item in items:
        own = "assistant" if item.kind in MODEL_KINDS or getattr(item.content, "role", "") == "assistant" else "user"
        if own != role and blocks:
            yield {"role": role, "content": blocks}
            blocks = []
        role = own
        blocks.append(_block(item.content))
    if blocks:
        yield {"role": role, "content": blocks}


def _block(content: Content) -> dict[str, Any]:
    match content:
        case ToolCall():
            return {"type": "tool_use", "id": content.call_id, "name": content.tool, "input": _arguments(content.args)}
        case ToolResult(parts=(Text(text=text),)):
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": content.call_id, "content": text}
        case ToolResult():
            block = {"type": "tool_result", "tool_use_id": content.call_id, "content": [_text_block(part) for part in content.parts]}
        case Thinking():
            return {"type": "thinking", "thinking": content.text}
        case _:
            return _text_block(content)
    return {**block, "is_error": True} if content.error else block


def _text_block(content: Part | Opaque) -> dict[str, Any]:
    address = f" {content.blob or content.url}" if isinstance(content, Image) else ""
    return {"type": "text", "text": f"{text_of(content)}{address}"}


def _arguments(text: str) -> Raw | str:
    """The arguments of a call as JSON; a text that is none stays one."""
    try:
        msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    return Raw((text or "{}").encode())


LONGEST_RESULT = 2_000
CONTINUE: Final = "continue"
"""The source of the request to go on after a compaction within a turn."""


def flatten(items: Iterable[Item], longest: int = LONGEST_RESULT) -> str:
    """Return items as one text, separated by blank lines; a result of more than `longest` characters is cut."""
    return "\n\n".join(line for item in items if (line := _transcript_line(shown(item), longest)))


def attachment_name(part: Image | Document) -> str:
    """Return the line that replaces an image or document which is not sent."""
    name = part.name if isinstance(part, Document) else part.url
    return f"[Attached {part.media}: {name}]" if name else f"[Attached {part.media}]"


def _transcript_line(content: Content | None, longest: int) -> str:
    match content:
        case None:
            return ""
        case Text():
            return f"[{'Assistant' if content.role == 'assistant' else 'User'}]: {content.text}"
        case Thinking():
            return f"[Assistant reasoning]: {content.text}" if content.text else ""
        case ToolCall():
            return f"[Assistant tool call]: {content.tool}({content.args})"
        case ToolResult():
            text = "\n".join(attachment_name(part) if isinstance(part, Image | Document) else text_of(part) for part in content.parts)
            cut = f"{text[:longest]}\n[truncated]" if len(text) > longest else text
            return f"[{'Tool error' if content.error else 'Tool result'}]: {cut}"
        case Image() | Document():
            return f"[User]: {attachment_name(content)}"
        case Opaque():
            return f"[Assistant]: {content.text_fallback}" if content.text_fallback else ""


_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Compress:
    """Folds above `above` tokens, and when asked; the model sees `shown_chars` characters from one end of the transcript."""

    above: int = 50_000
    shown_chars: int = 80_000
    shown_end: Literal["start", "end"] = "start"
    reply: int = 2_000
    name: str = "compress"
    moments: frozenset[Moment] = frozenset({"before_call", "asked", "overflow"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan to save the transcript, ask for a summary and fold, if that is due or forced."""
        forced = situation.moment in {"asked", "overflow"}
        items = situation.view.items[: settled(situation.view.items)]
        level = fold_threshold(situation, self.above) or self.above
        due = situation.used > level and situation.may_fold and len(items) == len(situation.view.items)
        if not items or not (forced or due):
            return ()
        return self._steps(situation, items)

    def _steps(self, situation: Situation, items: tuple[Item, ...]) -> Steps:
        view = situation.view
        # The transcript is saved first, so that a failure loses nothing.
        yield from save(Save(message_lines(items), f".transcripts/transcript_{situation.now // 1000}.jsonl", in_project=True))
        lines = [_message_line(item) for item in items]
        text = "[" + ",".join(line.decode() for line in lines if line) + "]"
        part = text[: self.shown_chars] if self.shown_end == "start" else text[-self.shown_chars :]
        request = prompt("classroom_summary", focus=situation.asked, conversation=part)
        reply = yield from ask(Ask((), request, "summary", head=False, tools=False, reply=self.reply))
        summary = Put("summary", Text(f"[Compressed]\n\n{checked_summary(reply)}"))
        stated = {fact.id for fact in view.facts.values()} | pinned(view)
        kept = tuple(Keep(item.id) for item in items if item.id in stated)
        into: Into = (*kept, summary, Put("assistant", Text("Understood. Continuing.", "assistant")))
        if situation.health.turn is not None:
            # The next request would end with a reply, which many models refuse to go on from.
            into += (Put("reminder", Text("<reminder>Go on with the task.</reminder>"), CONTINUE),)
        why = "asked for" if situation.moment == "asked" else f"{situation.used:,} tokens are more than {self.above:,}"
        return Proposal((Fold(items[0].id, items[-1].id, into),), why)


def _message_line(item: Item) -> bytes:
    """Encode a visible item as one line of JSON; empty for a hidden one."""
    content = shown(item)
    return b"" if content is None else _encode(item_json(content).json)


MARKER = "What did we do so far?"


@dataclass(frozen=True, slots=True)
class Anchor:
    """Asks a model for a summary and folds the conversation into it.

    transcript: the model sees the whole conversation as items, or everything before the tail as one text.
    auto: run when the budget is reached; if false, only when the user asks.
    model: name of the summarizing model; empty for the model of the session.
    preserve: tokens of the verbatim tail; by default a quarter of the usable window, within 2,000 and 15,000.
    tail_turns: largest number of turns in the tail.
    """

    transcript: Literal["items", "text"] = "items"
    auto: bool = True
    model: str = ""
    preserve: int | None = None
    tail_turns: int | None = None
    name: str = "anchor"
    moments: frozenset[Moment] = frozenset({"before_call", "after_call", "asked"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan a summary and a fold, if they are due or forced and there is something to fold."""
        forced = situation.moment in {"asked", "overflow"}
        if not (forced or (self.auto and is_fold_due(situation))):
            return ()
        items = situation.view.items[: settled(situation.view.items)]
        if not forced and len(items) < len(situation.view.items):
            return ()
        resent = _last_user_message(items) if situation.moment == "overflow" else ()
        folded = tuple(item for item in items if item not in resent) if resent else items
        if self.transcript == "text" and not resent:
            folded = items[: tail_start(items, self.tail_budget(situation), situation.tokens, self.tail_turns)]
        if not any(item.kind != "context" for item in folded):
            return ()
        return self._steps(situation, folded, resent, items[-1] if resent else folded[-1])

    def tail_budget(self, situation: Situation) -> int:
        """Return the tokens of the verbatim tail."""
        usable = situation.budget.compact_at or situation.budget.window - situation.budget.buffer
        return self.preserve if self.preserve is not None else min(15_000, max(2_000, usable // 4))

    def _steps(self, situation: Situation, folded: tuple[Item, ...], resent: tuple[Item, ...], last: Item) -> Steps:
        summary = _finished_summary((yield from ask(self._ask(situation, folded))), strict=self.transcript == "text")
        into: Into = (Put("reminder", Text(MARKER)), Put("summary", Text(summary, "assistant")))
        pins = pinned(situation.view)
        into += tuple(Keep(item.id) for item in folded if item.id in pins)
        into += tuple(_without_file(item) for item in resent)
        # Within a turn the next request would end with the summary, a reply which many models refuse to go on from.
        ends = situation.health.turn is not None and last is situation.view.items[-1]
        if (situation.moment != "asked" or ends) and not resent:
            continuation = prompt("opencode/continue_or_ask") if self.transcript == "text" else prompt("opencode/continue")
            into += (Put("reminder", Text(continuation)),)
        why = "asked for" if situation.moment == "asked" else f"{situation.used:,} tokens are used"
        return Proposal((Fold(folded[0].id, last.id, into),), why)

    def _ask(self, situation: Situation, folded: tuple[Item, ...]) -> Ask:
        focus = situation.asked
        if self.transcript == "items":
            request = prompt("opencode/request", focus=focus)
            return Ask(folded, request, "summary", head=False, tools=False, model=self.model, system=prompt("opencode/summariser"))
        prior = "\n\n".join(text_of(item.content) for item in folded if item.kind == "summary")
        conversation = flatten(item for item in folded if item.kind != "summary")
        block = within("prior-summary", prior) if prior else ""
        request = prompt("opencode/template", focus=focus, prior=block, conversation=within("conversation", conversation))
        return Ask((), request, "summary", head=False, tools=False, model=self.model, system=prompt("opencode/head"))


def _finished_summary(reply: ModelReplied, *, strict: bool) -> str:
    """Return the text of a summary; raise `WireError` if the reply did not finish, or with `strict` ended in an error."""
    text = checked_summary(reply)
    # A stop reason that we do not know is a finished reply too.
    if not (reply.stop or reply.provider_stop) or (strict and reply.error):
        raise WireError(f"the summary did not finish{f' ({reply.error})' if reply.error else ''}")
    return text


def _last_user_message(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the items of the last user message; empty if the conversation has nothing else."""
    newest = next((item for item in reversed(items) if item.kind == "user"), None)
    if newest is None:
        return ()
    message = tuple(item for item in items if item.kind == "user" and seq_of(item.id) == seq_of(newest.id))
    return message if any(item.kind != "context" for item in items if item not in message) else ()


def _without_file(item: Item) -> Keep | Put:
    """Return a part of a message to be sent again: text as it is, an image or document as its name."""
    if isinstance(item.content, Image | Document):
        return Put("user", Text(attachment_name(item.content)))
    return Keep(item.id)


def tail_start(items: Sequence[Item], budget: int, counter: CountsTokens, turns: int | None = None) -> int:
    """Return the index of the first item of a verbatim tail of at most `budget` tokens and `turns` turns.

    The tail has whole turns; the first turn that does not fit is split where its rest does. Without a tail, or if the tail would be the
    whole conversation, the index is `len(items)`.
    """
    end = len(items)
    starts = [index for index, item in enumerate(items) if item.kind == "user" and (index == 0 or items[index - 1].kind != "user")]
    tail, remaining = end, budget
    for number, start in enumerate(reversed(starts)):
        if turns is not None and number >= turns:
            break
        size = sum(counter.item(item) for item in items[start:tail])
        if size > remaining:
            tail = _split_turn(items, start, tail, remaining, counter)
            break
        tail, remaining = start, remaining - size
    return end if tail == 0 else tail


def _split_turn(items: Sequence[Item], start: int, stop: int, budget: int, counter: CountsTokens) -> int:
    """Return the earliest index within a turn from which its rest fits the budget, without separating a call from its result."""
    safe = frozenset(safe_cuts(items))
    best, size = stop, 0
    for index in range(stop - 1, start, -1):
        size += counter.item(items[index])
        if size > budget:
            break
        if index in safe:
            best = index
    return best
