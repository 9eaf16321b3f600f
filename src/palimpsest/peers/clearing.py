"""Clearing of tool results as other programs do it, by tokens, age, idle time or at the provider, and their result limiters."""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import ceil
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from palimpsest.audit.gate import pinned
from palimpsest.audit.tool_calls import Operation, is_served, operation_of, tool_operation
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import (
    Document,
    Edit,
    Image,
    Item,
    Mask,
    Part,
    Text,
    ToolCall,
    ToolResult,
    Value,
    answered_calls,
    pairs_of,
    seq_of,
    text_of,
)
from palimpsest.core.plans import Answer, Moment, Plan, Proposal, Save, Situation, Steps, Want, save
from palimpsest.core.text import counted, without_tags
from palimpsest.core.truncate import Truncated, truncate_lines, truncate_middle, truncate_parts
from palimpsest.core.view import View, placeholder_content
from palimpsest.policies.limits import text_of_parts, with_text

# What Read, Bash, Grep, Glob, WebSearch, WebFetch, Edit and Write of Claude Code do.
_CLEARED_OPERATIONS: Final[frozenset[Operation]] = frozenset({"read", "command", "search", "find", "web_search", "fetch", "edit", "write"})
CLEARED = "[Old tool result content cleared]"
PERSISTED = "<persisted-output>"


def maskable(view: View) -> tuple[Item, ...]:
    """Return the results of the tools that Claude Code clears, under the names of any program, masked or not, oldest first."""
    return tuple([result for call, result in pairs_of(view.items) if isinstance(call.content, ToolCall) and _clears(call.content)])


def _clears(call: ToolCall) -> bool:
    """Whether a result is cleared. Claude Code clears its own tools, and none of an MCP server."""
    return not is_served(call.tool) and operation_of(call) in _CLEARED_OPERATIONS


def protected_ids(view: View) -> frozenset[str]:
    """Return the ids of items that no mask may cover: pinned ones, and ones that an undo brought back."""
    return pinned(view) | view.held


def is_placeholder(item: Item) -> bool:
    """Return whether a result is empty, or already a placeholder for content that was cleared or saved."""
    text = text_of(item.content)
    return not text or text.isspace() or text == CLEARED or PERSISTED in text


def as_file(result: ToolResult) -> tuple[str, str]:
    """Return the text and the suffix of the file for a result: `.txt` for one text, `.json` with indented JSON for a list of parts."""
    match result.parts:
        case (Text(text=text),):
            return text, ".txt"
        case parts:
            return msgspec.json.format(parts_json(parts), indent=2).decode(), ".json"


def parts_json(parts: tuple[Part, ...]) -> bytes:
    """Encode the parts of a result as compact JSON."""
    return msgspec.json.encode([_block(part) for part in parts])


def _block(part: Part) -> object:
    if isinstance(part, Image | Document):
        return {"type": "image" if isinstance(part, Image) else "document", "media_type": part.media, "source": part.url or part.blob}
    return {"type": "text", "text": text_of(part)}


_MINUTE_MS = 60_000
IDLE_MINUTES = 60
KEEP_WHEN_IDLE = 5


def is_cold(situation: Situation, minutes: int = IDLE_MINUTES) -> bool:
    """Return whether the last reply of the model is at least that many minutes old; false if there is none."""
    replied_at = situation.health.replied_at
    return replied_at is not None and situation.now - replied_at >= minutes * _MINUTE_MS


def edited_for_idle(situation: Situation, minutes: int = IDLE_MINUTES) -> bool:
    """Return whether the view was edited after idle time and before the next call; the other masking policies then wait for that call."""
    return situation.cache.edited and is_cold(situation, minutes)


@dataclass(frozen=True, slots=True)
class ClearIdle:
    """After `minutes` without a reply, masks all maskable results but the newest `keep`; does nothing in a sub-agent."""

    minutes: int = IDLE_MINUTES
    keep: int = KEEP_WHEN_IDLE
    name: str = "clear_idle"
    moments: frozenset[Moment] = field(default=frozenset({"before_call"}))
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose one mask; results are not saved to files, because the log has them."""
        if situation.child or not is_cold(situation, self.minutes):
            return ()
        results = maskable(situation.view)
        old = results[: max(0, len(results) - self.keep)]
        protected = protected_ids(situation.view)
        chosen = [item for item in old if item.mask is None and item.id not in protected and not is_placeholder(item)]
        counter = situation.tokens
        saved = sum(counter.item(item) for item in chosen) - len(chosen) * counter.content(ToolResult("", (Text(CLEARED),)))
        if saved <= 0:
            return ()
        why = f"auto: no reply for {self.minutes} minutes, so the cache is cold and masking {len(chosen)} old results costs nothing"
        return Proposal((Mask(tuple(item.id for item in chosen), CLEARED),), why)


TARGET = 40_000
KEEP = 3
LEAST = 20_000


class ClearChoice(NamedTuple):
    """The results to mask, the tokens that masking saves, and the tokens of all unmasked results before it."""

    items: tuple[Item, ...] = ()
    saved: int = 0
    total: int = 0


def choose(situation: Situation, target: int = TARGET, keep: int = KEEP) -> ClearChoice:
    """Choose the oldest unmasked results until at most `target` tokens of results stay; protected and the newest `keep` are skipped."""
    view, count = situation.view, situation.tokens.item
    unmasked = [item for item in maskable(view) if item.mask is None]
    protected = protected_ids(view).union(item.id for item in unmasked[len(unmasked) - keep :] if keep)
    total = sum(count(item) for item in unmasked)
    chosen: list[Item] = []
    saved = 0
    for item in unmasked:
        if total - saved <= target:
            break
        if item.id not in protected and not is_placeholder(item):
            chosen.append(item)
            saved += count(item)
    return ClearChoice(tuple(chosen), saved, total)


def choose_when_full(situation: Situation, target: int, keep: int, least: int) -> ClearChoice:
    """Choose as `choose` does; empty below `budget.clear_at`, or if masking would save fewer than `least` tokens."""
    level = situation.budget.clear_at
    if level is None or situation.used < level:
        return ClearChoice()
    chosen = choose(situation, target, keep)
    return chosen if chosen.saved >= least else ClearChoice()


@dataclass(frozen=True, slots=True)
class ClearResults:
    """From `clear_at` on, masks the oldest results down to `target` tokens, if that saves `least` tokens; the newest `keep` stay.

    With `manual` it runs when the user asks, without a level and without a least saving. With `beside_cached` it does nothing where the
    model's cache can be edited, because `ClearCached` masks there; it also waits after a mask for idle time.
    """

    target: int = TARGET
    keep: int = KEEP
    least: int = LEAST
    manual: bool = False
    beside_cached: bool = False
    name: str = "clear_results"
    shrinks: bool = True

    @property
    def moments(self) -> frozenset[Moment]:
        """Return `before_call`, or `asked` for a manual one."""
        return frozenset({"asked"}) if self.manual else frozenset({"before_call"})

    def plan(self, situation: Situation) -> Plan:
        """Save each chosen result to a file and mask it with the path; recalled notes are hidden too."""
        if self.manual:
            chosen = choose(situation, self.target, self.keep)
        elif edited_for_idle(situation) or (self.beside_cached and situation.card.cache_edits and not situation.child):
            return ()
        else:
            chosen = choose_when_full(situation, self.target, self.keep, self.least)
        return self._steps(situation, chosen) if chosen.items else ()

    def _steps(self, situation: Situation, chosen: ClearChoice) -> Steps:
        edits: list[Edit] = []
        for item in chosen.items:
            text = yield from _save_to_file(item)
            edits.append(Mask((item.id,), text))
        protected = protected_ids(situation.view)
        recalled = (item for item in situation.view.items if item.kind == "recalled" and item.mask is None)
        notes = tuple(item.id for item in recalled if item.id not in protected)
        if notes:
            edits.append(Mask(notes))
        trigger = "manual" if self.manual else "auto"
        remaining = chosen.total - chosen.saved
        why = f"{trigger}: {counted(len(chosen.items), 'old result')} of {chosen.saved:,} tokens are masked, {remaining:,} stay"
        return Proposal(tuple(edits), why)


@dataclass(frozen=True, slots=True)
class ClearCached:
    """Lets the provider clear what `ClearResults` would mask, as far as its context editing can say it; the messages stay byte-equal.

    Runs only for a card with cache edits, not in a sub-agent, and not after a mask for idle time.
    """

    target: int = TARGET
    keep: int = KEEP
    least: int = LEAST
    idle_minutes: int = IDLE_MINUTES
    name: str = "clear_cached"
    moments: frozenset[Moment] = field(default=frozenset({"before_call"}))
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose one mask of the form `cached`, which every later request repeats."""
        if not situation.card.cache_edits or situation.child or edited_for_idle(situation, self.idle_minutes):
            return ()
        chosen = _clearable(situation, choose_when_full(situation, self.target, self.keep, self.least))
        saved = sum(situation.tokens.item(item) for item in chosen)
        if not chosen or saved < self.least:
            return ()
        why = f"auto: the provider clears {counted(len(chosen), 'old result')} of {saved:,} tokens"
        return Proposal((Mask(tuple(item.id for item in chosen), form="cached"),), why)


def _clearable(situation: Situation, choice: ClearChoice) -> tuple[Item, ...]:
    """Return the results that the provider can be asked to clear: it takes all results of a tool up to a place, or none.

    A tool of which an earlier result has to stay is left out; empty results of the others are taken along.
    """
    wanted = {item.id for item in choice.items}
    last = max((place for place, item in enumerate(situation.view.items) if item.id in wanted), default=-1)
    before = {item.id for item in situation.view.items[: last + 1]}
    protected = protected_ids(situation.view)
    by_tool: dict[str, list[Item]] = {}
    staying: set[str] = set()
    for call, result in pairs_of(situation.view.items):
        if result.id not in before or result.mask is not None or not isinstance(call.content, ToolCall):
            continue
        if result.id in wanted or (is_placeholder(result) and result.id not in protected):
            by_tool.setdefault(call.content.tool, []).append(result)
        else:
            staying.add(call.content.tool)
    cleared = [items for tool, items in by_tool.items() if tool not in staying and any(item.id in wanted for item in items)]
    taken = {item.id for items in cleared for item in items}
    return tuple(item for item in situation.view.items if item.id in taken)


def _save_to_file(item: Item) -> Generator[Want, Answer, str]:
    """Save a result to a file and return its placeholder, which names the path; the plain placeholder if saving fails."""
    if not isinstance(item.content, ToolResult):
        return CLEARED
    text, suffix = as_file(item.content)
    try:
        path = yield from save(Save(text.encode("utf-8", "surrogatepass"), f"{item.content.call_id}{suffix}"))
    except PalimpsestError:
        return CLEARED
    return f"{PERSISTED}Tool result saved to: {path}\n\nUse Read to view</persisted-output>"


TRIGGER: Final = 100_000
KEPT_USES: Final = 3


@dataclass(frozen=True, slots=True)
class ClearToolUses:
    """Masks the results of all tool uses but the newest `keep`, once the input has more than `trigger` tokens.

    A client sends its whole history with every request, and the provider clears it each time: the trigger is compared with the size
    before clearing, so that after it was reached once, each call clears what is no longer among the newest. With `sticky`, the client
    keeps what was cleared, and the trigger is compared with what is left.

    clear_at_least: tokens that clearing must free, counted over all that is cleared; with `sticky`, over what is cleared now.
    exclude_tools: names of tools whose results are never cleared.
    clear_tool_inputs: the arguments of the calls are cleared too.
    """

    trigger: int = TRIGGER
    keep: int = KEPT_USES
    clear_at_least: int = 0
    exclude_tools: frozenset[str] = frozenset()
    clear_tool_inputs: bool = False
    sticky: bool = False
    name: str = "clear_tool_uses"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose one mask over all that is to be cleared and is not yet."""
        pairs = list(pairs_of(situation.view.items))
        # A history only grows until it is folded: once its trigger and its least gain were reached, they stay reached.
        reached = not self.sticky and any(result.mask is not None and result.mask.text == CLEARED for _, result in pairs)
        if not reached and situation.used <= self.trigger:
            return ()
        protected = protected_ids(situation.view)
        chosen = [item for item in self._old(pairs) if item.mask is None and item.id not in protected and not is_placeholder(item)]
        freed = sum(_freed(situation, item) for item in chosen)
        if not chosen or not (reached or freed >= self.clear_at_least):
            return ()
        cleared = counted(len(chosen), "item")
        why = f"auto: the input exceeds {self.trigger:,} tokens, so {cleared} before the newest {self.keep} tool uses are cleared"
        return Proposal((Mask(tuple(item.id for item in chosen), CLEARED),), why)

    def _old(self, pairs: list[tuple[Item, Item]]) -> list[Item]:
        """Return the items of the tool uses that may be cleared, oldest first."""
        found: list[Item] = []
        for call, result in pairs[: max(0, len(pairs) - self.keep)]:
            if isinstance(call.content, ToolCall) and call.content.tool not in self.exclude_tools:
                found += (call, result) if self.clear_tool_inputs else (result,)
        return found


def _freed(situation: Situation, item: Item) -> int:
    """Return the tokens that the placeholder of an item saves."""
    counter = situation.tokens
    return counter.item(item) - counter.content(placeholder_content(item, CLEARED))


_KEPT: Final[frozenset[Operation]] = frozenset({"skill"})


@dataclass(frozen=True, slots=True)
class PruneResults:
    """OpenCode's pruning: masks the results before the newest `protect` tokens of them, once they have more than `least` tokens.

    The last `turns` turns do not count at all; results of tools that do one of `kept_operations` are never masked.
    """

    protect: int = 40_000
    least: int = 20_000
    turns: int = 2
    kept_operations: frozenset[Operation] = _KEPT
    name: str = "prune_results"
    moments: frozenset[Moment] = frozenset({"turn_ends"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose one mask over all candidates."""
        counter, view = situation.tokens, situation.view
        walked_tokens = saved = 0
        ids: list[str] = []
        protected = protected_ids(view)
        for item in self._prunable(view.items):
            if item.id in protected:
                continue
            size = counter.item(item)
            walked_tokens += size
            if walked_tokens > self.protect:
                ids.append(item.id)
                saved += size
        if saved <= self.least:
            return ()
        why = f"{counted(len(ids), 'old result')} with {saved:,} tokens lie before the newest {self.protect:,}"
        return Proposal((Mask(tuple(reversed(ids)), CLEARED),), why)

    def _prunable(self, items: tuple[Item, ...]) -> Iterator[Item]:
        """Yield the results that may be masked, newest first, back to a summary or to the first masked result."""
        calls = answered_calls(items)
        turns, message = 0, ""
        for item in reversed(items):
            content = item.content
            if item.kind == "summary":
                return
            if _is_user_message(item):
                turns, message = turns + (_message_id(item) != message), _message_id(item)
            elif isinstance(content, ToolResult) and turns >= self.turns:
                if item.mask is not None:
                    return
                if not content.error and (item.id not in calls or operation_of(calls[item.id]) not in self.kept_operations):
                    yield item


def _is_user_message(item: Item) -> bool:
    """Whether an item is a user message in OpenCode: typed, or the request to go on after a compaction, which has no source.

    Other reminders are parts of the message before them.
    """
    return item.kind in ("user", "steering") or (item.kind == "reminder" and not item.source)


def _message_id(item: Item) -> str:
    """Return a key that the parts of one message share: the number of their event; an item of an edit is a message by itself."""
    return item.id if item.id.count(".") > 1 else str(seq_of(item.id))


@dataclass(frozen=True, slots=True)
class MaskOld:
    """Masks results with the name of their tool, except for some of them.

    Not masked are the newest `keep`, those of at most `shortest` characters, and those of tools that do one of `kept_operations`.
    """

    keep: int = 3
    shortest: int = 100
    kept_operations: frozenset[Operation] = _KEPT
    name: str = "mask_old"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose one mask for each tool with old results."""
        view = situation.view
        calls = answered_calls(view.items)
        results = [item for item in view.items if isinstance(item.content, ToolResult)]
        protected = protected_ids(view)
        old: dict[str, list[str]] = {}
        for item in results[: -self.keep] if self.keep else results:
            call = calls.get(item.id)
            tool = call.tool if call is not None else "unknown"
            # Most are masked already, so that what their tools do is not looked for.
            if item.mask is not None or item.id in protected or len(text_of(item.content)) <= self.shortest:
                continue
            if call is None or operation_of(call) not in self.kept_operations:
                old.setdefault(tool, []).append(item.id)
        edits = tuple(Mask(tuple(ids), f"[Previous: used {tool}]") for tool, ids in old.items())
        return Proposal(edits, f"results older than the newest {self.keep}") if edits else ()


Mode: TypeAlias = Literal["tokens", "bytes"]

OUTPUT_LIMIT: Final = 10_000


CLAUDE_PREVIEW = 2_000
OPENCODE_LINES = 2_000
OPENCODE_BYTES = 51_200


def claude_preview(text: str, limit: int = CLAUDE_PREVIEW) -> Truncated:
    """Keep the first `limit` characters, up to the last newline if it is in the second half."""
    if len(text) <= limit:
        return Truncated(text)
    line = text.rfind("\n", 0, limit)
    end = line if line > limit // 2 else limit
    return Truncated(text[:end], len(text) - end, "chars")


class CapturedOutput(Value, frozen=True):
    """The output of a process, and the number of bytes omitted from its middle."""

    text: str
    omitted: int = 0


class CommandStatus(Value, frozen=True):
    """The status of a command: its exit code, or the number under which it still runs, and its wall time."""

    exit: int | None = None
    running: int | None = None
    seconds: float = 0.0
    chunk: str = ""


def _gap(omitted: int) -> str:
    return f"\n... {omitted} bytes omitted ...\n"


def bounded_body(
    output: CapturedOutput, limit: int, mode: Mode = "tokens", *, requested_tokens: int | None = None, warns: bool = False
) -> Truncated:
    """Cut the middle of an output to a limit; `requested_tokens` can lower the limit and never raises it.

    A body that was cut begins with its number of lines; with `warns`, with a warning and the original number of tokens.
    """
    room = limit
    if requested_tokens is not None:
        room = min(limit, requested_tokens if mode == "tokens" else requested_tokens * 4)
    cut = truncate_middle(output.text, room, mode)
    if not cut.cut:
        return cut
    lines = [f"Total output lines: {len(output.text.splitlines())}"]
    if warns:
        size_line = f"... {output.omitted} bytes omitted ..." if output.omitted else lines[0]
        lines = [f"Warning: truncated output (original token count: {original_tokens(output)})", size_line]
    return Truncated("\n".join([*lines, "", cut.text]), cut.cut, cut.unit)


def original_tokens(output: CapturedOutput) -> int:
    """Estimate the tokens of the whole output as a quarter of its bytes, omitted bytes included."""
    size = len(output.text.encode("utf-8", "surrogatepass"))
    if output.omitted:
        size += output.omitted - len(_gap(output.omitted))
    return -(-size // 4)


def with_header(output: CapturedOutput, body: str, status: CommandStatus) -> str:
    """Return the body of an output below a header with the status of the command."""
    lines = [f"Chunk ID: {status.chunk}"] if status.chunk else []
    lines.append(f"Wall time: {status.seconds:.4f} seconds")
    if status.running is not None:
        lines.append(f"Process running with session ID {status.running}")
    elif status.exit is not None:
        lines.append(f"Process exited with code {status.exit}")
    lines += [f"Original token count: {original_tokens(output)}", "Output:", body]
    return "\n".join(lines)


CLAUDE_LIMIT_CHARS = 400_000
CLAUDE_LIMITS_CHARS: Mapping[Operation, int] = {"command": 30_000}
_UNITS = ("KB", "MB", "GB")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True)
class ClaudeLimiter:
    """Claude Code's limiter: saves a result of more characters than the limit to a file and shows its first 2 KB.

    limits: limits by what a tool does, in characters; `limit` is that of all other tools.
    short_names: name the files of commands by a digest instead of the call id.
    """

    limits: Mapping[Operation, int] = field(default_factory=lambda: CLAUDE_LIMITS_CHARS)
    limit: int = CLAUDE_LIMIT_CHARS
    short_names: bool = False
    names_file: ClassVar = True

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """Return the result to record; unchanged if it is empty, has an image, is within the limit or cannot be saved."""
        result = returned.result
        if not _has_content(result) or any(isinstance(part, Image | Document) for part in result.parts):
            return returned
        if length_of(result) <= self.limits.get(tool_operation(returned.tool), self.limit):
            return returned
        text, suffix = as_file(result)
        data = text.encode("utf-8", "surrogatepass")
        try:
            blob = yield from save(Save(data))
            path = yield from save(Save(data, self._file_name(returned) + suffix))
        except PalimpsestError:
            return returned
        return replace(returned, result=replace(result, parts=(Text(placeholder(text, path)),), blob=blob))

    def _file_name(self, returned: ToolReturned) -> str:
        if self.short_names and tool_operation(returned.tool) == "command":
            digest = sha256(returned.result.call_id.encode("utf-8", "surrogatepass")).digest()
            return "b" + "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:8])
        return returned.result.call_id


def length_of(result: ToolResult) -> int:
    """Return the characters of a result; a list of parts counts as its JSON."""
    match result.parts:
        case (Text(text=text),):
            return len(text)
        case parts:
            return len(parts_json(parts).decode())


def placeholder(text: str, path: str) -> str:
    """Return the text that replaces a saved one: its size, its path, and its first 2 KB."""
    preview = claude_preview(text)
    more = "...\n" if preview.cut else ""
    return (
        f"{PERSISTED}\nOutput too large ({size_name(len(text))}). Full output saved to: {path}\n\n"
        f"Preview (first 2KB):\n{without_tags(preview.text, 'persisted-output')}\n{more}</persisted-output>"
    )


def size_name(size: int) -> str:
    """Format a size in units of 1,024 with one decimal; a decimal of zero is left out."""
    if size < 1024:
        return f"{size} bytes"
    number = float(size)
    for unit in _UNITS:
        number /= 1024
        if number < 1024 or unit == _UNITS[-1]:
            break
    return f"{number:.1f}".removesuffix(".0") + unit


def _has_content(result: ToolResult) -> bool:
    return any(not isinstance(part, Text) or part.text for part in result.parts)


# A body that its tool has cut has a header too, for which it must not be cut again.
_HEADER_FACTOR: Final = 1.2


@dataclass(frozen=True, slots=True)
class CodexLimiter:
    """Codex's limiter: cuts the middle of a result above `limit` tokens or bytes; with `warns` a cut output begins with a warning."""

    limit: int = OUTPUT_LIMIT
    mode: Mode = "tokens"
    warns: bool = False

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """Return the result to record."""
        result = returned.result
        # A result with a blob was cut by its tool.
        if result.blob:
            return returned
        bounded = truncate_parts(result.parts, ceil(self.limit * _HEADER_FACTOR), self.mode)
        if not bounded.cut:
            return returned
        blob = yield from save(Save(text_of_parts(result).encode("utf-8", "surrogatepass")))
        return replace(returned, result=replace(result, parts=bounded.parts, blob=blob))

    def command(
        self, call_id: str, output: CapturedOutput, status: CommandStatus, *, requested_tokens: int | None = None
    ) -> Generator[Want, Answer, ToolResult]:
        """Return the result of a command within the limit, or within `requested_tokens` if the model asked for fewer."""
        body = bounded_body(output, self.limit, self.mode, requested_tokens=requested_tokens, warns=self.warns)
        blob = (yield from save(Save(output.text.encode("utf-8", "surrogatepass")))) if body.cut else ""
        return ToolResult(call_id, (Text(with_header(output, body.text, status)),), blob=blob)


@dataclass(frozen=True, slots=True)
class OpencodeLimiter:
    """OpenCode's limiter: cuts a result above a number of lines or bytes; with `shell_tail` shell output keeps its end, not its start."""

    lines: int = OPENCODE_LINES
    size: int = OPENCODE_BYTES
    shell_tail: bool = False
    names_file: ClassVar = True

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """Return the result to record."""
        result = returned.result
        text = text_of_parts(result)
        tail = self.shell_tail and tool_operation(returned.tool) == "command"
        bounded = truncate_lines(text, self.lines, self.size, "tail" if tail else "head")
        if not bounded.cut:
            return returned
        data = text.encode("utf-8", "surrogatepass")
        try:
            address = yield from save(Save(data))
            path = yield from save(Save(data, f"tool_{result.call_id}"))
        except PalimpsestError:
            return returned
        notice = f"...{bounded.cut} {bounded.unit} truncated...\nFull output saved to: {path}\nSearch it, or read it with an offset."
        shown = f"{notice}\n\n{bounded.text}" if tail else f"{bounded.text}\n\n{notice}"
        return with_text(returned, shown, address)
