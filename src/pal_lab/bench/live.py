"""Recorded sessions through the real gateway, against a provider on the loopback that bills by its own cache."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from palimpsest.core.errors import StoreError
from palimpsest.core.items import Value
from palimpsest.wire.models import LongPrices, Prices, card

_MINUTES_5: Final = 300.0
_HOUR: Final = 3_600.0
_IDLE: Final = 600.0
_BACK: Final = 20
_STEP: Final = 128
_MINIMUM: Final = 1_024
# A line that Claude Code writes in front of its system prompt, with a checksum that is new in each request; the API takes it out.
_BILLING: Final = "x-anthropic-billing-header:"
_words: Final = re.compile(r"[A-Za-z]{1,5}|\d{1,3}|[^\sA-Za-z\d]|\s+").findall


class BilledTokens(NamedTuple):
    """The tokens of one call as a provider reports them."""

    input: int = 0
    read: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0


class PriceList(NamedTuple):
    """Dollars for a million of each of `BilledTokens`, and those of a call whose prompt has more than `above` tokens."""

    listed: Sequence[float]
    above: float
    long: Sequence[float]

    def dollars(self, tokens: BilledTokens) -> float:
        """Return what a call costs."""
        rates = self.long if sum(tokens) - tokens.output > self.above else self.listed
        return sum(count * rate for count, rate in zip(tokens, rates, strict=True)) / 1e6


_token_counts: dict[str, int] = {}


def tokens_of(text: str) -> int:
    """Count the tokens of a text in the way of a tokenizer with short words."""
    known = _token_counts.get(text)
    if known is None:
        known = _token_counts[text] = len(_words(text)) + 3
    return known


class _CountedBlock(NamedTuple):
    text: str
    mark: str


def _blocks(request: dict[str, Any]) -> Iterator[_CountedBlock]:
    for tool in request.get("tools") or ():
        yield _block("tool", tool)
    system = request.get("system") or []
    for part in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        if not part["text"].startswith(_BILLING):
            yield _block("system", part)
    for message in request["messages"]:
        content = message.get("content")
        # In messages with calls of Chat Completions there is more than a content.
        if message.keys() - {"role", "content"}:
            yield _block(message["role"], message)
            continue
        # A text alone stands for one block with that text.
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield _block(message["role"], part)


def _block(role: str, part: dict[str, Any]) -> _CountedBlock:
    mark = part.get("cache_control")
    text = json.dumps({key: value for key, value in part.items() if key != "cache_control"}, sort_keys=True, ensure_ascii=False)
    return _CountedBlock(f"{role} {text}", "" if mark is None else mark.get("ttl", "5m"))


class MarkedCache:
    """A cache that is filled where a request has marks, and read where an entry ends at most 20 blocks before one."""

    def __init__(self) -> None:
        # By the digest of all up to its end: until when an entry lives, and for how long after each use.
        self._entries: dict[bytes, tuple[float, float]] = {}

    def bill(self, request: dict[str, Any], now: float) -> BilledTokens:
        """Bill a request at a time in seconds, and fill the cache with it."""
        ends, sums, marks = [], [], []
        digest, total = b"", 0
        for place, block in enumerate(_blocks(request)):
            digest = sha256(digest + block.text.encode(errors="replace")).digest()
            total += tokens_of(block.text)
            ends.append(digest)
            sums.append(total)
            if block.mark:
                marks.append((place, _HOUR if block.mark == "1h" else _MINUTES_5))
        if len(marks) > 4:
            raise ValueError("a request has more than 4 marks")
        marks = [(place, life) for place, life in marks if sums[place] >= _MINIMUM]
        live = {place for place, end in enumerate(ends) if end in self._entries and self._entries[end][0] > now}
        hit = max((at for place, _ in marks for at in range(max(0, place - _BACK + 1), place + 1) if at in live), default=-1)
        for place in live:
            if place <= hit:
                life = self._entries[ends[place]][1]
                self._entries[ends[place]] = (now + life, life)
        for place, life in marks:
            if place > hit or place not in live:
                self._entries[ends[place]] = (now + life, life)
        read = sums[hit] if hit >= 0 else 0
        until_long = max((sums[place] for place, life in marks if life == _HOUR), default=0)
        until = max((sums[place] for place, _ in marks), default=0)
        long = max(0, until_long - read)
        short = max(0, until - max(read, until_long))
        return BilledTokens(total - read - long - short, read, short, long)


class PrefixCache:
    """A cache of whole prompts, of which the longest common beginning is read in steps; what is not read is input, or `writes` count."""

    def __init__(self, *, writes: bool = False) -> None:
        self._writes = writes
        self._prompts: list[tuple[list[str], float]] = []

    def bill(self, request: dict[str, Any], now: float) -> BilledTokens:
        """Bill a request at a time in seconds, and fill the cache with it."""
        texts = [block.text for block in _blocks(request)]
        sizes = [tokens_of(text) for text in texts]
        read = 0
        for known, used in self._prompts:
            if now - used < _IDLE:
                common = next(
                    (at for at, (one, other) in enumerate(zip(known, texts, strict=False)) if one != other), min(len(known), len(texts))
                )
                read = max(read, sum(sizes[:common]) // _STEP * _STEP)
        read = read if read >= _MINIMUM else 0
        # A prompt that goes on from another one holds all of it.
        others = [(known, used) for known, used in self._prompts if now - used < _IDLE and known != texts[: len(known)]]
        self._prompts = [*others, (texts, now)]
        steps = sum(sizes) // _STEP * _STEP
        written = max(0, steps - read) if self._writes and steps >= _MINIMUM else 0
        return BilledTokens(sum(sizes) - read - written, read, written)


class HonestProvider:
    """Answers on a port of the loopback. `reply` is the next answer and `now` the time in seconds; `billed` are its bills so far."""

    def __init__(self, *, marked: bool, writes: bool = False) -> None:
        self.reply: list[dict[str, Any]] = []
        self.now = 0.0
        self.billed: list[BilledTokens] = []
        self.bodies: list[dict[str, Any]] = []
        self._cache = MarkedCache() if marked else PrefixCache(writes=writes)
        provider = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = provider.answered(body)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if body.get("stream") else "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class has
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answered(self, body: dict[str, Any]) -> bytes:
        """Bill a request and return the bytes of its reply."""
        tokens = self._cache.bill(body, self.now)._replace(output=output_of(self.reply))
        self.billed.append(tokens)
        self.bodies.append(body)
        return (
            stream_of(self.reply, tokens, len(self.billed)) if body.get("stream") else completion_of(self.reply, tokens, len(self.billed))
        )

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


def output_of(reply: list[dict[str, Any]]) -> int:
    """Return the tokens of a reply."""
    return sum(tokens_of(json.dumps(block)) for block in reply)


def stream_of(reply: list[dict[str, Any]], tokens: BilledTokens, number: int) -> bytes:
    """Return a reply as the events of Anthropic Messages, with its usage."""
    created = {"ephemeral_5m_input_tokens": tokens.written, "ephemeral_1h_input_tokens": tokens.written_long}
    usage = {
        "input_tokens": tokens.input,
        "cache_read_input_tokens": tokens.read,
        "cache_creation_input_tokens": tokens.written + tokens.written_long,
        "cache_creation": created,
        "output_tokens": 1,
    }
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(reply):
        if block["type"] == "tool_use":
            opened = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block.get("input", {}))}
        else:
            opened, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    stop = "tool_use" if any(block["type"] == "tool_use" for block in reply) else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": tokens.output}})
    events.append({"type": "message_stop"})
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def completion_of(reply: list[dict[str, Any]], tokens: BilledTokens, number: int) -> bytes:
    """Return a reply as a completion, with its usage."""
    words = "".join(block["text"] for block in reply if block["type"] == "text")
    calls = [
        {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": json.dumps(block.get("input", {}))}}
        for block in reply
        if block["type"] == "tool_use"
    ]
    message = {"role": "assistant", "content": words or None, **({"tool_calls": calls} if calls else {})}
    prompt = tokens.input + tokens.read + tokens.written
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": tokens.output,
        "total_tokens": prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.read, "cache_write_tokens": tokens.written},
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return json.dumps({"id": f"c{number}", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}).encode()


_MARK: Final = {"cache_control": {"type": "ephemeral"}}
_INSTRUCTIONS: Final = "Work carefully, read before you write, and run the tests after each change of the code. " * 120
_TOOLS: Final = [
    {"name": name, "description": f"{name} does what its name says. " * 25, "input_schema": {"type": "object", "properties": {}}}
    for name in ("Bash", "Read", "Edit", "Write", "Grep", "Glob", "Task", "WebFetch", "TodoWrite")
]


class RecordedRequest(NamedTuple):
    """The messages of a request, the reply to it, and the seconds since the request before."""

    messages: list[dict[str, Any]]
    reply: list[dict[str, Any]]
    pause: float


def recorded_requests(path: Path) -> Iterator[RecordedRequest]:
    """Yield the requests of the main conversation of a transcript; where the program compacted, the list begins again."""
    messages: list[dict[str, Any]] = []
    asked: set[str] = set()
    last = 0.0
    for message, at, begins in _messages(path):
        if begins:
            messages, asked = [], set()
        content = [block for block in message["content"] if _is_sent(block, asked)]
        if not content:
            continue
        if message["role"] == "assistant":
            if not messages or messages[-1]["role"] != "user":
                continue
            yield RecordedRequest(list(messages), content, max(0.0, at - last) if last else 0.0)
            last = at
            asked = {block["id"] for block in content if block["type"] == "tool_use"}
            messages.append({"role": "assistant", "content": content})
        elif messages and messages[-1]["role"] == "user":
            messages[-1] = {"role": "user", "content": [*messages[-1]["content"], *content]}
        else:
            answered = {block["tool_use_id"] for block in content if block["type"] == "tool_result"}
            missing = [{"type": "tool_result", "tool_use_id": name, "content": "interrupted"} for name in sorted(asked - answered)]
            messages.append({"role": "user", "content": [*missing, *content]})


def _is_sent(block: dict[str, Any], asked: set[str]) -> bool:
    kind = block.get("type")
    return (
        (kind == "text" and bool(block.get("text"))) or kind == "tool_use" or (kind == "tool_result" and block.get("tool_use_id") in asked)
    )


def _messages(path: Path) -> Iterator[tuple[dict[str, Any], float, bool]]:
    """The messages of a transcript: the lines of one reply are one message. Also the time in seconds, and whether a list begins with it."""
    waiting: tuple[dict[str, Any], float, bool] | None = None
    seen = ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        record = _record(line)
        message = record.get("message")
        if record.get("type") not in ("user", "assistant") or record.get("isSidechain") or not isinstance(message, dict):
            continue
        content = message.get("content")
        blocks = (
            [{"type": "text", "text": content}] if isinstance(content, str) else [each for each in content or () if isinstance(each, dict)]
        )
        name = str(message.get("id") or record.get("uuid"))
        if waiting is not None and name == seen and record["type"] == "assistant":
            waiting[0]["content"] += blocks
            continue
        if waiting is not None:
            yield waiting
        seen = name
        waiting = {"role": record["type"], "content": blocks}, _seconds(record), bool(record.get("isCompactSummary"))
    if waiting is not None:
        yield waiting


def _record(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(record: dict[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(record.get("timestamp"))).timestamp()
    except ValueError:
        return 0.0


def marked_body(request: RecordedRequest, model: str, number: int) -> dict[str, Any]:
    """Return a request of Anthropic Messages as Claude Code marks it; its first line is another one in each request."""
    *before, last = request.messages
    content = last["content"]
    system = [
        {
            "type": "text",
            "text": f"x-anthropic-billing-header: cc_version=2.1.325.185; cc_entrypoint=cli; cch={number * 7919 % 99991:05x};",
        },
        {"type": "text", "text": "You are a coding agent.", **_MARK},
        {"type": "text", "text": _INSTRUCTIONS, **_MARK},
    ]
    messages = [*before, {**last, "content": [*content[:-1], {**content[-1], **_MARK}]}]
    return {"model": model, "max_tokens": 8_000, "stream": True, "system": system, "tools": _TOOLS, "messages": messages}


def chat_body(request: RecordedRequest, model: str) -> dict[str, Any]:
    """Return the same request for Chat Completions, with an automatic cache."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": _INSTRUCTIONS}]
    for message in request.messages:
        words = "".join(block["text"] for block in message["content"] if block["type"] == "text")
        calls = [_call(block) for block in message["content"] if block["type"] == "tool_use"]
        messages += [
            {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _plain(block.get("content"))}
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        if words or calls:
            messages.append({"role": message["role"], "content": words or None, **({"tool_calls": calls} if calls else {})})
    tools = [{"type": "function", "function": {"name": tool["name"], "description": tool["description"]}} for tool in _TOOLS]
    return {"model": model, "messages": messages, "tools": tools, "stream": False}


def _call(block: dict[str, Any]) -> dict[str, Any]:
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": json.dumps(block.get("input", {}))}}


def _plain(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
    return str(content or "")


MOST_RATIO: Final = 1.01
"""The bill may be so many times that of the same requests sent directly, after any of them."""
MOST_ERROR: Final = 0.01
"""What the gateway says of either bill may be off by this share."""
MODELS: Final = ("claude-sonnet-4-5", "gpt-5.5")
MODES: Final = ("lossless", "palimpsest", "thrifty")
_LEAST_REQUESTS: Final = 5
_SECONDS: Final = 120.0


class LiveRow(Value, frozen=True):
    """One session in one mode: the true bills in dollars, the worst ratio of both after any request, and how wrong the gateway was at most.

    `error` is the largest share by which what it said of the second bill was off, after any request; `edited` requests were changed.
    """

    session: str
    mode: str
    model: str
    requests: int
    usd: float
    usd_direct: float
    worst: float
    worst_at: int
    error: float
    error_at: int
    edited: int
    ok: bool


def live_rows(
    files: Iterable[Path],
    folder: Path,
    command: Sequence[str],
    *,
    modes: Sequence[str] = MODES,
    models: Sequence[str] = MODELS,
    load: int = 0,
    most: int | None = None,
    announce: Callable[[str], None] = lambda _text: None,
) -> Iterator[LiveRow]:
    """Send the first `most` requests of each session through a gateway of each mode, while `load` other processes keep the machine busy."""
    with _busy(load):
        for path in files:
            requests = list(islice(recorded_requests(path), most))
            if len(requests) < _LEAST_REQUESTS:
                continue
            for mode in modes:
                for model in models:
                    announce(f"{path.stem}: {len(requests)} requests, {mode}, {model}")
                    yield _row(path.stem, requests, folder / f"{path.stem}-{mode}-{model}", command, mode=mode, model=model)


def transcripts(folder: Path) -> list[Path]:
    """Return the transcripts of Claude Code below a folder, without those of sub-agents."""
    return sorted(path for path in folder.rglob("*.jsonl") if "subagents" not in path.parts and _is_transcript(path))


def _is_transcript(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as lines:
        return any('"message":' in line and '"isSidechain":' in line for line in islice(lines, 50))


def _row(name: str, requests: Sequence[RecordedRequest], home: Path, command: Sequence[str], *, mode: str, model: str) -> LiveRow:
    marked = card(model).cache == "breakpoints"
    rates, writes = rates_of(model), card(model).prices.cache_write is not None
    provider, direct = HonestProvider(marked=marked, writes=writes), MarkedCache() if marked else PrefixCache(writes=writes)
    path = "/v1/messages" if marked else "/v1/chat/completions"
    headers = {"anthropic-version": "2023-06-01", "x-claude-code-session-id": name} if marked else {"session-id": name}
    paid = without = worst = error = 0.0
    worst_at = error_at = edited = 0
    with gateway_process(command, mode, home, provider.url) as (url, reports), httpx.Client(trust_env=False, timeout=_SECONDS) as client:
        for number, request in enumerate(requests, 1):
            provider.now += request.pause
            provider.reply = request.reply
            body = marked_body(request, model, number) if marked else chat_body(request, model)
            client.post(url + path, json=body, headers=headers).raise_for_status()
            said = json.loads(reports())
            given = direct.bill(body, provider.now)._replace(output=output_of(request.reply))
            edited += provider.bodies.pop() != body
            paid += rates.dollars(provider.billed[-1])
            without += rates.dollars(given)
            if paid / without > worst:
                worst, worst_at = paid / without, number
            off = max(abs(said["usd"] / paid - 1), abs(said["usd_without"] / without - 1))
            if off > error:
                error, error_at = off, number
    provider.close()
    ok = worst <= MOST_RATIO and error <= MOST_ERROR
    return LiveRow(name, mode, model, len(requests), paid, without, worst, worst_at, error, error_at, edited, ok)


def rates_of(model: str) -> PriceList:
    """Return the prices of a model; what a cache has no price of its own for is input."""
    prices = card(model).prices
    listed = _rates(prices)
    return PriceList(listed, inf, listed) if prices.long is None else PriceList(listed, prices.long.above, _rates(prices.long))


def _rates(prices: Prices | LongPrices) -> tuple[float, ...]:
    write = prices.input if prices.cache_write is None else prices.cache_write
    read = prices.input if prices.cache_read is None else prices.cache_read
    return prices.input, read, write, write if prices.cache_write_long is None else prices.cache_write_long, prices.output


@contextmanager
def gateway_process(
    command: Sequence[str], mode: str, home: Path, upstream: str, *options: str
) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """A gateway while it runs: its address, and a function that returns its next report."""
    read, write = os.pipe()
    process = subprocess.Popen(  # noqa: S603 - measured
        (
            *command,
            "gateway",
            "--mode",
            mode,
            "--port",
            "0",
            "--anthropic",
            upstream,
            "--openai",
            upstream,
            "--wrapped",
            str(write),
            "--json-stream",
            *options,
        ),
        env={**os.environ, "PAL_HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(write,),
    )
    os.close(write)
    try:
        with os.fdopen(read, "rb") as told:
            url = told.readline().decode().strip()
            if not url or process.stdout is None:
                raise StoreError("the gateway did not start", where="pal bench")
            yield url, process.stdout.readline
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Other processes that do nothing but take processor time, each until its standard input ends."""
    code = "import sys, threading; threading.Thread(target=lambda: (sys.stdin.read(), __import__('os')._exit(0))).start()\nwhile True: pass"
    processes = [subprocess.Popen((sys.executable, "-c", code), stdin=subprocess.PIPE) for _ in range(count)]  # noqa: S603 - this program itself
    try:
        yield
    finally:
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()
            process.wait(_SECONDS)
