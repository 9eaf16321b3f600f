"""Claude Code's compaction: a model summarizes the conversation, which goes on from that summary."""

import re
from dataclasses import dataclass, field
from typing import Final

from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Fold, Keep, Put
from palimpsest.core.errors import BadInput, CannotFold, NoModel, WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Item, Text, ToolCall, text_of
from palimpsest.core.pairs import pending_calls, rounds
from palimpsest.core.policy import Plan, Proposal, Steps
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.clear.strip_images import strip_images
from palimpsest.policies.notices import is_due
from palimpsest.policies.prompt import prompt
from palimpsest.policies.summarize.shorten import RETRIES, ask_dropping, ask_halving

# Whoever refuses in plain words says so at once, of himself, and at no length; a summary of any use has more to tell.
_LONGEST: Final = 800
_SORRY: Final = (
    r"(?:i['’]?m |i am )?(?:very |so |really |afraid )?sorry\b",
    r"(?:my apologies|apologies|i apologi[sz]e|unfortunately|regrettably|no|nope|but)\b",
    r"as an? (?:ai|large language model|language model)\b(?: model| assistant)?",
    r"(?:非常|很|实在|真)?(?:抱歉|对不起|不好意思|遗憾)",
    r"作为(?:一个|一名)?(?:AI|人工智能|语言模型)(?:助手|模型)?",
)
_UNABLE: Final = (
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
_OPENS: Final = re.compile("|".join(_SORRY), re.IGNORECASE)
_REFUSES: Final = re.compile("|".join(_UNABLE), re.IGNORECASE)
_BETWEEN: Final = " \t\n,.;:!—-，。；：！"
# One who cannot do a thing of the work tells of the work.
_OF_THE_WORK: Final = re.compile(
    r"(?:yet |still |really |simply )?"
    r"(?:find|reproduce|run|build|compile|connect|see|tell|explain|get|start|fix|install|reach|open|access the|load)\b"
    r"|(?:找到|复现|运行|编译|连接|访问|确定|定位|安装|打开|加载|启动)",
    re.IGNORECASE,
)


def summary_in(reply: ModelReplied) -> str:
    """The text of a summary; one that calls a tool, says nothing or refuses in plain words is none."""
    if any(isinstance(part, ToolCall) for part in reply.parts):
        raise WireError("the summary is a tool call")
    text = "\n".join(text_of(part) for part in reply.parts if isinstance(part, Text)).strip()
    if not text:
        raise BadInput("the summary is empty")
    if refuses(text):
        raise BadInput("the model refused to summarise")
    return text


def refuses(text: str) -> bool:
    """Whether a reply says in plain words that there will be no summary."""
    said = text.strip()
    if len(said) > _LONGEST:
        return False
    while (opening := _OPENS.match(said)) is not None:
        said = said[opening.end() :].lstrip(_BETWEEN)
    found = _REFUSES.match(said)
    return found is not None and _OF_THE_WORK.match(said[found.end() :].lstrip()) is None


_ANALYSIS = re.compile(r"<analysis>(.*?)</analysis>", re.DOTALL | re.IGNORECASE)
_UNENDED = re.compile(r"<analysis>.*", re.DOTALL | re.IGNORECASE)
_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Continued:
    """How the message is put together.

    As documented the newest messages are mentioned before the paragraph on going on, which only follows an automatic compaction.
    As `measured` the used tools are listed, going on is always mentioned, and a note on verbatim messages ends it.
    """

    measured: bool = False
    keep_analysis: bool = False

    def message(self, summary: str, session: str, *, automatic: bool, kept: bool, tools: tuple[str, ...] = ()) -> str:
        """All parts in their order, with an empty line between two."""
        parts = [prompt("claude_code/continued_opening")]
        if self.measured and tools:
            used = f"<tools-used-before-summary>{', '.join(sorted(set(tools)))}</tools-used-before-summary>"
            parts.append(f"<system-reminder>\n{used}\n</system-reminder>")
        parts += [summary, prompt("claude_code/continued_pointer", session=session)]
        if self.measured:
            parts += [prompt("claude_code/continued_work"), prompt("claude_code/continued_verbatim")]
        else:
            parts += [prompt("claude_code/continued_recent")] if kept else []
            parts += [prompt("claude_code/continued_work")] if automatic else []
        return "\n\n".join(parts)

    def summary_of(self, reply: ModelReplied) -> str:
        """What a reply says for the view, under its label; empty when it says nothing, refuses, or wants a tool instead of saying it."""
        text = "\n".join(part.text for part in reply.parts if isinstance(part, Text)).strip()
        if any(isinstance(part, ToolCall) for part in reply.parts) and not _SUMMARY.search(text):
            return ""
        thought = _ANALYSIS.search(text)
        rest = _UNENDED.sub("", _ANALYSIS.sub("", text)) if not _SUMMARY.search(_ANALYSIS.sub("", text)) else _ANALYSIS.sub("", text)
        found = _SUMMARY.search(rest)
        said = (found[1] if found else rest).strip()
        if not said or refuses(said):
            return ""
        if self.keep_analysis and thought and thought[1].strip():
            return f"Analysis:\n{thought[1].strip()}\n\nSummary:\n{said}"
        return f"Summary:\n{said}"


_SAID = frozenset({"user", "steering", "assistant", "thinking", "call", "result"})
NO_SUMMARY = "no assistant message in summarization response"


@dataclass(frozen=True, slots=True)
class Summarize:
    """Folds the whole conversation; with `keeps_round` all but the last round and what the user just said.

    `auto` is the compaction that comes by itself, `asked` the one that the user wants. A request that is too long loses its oldest
    rounds, or with `keeps_round` folds half as many.
    """

    auto: bool = True
    asked: bool = True
    overflow: bool = False
    keeps_round: bool = False
    images: bool = False
    retries: int = RETRIES
    form: Continued = field(default_factory=Continued)
    report: str = "Conversation compacted"
    breakpoint_rule: str = ""
    name: str = "summarize"
    shrinks: bool = True

    @property
    def moments(self) -> frozenset[Moment]:
        """Before a call when due, when asked, and after a refusal where the profile has it so."""
        wanted: tuple[tuple[bool, Moment], ...] = (
            (self.auto, "before_call"),
            (self.asked, "asked"),
            (self.auto and self.overflow, "overflow"),
        )
        return frozenset(moment for on, moment in wanted if on)

    def plan(self, situation: Situation) -> Plan:
        """Steps that ask the model, if there is anything to fold."""
        if situation.moment == "before_call" and not is_due(situation):
            return ()
        if not any(item.kind in _SAID for item in situation.view.items):
            return Proposal(notices=("There is nothing to compact.",)) if situation.moment == "asked" else ()
        return self._half(situation) if self.keeps_round else self._whole(situation)

    def _whole(self, situation: Situation) -> Steps:
        items = situation.view.items
        reply = yield from ask_dropping(self._shown(items), request_text(situation), situation.tokens, self.retries)
        return self._fold(situation, reply, len(items))

    def _half(self, situation: Situation) -> Steps:
        items = situation.view.items
        count = len(rounds(items)) - 1
        if count < 1 and situation.moment == "overflow":
            raise NoModel("there is only one exchange, which no summary of what came before can shorten")
        if count < 1:
            raise CannotFold("too_few_groups: there is only one exchange, and that stays", kind="too_few_groups")
        if situation.moment == "overflow":
            count = max(1, count // 2)
        reply, end = yield from ask_halving(self._shown(items), count, request_text(situation), self.breakpoint_rule)
        return self._fold(situation, reply, end)

    def _shown(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        return items if self.images else strip_images(items)

    def _fold(self, situation: Situation, reply: ModelReplied, end: int) -> Proposal:
        """The summary in place of the items before `end`; pins stay, and so do calls whose results are still to come."""
        summary = self.form.summary_of(reply)
        if not summary:
            raise CannotFold(NO_SUMMARY, kind="no_summary")
        items = situation.view.items
        folded = items[:end]
        tools = tuple(item.content.tool for item in folded if isinstance(item.content, ToolCall))
        stays = pinned(situation.view).union(item.id for item in pending_calls(items))
        keeps = tuple(Keep(item.id) for item in folded if item.id in stays)
        automatic = situation.moment != "asked"
        text = self.form.message(
            summary, situation.session, automatic=automatic, kept=bool(keeps) or end < len(items), tools=(*tools, *situation.health.called)
        )
        edit = Fold(folded[0].id, folded[-1].id, (Put("summary", Text(text)), *keeps))
        return Proposal((edit,), _why(situation), notices=(self.report,))


def request_text(situation: Situation) -> str:
    """What the model is asked, with the wishes of the user for this one time."""
    wishes = situation.asked.strip()
    return prompt("claude_code/nine_sections", instructions=f"Additional Instructions:\n{wishes}" if wishes else "")


def _why(situation: Situation) -> str:
    match situation.moment:
        case "asked":
            return "manual"
        case "overflow":
            return "auto: the provider found the request too long"
        case _:
            return f"auto: {situation.used:,} tokens are used, and compaction is due at {situation.budget.compact_at or 0:,}"
