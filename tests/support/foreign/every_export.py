"""Exports sessions to Claude Code and Codex, reads the files back and says where a model is shown something else; run as a program."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from corpus import CORPUS
from msgspec import Struct, structs
from readings import Home

from palimpsest.agent.calls import compact
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.core.events import UserTyped
from palimpsest.core.items import Cover, Item, ToolCall, ToolResult, text_of
from palimpsest.core.log import Log
from palimpsest.core.plans import complete
from palimpsest.core.view import View
from palimpsest.exchange.claude.events import CLEARED
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.exchange.claude.writer import claude_session, write_claude
from palimpsest.exchange.codex.reader import CodexFormat
from palimpsest.exchange.codex.writer import write_codex
from palimpsest.exchange.finding import find_sources
from palimpsest.exchange.formats import FORMATS, format_named
from palimpsest.exchange.importing import import_session
from palimpsest.exchange.opencode.reader import OpencodeFormat
from palimpsest.exchange.opencode.writer import write_opencode
from palimpsest.exchange.transcript import Format, TranscriptSource, paired_items, wire_of
from palimpsest.policies.named import profile
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, recorded_card
from palimpsest.wire.repair import valid_call_id
from palimpsest.wire.request import Params, Request

Target = Literal["claude", "codex", "opencode"]
TARGETS: tuple[Target, ...] = ("claude", "codex", "opencode")
_USUAL = {"anthropic": "claude-sonnet-4-5", "responses": "gpt-5.5"}
_WIRES = {"claude": "anthropic", "codex": "responses", "opencode": "anthropic"}
# Cache breakpoints belong to a request and not to a session.
_PARAMS = Params(breakpoint_rule="none")
_CALLS = {"tool_use", "function_call", "custom_tool_call", "local_shell_call", "tool_search_call"}
_RESULTS = {"tool_result", "function_call_output", "custom_tool_call_output", "tool_search_output"}
_AT = 1_800_000_000_000
_SHOWN = 12


class Trip(Struct, frozen=True):
    """A session on its way to another program and back: whether it was folded before, and where the two requests differ."""

    session: str
    target: Target
    folded: bool
    items: int
    differences: tuple[str, ...]


def sessions_below(path: Path) -> list[TranscriptSource]:
    """The sessions at a path, without those of sub-agents: no program goes on from them."""
    return [source for source in find_sources(FORMATS, [path]).sources if not source.parent]


def trips(source: TranscriptSource) -> Iterator[Trip]:
    """Every way of a session: to each program, as it is and folded without a model, if there is anything to fold."""
    home = Home()
    done = import_session(format_named(source.format), source, home.store, home.blobs, FixedClock(_AT))
    with Log.open(home.store, done.session, FixedClock(_AT), write=True) as log:
        yield from (_trip(log, home, target, folded=False) for target in TARGETS)
        if _fold(log, home):
            yield from (_trip(log, home, target, folded=True) for target in TARGETS)


def _fold(log: Log, home: Home) -> bool:
    """Fold as `pal compact --no-model` does; whether there was anything to fold."""
    environment = Environment(home.store, home.blobs, FixedClock(_AT, 1_000), offload=inline)
    session = Session(log, profile("palimpsest", {}), recorded_card(log.view.model or _USUAL["anthropic"]), environment)
    return bool(complete(compact(session)).edited)


def _trip(log: Log, home: Home, target: Target, *, folded: bool) -> Trip:
    ours, theirs = there_and_back(log, home, target)
    return Trip(log.session, target, folded, len(ours), tuple(differences(ours, theirs)))


def there_and_back(log: Log, home: Home, target: Target) -> tuple[list[Any], list[Any]]:
    """What a model is shown of a session, and of the file that was made of it: the same, but for what the rules below say."""
    model = _model(log.view.model, target)
    ours = request_of(_cleared(log.view) if target == "claude" else log.view, model, home)
    theirs = _read_back(log, home, target, model)
    unanswered = frozenset(touch.call_id for touch in ours.repairs if touch.case.startswith("open_"))
    blocks = shown(ours)
    if target == "opencode":
        # The output of a tool is one text there, and a prompt that waits here is the next message.
        blocks = [_joined(block) for block in blocks]
        queued = [body for seq in log.inbox if isinstance(body := log.event(seq).body, UserTyped)]
        blocks += [{"role": "user", "type": "text", "text": text_of(part)} for body in queued for part in body.parts]
    theirs = renamed(theirs, blocks, _repeated(log))
    return list(_without_answers(blocks, unanswered)), list(_without_answers(theirs, unanswered))


def _cleared(view: View) -> View:
    """Claude Code notes of a masked result only that it was cleared, and shows a text of its own in its place."""
    return structs.replace(view, items=tuple(map(_as_cleared, view.items)))


def _as_cleared(item: Item) -> Item:
    if not isinstance(item.content, ToolResult) or item.mask is None or not item.mask.text:
        return item
    return structs.replace(item, mask=Cover(CLEARED))


def _joined(block: Any) -> Any:
    parts = block.get("content") if block.get("type") == "tool_result" else None
    if not isinstance(parts, list):
        return block
    texts = "\n".join(part["text"] for part in parts if part["type"] == "text")
    rest = [part for part in parts if part["type"] != "text"]
    return {**block, "content": [*([{"type": "text", "text": texts}] if texts else []), *rest] if rest else texts}


def _without_answers(blocks: Sequence[Any], calls: frozenset[str]) -> Iterator[Any]:
    """A call that nothing answers gets an answer where it must have one: from the wire in each request, and once in Claude Code's file."""
    for block in blocks:
        is_result = block.get("type") in _RESULTS
        if not (is_result and (block.get("tool_use_id") or block.get("call_id")) in calls):
            yield block


def _repeated(log: Log) -> frozenset[str]:
    """The ids of calls that are recorded under another one than they came with."""
    halves = paired_items(log.reader.run(log.reader.first, log.tip))
    calls = [item.content for item in halves if isinstance(item.content, ToolCall) and item.content.given]
    return frozenset(valid_call_id(name, "claude") for call in calls for name in (call.given, call.call_id))


def renamed(theirs: Sequence[Any], ours: Sequence[Any], repeated: frozenset[str]) -> list[Any]:
    """Blocks with the ids of ours in place of theirs, where an id repeats: in a file it may occur once, and in each request once."""
    one, two = ([_id(block) for block in blocks if block.get("type") in _CALLS] for blocks in (ours, theirs))
    names = {there: here for here, there in zip(one, two, strict=False) if here in repeated}
    keys = ("id", "call_id", "tool_use_id")
    return [{**each, **{key: names.get(each[key], each[key]) for key in keys if key in each}} for each in theirs]


def _id(block: Any) -> str:
    return str(block.get("call_id") or block.get("id"))


def _model(name: str, target: Target) -> ModelCard:
    """The model of the session if the program can ask it, so that what it sealed is compared too."""
    wire = _WIRES[target]
    found = recorded_card(name) if wire_of(name) == wire else None
    return found if found is not None and found.wire == wire else recorded_card(_USUAL[wire])


def _read_back(log: Log, home: Home, target: Target, model: ModelCard) -> list[Any]:
    names: dict[Target, str] = {"claude": f"{claude_session(log)}.jsonl", "codex": "rollout-written.jsonl", "opencode": "export.json"}
    forms: dict[Target, Format] = {"claude": ClaudeFormat(), "codex": CodexFormat(), "opencode": OpencodeFormat()}
    write = {"claude": write_claude, "codex": write_codex, "opencode": write_opencode}[target]
    lines = list(write(log, home.blobs))
    if b'"history_base"' in lines[0]:
        # It goes on from another rollout, which is not there.
        lines = list(write_codex(log, home.blobs, alone=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, Path(names[target]).name)
        path.write_bytes(b"".join(lines))
        # A file that was written a moment ago is taken to grow.
        os.utime(path, (1, 1))
        other = Home()
        done = other.take(forms[target], path)[0]
    if done.problems:
        return [f"not read: {each.where}: {each.why}" for each in done.problems]
    with Log.open(other.store, done.session, FixedClock(_AT)) as back:
        return shown(request_of(back.view, model, other))


def request_of(view: View, model: ModelCard, home: Home) -> Request:
    """The request that shows a view; a file of Claude Code has no system messages, so that statements are framed."""
    spoken = structs.replace(model, system_messages=False) if model.wire == "anthropic" else model
    return encode(view, spoken, (), _PARAMS, home.blobs.get)


def shown(request: Request) -> list[Any]:
    """What a model is shown by a request, parsed and in order."""
    body = msgspec.json.decode(request.body)
    if request.wire == "responses":
        return list(body["input"])
    return [{"role": message["role"], **block} for message in body["messages"] for block in message["content"]]


def differences(ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[str]:
    """Where two requests differ, one line a place; nothing if they say the same."""
    if list(ours) == list(theirs):
        return
    for place in range(max(len(ours), len(theirs))):
        one = ours[place] if place < len(ours) else None
        two = theirs[place] if place < len(theirs) else None
        if one != two:
            yield f"{place}: {_short(one)} became {_short(two)}"


def _short(value: object) -> str:
    return msgspec.json.encode(value).decode()[:160]


def main(words: Sequence[str]) -> int:
    """Send the sessions below some paths, or the whole corpus, there and back."""
    began = time.monotonic()
    found = [source for path in [Path(word) for word in words] or [CORPUS] for source in sessions_below(path)]
    count = wrong = 0
    for number, source in enumerate(found, 1):
        for trip in trips(source):
            count += 1
            wrong += bool(trip.differences)
            how = f"{'folded' if trip.folded else 'whole'} to {trip.target}"
            print(f"{number}/{len(found)} {trip.session} {how}: {trip.items} items, {len(trip.differences)} differences", flush=True)
            for line in trip.differences[:_SHOWN]:
                print(f"    {line}", flush=True)
    print(f"{len(found)} sessions, {count} exports, {wrong} of them different, {time.monotonic() - began:.0f} seconds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
