"""Claude Code's compaction: a model summarizes the conversation, and the summary replaces it."""

import re
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Fold, Keep, Put
from palimpsest.core.errors import BadInput, CannotFold, NoModel, WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.format.tags import within, without_tags
from palimpsest.core.items import Content, Document, Image, Item, Part, Text, ToolCall, ToolResult, text_of
from palimpsest.core.pairs import pending_calls, rounds
from palimpsest.core.policy import Plan, Proposal, Steps
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.fold_threshold import is_fold_due
from palimpsest.policies.prompt import prompt
from palimpsest.policies.summarize.shorten import RETRIES, ask_dropping_rounds, ask_halving_rounds

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
