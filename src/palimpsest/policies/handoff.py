"""Compaction by handoff, which keeps a model's summary and the newest user messages: trigger, layout, retries, last resort."""

from collections.abc import Generator, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from msgspec.structs import replace

from palimpsest.audit.entities import is_turn_boundary
from palimpsest.audit.gate import pinned
from palimpsest.audit.uses import clearing_masks
from palimpsest.core.errors import CannotFold, NoModel, PalimpsestError, PromptTooLong
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import (
    MODEL_KINDS,
    Fold,
    Into,
    Item,
    Keep,
    Mask,
    Opaque,
    Put,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    pairs_of,
    pending_calls,
    rounds,
    seq_of,
    settled,
    text_of,
)
from palimpsest.core.plans import (
    Answer,
    Ask,
    EventSpan,
    Look,
    Moment,
    Outcome,
    Plan,
    Policy,
    Proposal,
    Situation,
    Steps,
    Want,
    ask,
    look,
    span,
)
from palimpsest.core.text import lazy_pattern
from palimpsest.core.tokens import CountsTokens
from palimpsest.core.truncate import truncate_middle
from palimpsest.core.view import View, shown
from palimpsest.policies.budgets import codex_effective, percent_left
from palimpsest.policies.limits import fold_threshold, prompt, tokens_after

_IMAGE_TAG: Final = lazy_pattern(r"<image(?: [^\n]*)?>|</image>")


class KeptMessage(NamedTuple):
    """One message of the user with its items."""

    items: tuple[Item, ...]

    @property
    def text_parts(self) -> tuple[tuple[Item, str], ...]:
        """The visible text items with their texts."""
        visible = ((item, shown(item)) for item in self.items)
        return tuple((item, content.text) for item, content in visible if isinstance(content, Text) and content.text)

    @property
    def plain_parts(self) -> tuple[tuple[Item, str], ...]:
        """The same without the tags around an image."""
        if all(isinstance(item.content, Text) for item in self.items):
            return self.text_parts
        return tuple((item, text) for item, text in self.text_parts if not _IMAGE_TAG.fullmatch(text.strip()))

    @property
    def text(self) -> str:
        """The text of the message without image tags."""
        return "\n".join(text for _, text in self.plain_parts)


def tokens_of(text: str) -> int:
    """Estimate tokens as a quarter of the bytes, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


def messages_of(items: Iterable[Item]) -> tuple[KeptMessage, ...]:
    """Return the user messages among some items, oldest first; summaries and stated context are left out."""
    found: list[tuple[str, list[Item]]] = []
    for item in items:
        if not is_turn_boundary(item) or item.hidden:
            continue
        message_id = _message_id(item)
        if found and found[-1][0] == message_id:
            found[-1][1].append(item)
        else:
            found.append((message_id, [item]))
    return tuple(KeptMessage(tuple(parts)) for _, parts in found)


def _message_id(item: Item) -> str:
    """Return a key that the parts of one message share: the provider's id, the number of the event, or the id of an item of an edit."""
    event, _, rest = item.id.partition(".")
    return item.content.ref or (item.id if "." in rest else event)


def keep_texts(messages: Sequence[KeptMessage], bound: int, *, in_parts: bool = False) -> tuple[Into, ...]:
    """Return the text of the newest messages within `bound` tokens, oldest first; images are left out.

    With `in_parts` a message that is cut becomes three parts: head, marker and tail.
    """
    kept: list[Into] = []
    remaining = bound
    for message in reversed(messages):
        if not remaining:
            break
        text = message.text
        if not text:
            continue
        if tokens_of(text) > remaining:
            kept.append(_cut_message(message.items[0], text, remaining, in_parts=in_parts))
            break
        kept.append(tuple(Keep(item.id) for item, _ in message.plain_parts))
        remaining -= tokens_of(text)
    return tuple(reversed(kept))


def _cut_message(item: Item, text: str, bound: int, *, in_parts: bool) -> Into:
    cut = truncate_middle(text, bound)
    if not in_parts:
        return (Put(item.kind, Text(cut.text)),)
    head = text.encode("utf-8", "surrogatepass")[: bound * 2].decode("utf-8", "ignore")
    marker = f"…{cut.cut} tokens truncated…"
    tail = cut.text[len(head) + len(marker) :]
    # The parts of one message share an id, which must be the same each time the fold is computed.
    ref = f"msg_{uuid5(NAMESPACE_URL, f'palimpsest:{item.id}')}"
    return tuple(Put(item.kind, Text(part, ref=ref)) for part in (head, marker, tail) if part)


def keep_parts(messages: Sequence[KeptMessage], bound: int) -> tuple[Into, ...]:
    """Return the newest messages within `bound` tokens with their images, oldest first.

    Images cost nothing, a message at least one token; a message that is too long is cut part by part.
    """
    kept: list[Into] = []
    remaining = bound
    for message in reversed(messages):
        if not remaining:
            break
        cost = max(1, sum(tokens_of(text) for _, text in message.text_parts))
        if cost > remaining:
            kept.append(_cut_parts(message, remaining))
            break
        kept.append(tuple(Keep(item.id) for item in message.items))
        remaining -= cost
    return tuple(reversed(kept))


def _cut_parts(message: KeptMessage, bound: int) -> Into:
    text_parts = {item.id: text for item, text in message.text_parts}
    pieces: list[Put | Keep] = []
    for item in message.items:
        text = text_parts.get(item.id)
        if text is None or tokens_of(text) <= bound:
            pieces.append(Keep(item.id))
            bound -= tokens_of(text or "")
        elif bound and isinstance(item.content, Text):
            pieces.append(Put(item.kind, replace(item.content, text=truncate_middle(text, bound).text)))
            bound = 0
    return tuple(pieces)


MODEL_SWITCH: Final = frozenset({"model_switch", "model"})
_SWITCH_TAG: Final = "<model_switch>"
_ANCHORS: Final = ("user", "summary", "compaction")
# Context that reported an event and not a state is not repeated after a fold.
_EVENT_SOURCES: Final = frozenset(
    {"summary", "skill", "user_shell_command", "turn_aborted", "subagent_notification", "user_action", "hook_prompt", "recommended_plugins"}
)


class Group(NamedTuple):
    """Pieces that stay together after a fold, and their kind."""

    pieces: Into
    kind: Literal["user", "summary", "compaction", "other"] = "user"


class HandoffRun(NamedTuple):
    """The items that a handoff folds, and the notice of a model switch at their end, which moves behind the summary."""

    items: tuple[Item, ...]
    switch: Item | None

    @property
    def shown(self) -> tuple[Item, ...]:
        """The items that the summarizing model sees: all but the notice of the switch."""
        return self.items if self.switch is None else tuple(item for item in self.items if item is not self.switch)


def handoff_run(view: View) -> HandoffRun:
    """Return the items up to the first reply with pending calls."""
    items = view.items[: settled(view.items)]
    newest = next((item for item in reversed(items) if is_turn_boundary(item) or is_model_switch(item)), None)
    return HandoffRun(items, newest if newest is not None and is_model_switch(newest) else None)


def is_model_switch(item: Item) -> bool:
    """Return whether an item is the notice that the model was switched."""
    if item.kind != "context" or not isinstance(item.content, Text):
        return False
    return item.source in MODEL_SWITCH or item.content.text.lstrip().startswith(_SWITCH_TAG)


def just_edited(view: View) -> bool:
    """Return whether the newest event is an edit, so that a policy ran since the last event of the conversation."""
    last = view.items[-1].id if view.items else ""
    is_event_item = last.count(".") == 1 and seq_of(last) == view.seq
    return view.reported is not None and view.reported.seq == view.seq and not is_event_item


def worth_folding(run: HandoffRun) -> bool:
    """Return whether the model or a tool did anything since the last summary."""
    place = max((place for place, item in enumerate(run.items) if item.kind == "summary"), default=-1)
    return any(item.kind == "result" or item.kind in MODEL_KINDS for item in run.items[place + 1 :])


def stated_context(run: HandoffRun) -> tuple[Keep, ...]:
    """Return the current statements of each context source in the run: developer messages first, then those in the user role."""
    by_source: dict[str, list[Item]] = {}
    for item in run.shown:
        if item.kind == "context" and not item.hidden and not _reports_event(item):
            by_source.setdefault(item.source, []).append(item)
    # Sources keep the order of their first statement.
    current = [item for statements in by_source.values() for item in _current(statements)]
    return tuple(
        Keep(item.id) for item in sorted(current, key=lambda item: getattr(item.content, "role", "") not in {"developer", "system"})
    )


def _current(statements: Sequence[Item]) -> Sequence[Item]:
    """Return the newest statement of a source; if it is only an update, the full statement and all updates since."""
    sizes = [len(text_of(item.content)) for item in statements]
    full = len(sizes) - 1 - sizes[::-1].index(max(sizes))
    # A statement of less than half the size of the largest one is taken for an update.
    return statements[full:] if sizes[-1] * 2 < sizes[full] else statements[-1:]


def _reports_event(item: Item) -> bool:
    # A message without a named source reports an event; lasting context has a tag.
    nameless = item.source in {"", "developer"}
    return nameless or not _EVENT_SOURCES.isdisjoint(item.source.split(".")) or item.source.startswith("agent:") or is_model_switch(item)


def place_context(groups: Sequence[Group], context: Into) -> Into:
    """Insert context before the last user message; without one before the last summary, then the last compaction, else at the end."""
    names = [group.kind for group in groups]
    place = next((len(names) - 1 - names[::-1].index(name) for name in _ANCHORS if name in names), len(names))
    before = (piece for group in groups[:place] for piece in group.pieces)
    after = (piece for group in groups[place:] for piece in group.pieces)
    return (*before, *context, *after)


def handoff_fold(situation: Situation, run: HandoffRun, groups: Sequence[Group], *, inject: bool) -> Fold:
    """Return the fold of a run into groups; with `inject` it repeats stated context. Pins stay, and the switch notice comes last."""
    context: Into = stated_context(run) if inject else ()
    kept = {*_ids(context), *(name for group in groups for name in _ids(group.pieces))}
    pins = pinned(situation.view) - kept
    pieces = place_context(_with_pins(run, groups, pins) if pins else groups, context)
    switch = () if run.switch is None else (Keep(run.switch.id),)
    return Fold(run.items[0].id, run.items[-1].id, (*pieces, *switch))


def _with_pins(run: HandoffRun, groups: Sequence[Group], pins: AbstractSet[str]) -> tuple[Group, ...]:
    """Insert pins between the messages in their old order, all of them before summary and compaction."""
    places = {item.id: place for place, item in enumerate(run.items)}
    remaining = [item for item in run.shown if item.id in pins]
    merged: list[Group] = []
    for group in groups:
        place = min((places[name] for name in _ids(group.pieces)), default=-1 if group.kind == "user" else len(places))
        while remaining and places[remaining[0].id] < place:
            merged.append(_pin(remaining.pop(0)))
        merged.append(group)
    return (*merged, *map(_pin, remaining))


def _pin(item: Item) -> Group:
    return Group((Keep(item.id),), "user" if is_turn_boundary(item) else "other")


def _ids(pieces: Into) -> tuple[str, ...]:
    return tuple(piece.id for piece in pieces if isinstance(piece, Keep))


MOMENTS: Final[frozenset[Moment]] = frozenset({"turn_starts", "before_call", "after_call", "overflow", "asked", "switched"})


@dataclass(frozen=True, slots=True)
class HandoffTrigger:
    """Decides whether a handoff is due: at the budget, on overflow, after a switch to a smaller model, or when the user asks.

    scope: which tokens count against the budget: all of the view, or only those after the prompt of the first reply since the last fold.
    at_effective_window: after a switch, a handoff is also due when the effective window of the new model is reached.
    """

    scope: Literal["total", "body_after_prefix"] = "total"
    at_effective_window: bool = False

    def reason(self, situation: Situation) -> str:
        """Return why a handoff is due now; empty if it is not."""
        why = self._reason_at_moment(situation) if situation.may_fold else ""
        return why if why and not just_edited(situation.view) and worth_folding(handoff_run(situation.view)) else ""

    def _reason_at_moment(self, situation: Situation) -> str:
        match situation.moment:
            case "asked":
                return "asked"
            case "switched":
                return self._reason_after_switch(situation)
            case "overflow":
                return "the provider found the request too long"
            case "turn_starts":
                return self._reason_by_budget(situation)
            case _:
                return self._reason_within_turn(situation)

    def is_due_by_scope(self, situation: Situation) -> Generator[Want, Answer, bool]:
        """Return whether it is due by the scope as well; reads the first reply since the last fold from the log."""
        if self.scope == "total" or situation.moment in {"asked", "switched", "overflow"} or situation.health.overflow:
            return True
        prefix = yield from _prefix_tokens(situation)
        level = min((situation.budget.compact_at or 0) + prefix, effective_window(situation))
        return situation.used >= level

    def _reason_by_budget(self, situation: Situation) -> str:
        level = fold_threshold(situation, situation.budget.compact_at)
        if situation.health.overflow:
            return "the last request was too long"
        if level is None or situation.used < level:
            return ""
        return f"{situation.used:,} tokens are used and {level:,} is the limit"

    def _reason_within_turn(self, situation: Situation) -> str:
        """Return a reason only while the model continues a turn, or before a call that would exceed the effective window."""
        why = self._reason_by_budget(situation)
        if not why or pending_calls(situation.view.items):
            return ""
        blocked = situation.moment == "before_call" and situation.used >= effective_window(situation)
        return why if continues_turn(situation.view.items) or blocked else ""

    def _reason_after_switch(self, situation: Situation) -> str:
        old, new = situation.previous, situation.card
        if old is None or old.name == new.name:
            return ""
        sealed = {item.content.provider for item in situation.view.items if item.kind == "summary" and isinstance(item.content, Opaque)}
        if old.provider in sealed and old.provider != new.provider:
            return f"{new.name} cannot read the encrypted summary of {old.name}"
        if codex_effective(old.working_window) <= codex_effective(new.working_window):
            return ""
        level = situation.budget.compact_at
        if (level is not None and situation.used > level) or (self.at_effective_window and situation.used >= effective_window(situation)):
            return f"{new.name} has less room than {old.name}"
        return ""


def effective_window(situation: Situation) -> int:
    """Return the tokens of the window that Codex plans with: 95% of it."""
    return codex_effective(situation.budget.window)


def continues_turn(items: tuple[Item, ...]) -> bool:
    """Return whether the next call continues a turn: the model has replied in it, and items follow that reply."""
    for place, item in enumerate(reversed(items)):
        if item.kind == "user":
            return False
        if item.kind in MODEL_KINDS:
            return place > 0
    return False


def _prefix_tokens(situation: Situation) -> Generator[Want, Answer, int]:
    """Return the prompt tokens of the first reply since the last fold; 0 if there is none."""
    items = situation.view.items
    start = max((place for place, item in enumerate(items) if item.kind == "summary"), default=-1)
    first = next((item for item in items[start + 1 :] if item.kind in MODEL_KINDS), None)
    if first is None:
        return 0
    seq = seq_of(first.id)
    events = yield from span(EventSpan(seq, seq))
    body = events[0].body if events else None
    return body.usage.prompt if isinstance(body, ModelReplied) else 0


RETRIES = 3
_GAP = "[The oldest part of this conversation does not fit here and was left out.]"


def ask_dropping_rounds(
    items: tuple[Item, ...], prompt: str, counter: CountsTokens, retries: int = RETRIES
) -> Generator[Want, Answer, ModelReplied]:
    """Ask about all items; while the request is too long, drop the oldest rounds and ask again, at most `retries` times.

    Raises `CannotFold` when the retries are used up or a single round is left.
    """
    while True:
        try:
            return (yield from ask(Ask(items, prompt, "summary")))
        except PromptTooLong as error:
            starts = rounds(items)
            if not retries or len(starts) < 2:
                raise CannotFold(f"too long to compact: {error.message}", kind="too_long_to_compact", where=error.where) from error
            retries -= 1
            # A conversation must begin with the user role.
            items = (Item("", "notice", Text(_GAP)), *items[starts[rounds_to_drop(items, starts, error.gap, counter)] :])


def rounds_to_drop(items: Sequence[Item], starts: Sequence[int], gap: int | None, counter: CountsTokens) -> int:
    """Return how many of the oldest rounds to drop: the fewest with `gap` tokens, else a fifth; at least one round stays."""
    most = len(starts) - 1
    if gap is None:
        return min(most, max(1, len(starts) // 5))
    size = 0
    for number in range(most):
        size += sum(counter.item(item) for item in items[starts[number] : starts[number + 1]])
        if size >= gap:
            return number + 1
    return most


def ask_halving_rounds(
    items: tuple[Item, ...], count: int, prompt: str, breakpoint_rule: str = ""
) -> Generator[Want, Answer, tuple[ModelReplied, int]]:
    """Ask about the first `count` rounds, or half as many while the request is too long; return the reply and the end of those rounds.

    Raises `CannotFold` if even one round is too long.
    """
    starts = (*rounds(items), len(items))
    while count >= 1:
        end = starts[count]
        try:
            reply = yield from ask(Ask(items[:end], prompt, "summary", breakpoint_rule=breakpoint_rule))
        except PromptTooLong:
            count //= 2
        else:
            return reply, end
    raise CannotFold("exhausted: not even the oldest round fits a request of its own", kind="exhausted")


class TrimmedReply(NamedTuple):
    """A reply, and how many of the oldest items were left out of its request."""

    reply: ModelReplied
    dropped: int = 0


# Codex has no bound; a server that refuses whatever it gets must not be asked for ever.
MOST_REQUESTS = 50


def ask_dropping_items(want: Ask, requests: int = MOST_REQUESTS) -> Generator[Want, Answer, TrimmedReply]:
    """Send a request; while it is too long, drop its oldest item and send it again, as Codex does, at most `requests` times.

    Raises `PromptTooLong` if the last request is still too long, or one item is left.
    """
    items = want.items
    for left in reversed(range(requests)):
        try:
            return TrimmedReply((yield from ask(replace(want, items=items))), len(want.items) - len(items))
        except PromptTooLong:
            shorter = without_oldest(items)
            if not left or not shorter:
                raise
            items = shorter
    raise CannotFold("no request was made", kind="too_long_to_compact")


def without_oldest(items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the items without the oldest message, call or result; the result of a dropped call goes too, and the call of a result."""
    if not items:
        return ()
    first = _message(items[0])
    count = 1 if first is None else next((place for place, item in enumerate(items) if _message(item) != first), len(items))
    dropped = {item.id for item in items[:count]}
    for call, result in pairs_of(items):
        if not dropped.isdisjoint((call.id, result.id)):
            dropped |= {call.id, result.id}
    return tuple(item for item in items[count:] if item.id not in dropped)


def _message(item: Item) -> tuple[str, str] | None:
    """Return what the parts of one message of the provider share; `None` for what is an item of its own, such as a call."""
    content = item.content
    if isinstance(content, ToolCall | ToolResult | Opaque):
        return None
    event, _, rest = item.id.partition(".")
    origin = content.ref or (item.id if "." in rest else event)
    return ("thinking" if isinstance(content, Thinking) else getattr(content, "role", "user")), origin


def summary_text(summary: str) -> str:
    """Return the text that replaces the work: an introduction, and the summary in the next line."""
    return f"{prompt('handoff_prefix')}\n{summary}"


KEPT_TOKENS = 20_000
PURPOSE = "compact"
_LEAST = 1_000
WARNING = "long sessions and many compactions make answers less exact; a new session per task keeps them sharp"


@dataclass(frozen=True, slots=True)
class Handoff:
    """Asks a model for a summary and folds the conversation into it and the newest user messages.

    inject: moments at which the fold repeats the stated context; at others it is stated again with the next turn.
    kept_tokens: bound of the user messages that stay.
    in_parts: a message that is cut becomes three parts.
    prompt_text, prompt_file: replace the built-in prompt; the text wins.
    """

    inject: frozenset[Moment]
    trigger: HandoffTrigger = field(default_factory=HandoffTrigger)
    kept_tokens: int = KEPT_TOKENS
    in_parts: bool = False
    prompt_text: str = ""
    prompt_file: str = ""
    name: str = "handoff"
    moments: frozenset[Moment] = MOMENTS
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan a summary and a fold, if a handoff is due."""
        why = self.trigger.reason(situation)
        return self._steps(situation, why) if why else ()

    def _steps(self, situation: Situation, why: str) -> Steps:
        if not (yield from self.trigger.is_due_by_scope(situation)):
            return ()
        run = handoff_run(situation.view)
        request = yield from self._prompt(situation)
        answer = yield from _ask(Ask(run.shown, request, PURPOSE, tools=False), situation)
        return self._proposal(situation, run, answer, why)

    def _prompt(self, situation: Situation) -> Generator[Want, Answer, str]:
        file_text = (yield from look(Look(self.prompt_file))) if self.prompt_file and not self.prompt_text else None
        focus = f"Pay special attention to this: {situation.asked}" if situation.asked else ""
        own = self.prompt_text or file_text
        return f"{own}\n\n{focus}".strip() if own else prompt("handoff", focus=focus)

    def _proposal(self, situation: Situation, run: HandoffRun, answer: TrimmedReply, why: str) -> Outcome:
        summary = last_message(answer.reply)
        level = situation.budget.compact_at or situation.budget.window
        fold, size = self._fold(situation, run, summary, self.kept_tokens)
        # A summary may be longer than the conversation: then less and less is kept until it fits.
        for kept, bound in ((self.kept_tokens // 4, level // 4), (_LEAST, level // 16)):
            if size + situation.incoming < level and size < situation.tokens.total(situation.view) + situation.tools_tokens:
                break
            cut_summary = truncate_middle(summary, bound).text
            fold, size = self._fold(situation, run, cut_summary, kept)
        return Proposal((fold,), why, notices=notices(situation, size, answer.dropped))

    def _fold(self, situation: Situation, run: HandoffRun, summary: str, kept: int) -> tuple[Fold, int]:
        messages = keep_texts(messages_of(run.shown), kept, in_parts=self.in_parts)
        last = Put("summary", Text(summary_text(summary)))
        groups = (*(Group(message) for message in messages), Group((last,), "summary"))
        fold = handoff_fold(situation, run, groups, inject=situation.moment in self.inject)
        return fold, tokens_after(situation, run.items, fold)


def last_message(reply: ModelReplied) -> str:
    """Return the text of the last message in a reply; empty if there is none."""
    texts: Sequence[Text] = [part for part in reply.parts if isinstance(part, Text)]
    place = len(texts)
    while place and texts[place - 1].ref == texts[-1].ref:
        place -= 1
    return "".join(part.text for part in texts[place:])


def notices(situation: Situation, size: int, dropped: int = 0) -> tuple[str, ...]:
    """Return the notices after a fold: the free share, the items left out of the summary, and at the first fold a warning."""
    lines = [f"compacted: about {percent_left(size, effective_window(situation))}% of the context is free now"]
    if dropped:
        lines.append(f"the {dropped} oldest items did not fit the request for the summary, which does not cover them")
    if all(item.kind != "summary" for item in situation.view.items):
        lines.append(WARNING)
    return tuple(lines)


def _ask(want: Ask, situation: Situation) -> Generator[Want, Answer, TrimmedReply]:
    """Ask the model of the session; after a switch ask the previous model, which has the larger window, and on failure the new one."""
    previous = situation.previous if situation.moment == "switched" else None
    if previous is None:
        return (yield from ask_dropping_items(want))
    try:
        return (yield from ask_dropping_items(replace(want, model=previous.name)))
    except NoModel:
        raise
    except PalimpsestError as first:
        try:
            return (yield from ask_dropping_items(want))
        except PalimpsestError:
            raise first from None


@dataclass(frozen=True, slots=True)
class LastResort:
    """Frees tokens when every handoff failed and the view exceeds the effective window: masks old results, else folds without a model.

    `fallback` is the policy that folds without a model.
    """

    fallback: Policy | None = None
    name: str = "last_resort"
    moments: frozenset[Moment] = frozenset({"turn_starts", "before_call", "overflow"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose masks if they free enough tokens, else the fold of the fallback."""
        room = effective_window(situation)
        if situation.used < room and (situation.moment != "overflow" or just_edited(situation.view)):
            return ()
        masks, saved = _masks(situation)
        if masks and (situation.used - saved < room or self.fallback is None):
            return Proposal(masks, f"{situation.used:,} tokens are used, {room:,} can be sent, and no summary could be made")
        return self.fallback.plan(situation) if self.fallback is not None and situation.may_fold else ()


def _masks(situation: Situation) -> tuple[tuple[Mask, ...], int]:
    """Return masks for the results before the last round, and the tokens that they save."""
    items, pins = situation.view.items, pinned(situation.view)
    starts = rounds(items)
    older = enumerate(items[: starts[-1]] if starts else ())
    places = [place for place, item in older if isinstance(item.content, ToolResult) and item.mask is None and item.id not in pins]
    worth = [(mask, gain) for mask, gain in clearing_masks(situation.view, places, situation.tokens) if gain > 0]
    return tuple(mask for mask, _ in worth), sum(gain for _, gain in worth)
