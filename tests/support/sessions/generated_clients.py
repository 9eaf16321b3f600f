"""Generated clients in front of the gateway's record of a conversation: its bill after each request against that of a cache of its own."""

# No process and no clock: an hour of a session takes seconds. Each scenario is something that clients do besides going on.

import json
from collections.abc import Collection, Iterable, Iterator
from random import Random
from typing import Any, Final, NamedTuple, Self

from pal.gateway.hosting import ConversationHost, Mode
from pal.gateway.routing import conversation_name, fields_of
from pal_lab.bench.live import (
    MarkedCache,
    PrefixCache,
    RecordedRequest,
    chat_body,
    completion_of,
    marked_body,
    output_of,
    rates_of,
    stream_of,
)
from palimpsest.core.items import Value
from palimpsest.stores.home import Home
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import WireName, card

_FILES: Final = 9
_WORDS: Final = (
    *("return", "value", "for", "each", "part", "in", "list", "of", "names", "with", "check"),
    *("that", "follows", "and", "prints", "total", "count", "before", "next"),
)
_LIVE_S: Final = 300.0


class ClientRequest(NamedTuple):
    """A request with its reply and the pause before it, and its body."""

    made: RecordedRequest
    body: dict[str, Any]


class Worst(Value, frozen=True):
    """The largest of some values, and the number of the request after which it was that."""

    value: float = 0.0
    at: int = 0

    def then(self, value: float, at: int) -> Self:
        """Return the larger one of this and another value."""
        return type(self)(value, at) if value > self.value else self


class GeneratedRow(Value, frozen=True):
    """One client: the true bills in dollars, and after any request the worst ratio of both and the largest share that was said wrongly."""

    client: str
    model: str
    mode: str
    requests: int
    usd: float
    usd_direct: float
    worst: Worst
    error: Worst
    edited: int


class _Client:
    """A client and its list; `step` makes the next request."""

    def __init__(self, scenario: str, seed: int) -> None:
        self.scenario = scenario
        self.random = Random(f"{scenario} {seed}")
        self.number = 0
        self.servers: list[list[dict[str, Any]]] = []
        self.note = "The branch is main."
        self.messages: list[dict[str, Any]] = [self._said()]
        self.branches: list[list[dict[str, Any]]] = []
        self.current = 0

    def _text(self, lines: int) -> str:
        random = self.random
        return "\n".join(f"{random.randrange(9_999)}: {' '.join(random.choices(_WORDS, k=random.randint(3, 12)))}" for _ in range(lines))

    def _said(self) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "text", "text": f"Task {self.number}. {self._text(self.random.randint(1, 20))}"}]}

    def _reply(self) -> list[dict[str, Any]]:
        """A text, or calls: files that are read again and again, and commands whose output is dead soon."""
        random = self.random
        reply: list[dict[str, Any]] = [{"type": "text", "text": self._text(random.randint(1, 4))}]
        if random.random() < 0.1:
            return reply
        for index in range(random.choices((1, 2, 4), (8, 2, 1))[0]):
            path = f"src/m{random.randrange(_FILES)}.py"
            name, words = random.choice((("Bash", {"command": f"pytest -k {self.number}_{index}"}), ("Read", {"file_path": path})))
            reply.append({"type": "tool_use", "id": f"toolu_{self.number}_{index}", "name": name, "input": words})
        return reply

    def _result(self, call: dict[str, Any]) -> dict[str, Any]:
        lines = self.random.choices((5, 60, 200, 600), (6, 6, 4, 1))[0]
        return {"type": "tool_result", "tool_use_id": call["id"], "content": self._text(lines)}

    def step(self) -> RecordedRequest:
        """Make the next request with its reply; afterwards the list goes on from it, or as the scenario says."""
        self.number += 1
        reply = self._reply()
        made = RecordedRequest(list(self.messages), reply, self._pause())
        calls = [block for block in reply if block["type"] == "tool_use"]
        following = {"role": "user", "content": [self._result(call) for call in calls]} if calls else self._said()
        self.messages = [*self.messages, {"role": "assistant", "content": reply}, following]
        self._turn()
        return made

    def _pause(self) -> float:
        random = self.random
        if self.scenario == "pingpong" and random.random() < 0.05:
            return random.choice((200.0, _LIVE_S + 20, 1_500.0))
        if self.scenario in ("pauses", "ttl1h") and random.random() < 0.12:
            return random.choice((_LIVE_S + 20, 1_500.0, 4_000.0))
        return random.uniform(3, 60)

    def _turn(self) -> None:
        random, messages = self.random, self.messages
        if self.scenario.startswith("rewind") and self.number > 3 and random.random() < (0.15 if self.scenario == "rewind" else 0.5):
            kept = max(1, len(messages) - 2 * random.randint(1, 8 if self.scenario == "rewind" else 3) - 1)
            self.messages = [*messages[: kept - kept % 2], self._said()]
        elif self.scenario == "fork" and self.number > 5 and random.random() < 0.15:
            self.branches.append(messages)
            kept = max(1, len(messages) - 2 * random.randint(1, 8) - 1)
            forked = [*messages[: kept - kept % 2], self._said()]
            self.messages = self.branches.pop(0) if len(self.branches) > 1 and random.random() < 0.5 else forked
        elif self.scenario == "pingpong":
            self._change_branch()
        elif self.scenario.startswith("tools") and random.random() < (0.15 if self.scenario == "tools_change" else 0.6):
            self._change_tools()
        elif self.scenario.startswith("system") and random.random() < (0.2 if self.scenario == "system_changes" else 0.8):
            self.note = self._text(random.randint(1, 60))

    def _change_branch(self) -> None:
        """Up to four long lists are gone on with in turn."""
        random, lists = self.random, self.branches
        lists[self.current : self.current + 1] = [self.messages]
        if self.number > 10 and len(lists) < 4 and random.random() < 0.2:
            kept = max(1, len(self.messages) - 2 * random.randint(1, 12) - 1)
            lists.append([*self.messages[: kept - kept % 2], self._said()])
            self.current = len(lists) - 1
        elif len(lists) > 1 and random.random() < 0.6:
            self.current = random.randrange(len(lists))
        self.messages = lists[self.current]

    def _change_tools(self) -> None:
        """Servers of tools come and go: their tools stand behind, before or among the others."""
        random = self.random
        if self.servers and random.random() < 0.5:
            self.servers.pop(random.randrange(len(self.servers)))
            return
        names = {f"p{random.randrange(999)}": {"type": "string", "enum": ["ä{}", "x/y"]} for _ in range(random.randint(0, 9))}
        server = [
            {
                "name": f"mcp__{random.randrange(99)}__{number}",
                "description": self._text(random.randint(1, 8)),
                "input_schema": {"type": "object", "properties": names, "required": [*names][:2]},
            }
            for number in range(random.randint(1, 25))
        ]
        self.servers.insert(random.randint(0, len(self.servers)), server)

    def body(self, made: RecordedRequest, model: str) -> dict[str, Any]:
        """Return a request as bytes of either wire have it."""
        marked = card(model).cache == "breakpoints"
        body = marked_body(made, model, self.number) if marked else chat_body(made, model)
        if self.scenario.startswith("tools"):
            added = [tool if marked else {"type": "function", "function": tool} for server in self.servers for tool in server]
            body["tools"] = [*added, *body["tools"]] if self.scenario == "tools_first" else [*body["tools"], *added]
        if self.scenario.startswith("system"):
            if marked:
                body["system"].insert(2, {"type": "text", "text": self.note})
            else:
                body["messages"].insert(1, {"role": "system", "content": self.note})
        if self.scenario == "ttl1h" and marked:
            body = json.loads(json.dumps(body).replace('{"type": "ephemeral"}', '{"type": "ephemeral", "ttl": "1h"}'))
        if self.scenario == "strings" and marked:
            last = body["messages"][-1]
            body["messages"] = [*map(_as_string, body["messages"][:-1]), last]
        return body


def _as_string(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    return {**message, "content": content[0]["text"]} if len(content) == 1 and content[0]["type"] == "text" else message


SCENARIOS: Final = (
    "plain",
    "rewind",
    "rewinds",
    "fork",
    "pingpong",
    "pauses",
    "ttl1h",
    "strings",
    "tools_change",
    "tools_often",
    "tools_first",
    "system_changes",
    "system_often",
)


def generated_row(scenario: str, model: str, mode: Mode, seed: int, requests: int = 60, **options: Any) -> GeneratedRow:
    """Send the requests of a generated client through the record of a gateway."""
    client = _Client(scenario, seed)

    def sent() -> Iterator[ClientRequest]:
        for _ in range(requests):
            made = client.step()
            yield ClientRequest(made, client.body(made, model))

    return row_of(f"{scenario} {seed}", model, mode, sent(), **options)


def row_of(
    client: str,
    model: str,
    mode: Mode,
    requests: Iterable[ClientRequest],
    *,
    writes: bool = False,
    begins: int = 1,
    restarts: Collection[int] = (),
) -> GeneratedRow:
    """Send requests through the record of a gateway, and compare its bills with those of caches of their own after each of them.

    `writes` says whether an automatic cache reports what enters it. Requests before number `begins` were sent without a gateway, and
    before those of `restarts` it is started again.
    """
    marked, clock = card(model).cache == "breakpoints", FixedClock(1_700_000_000_000)
    home = Home.in_memory(clock)
    wire: WireName = "anthropic" if marked else "chat"
    host, rates = ConversationHost(home, mode), rates_of(model)
    own, direct = (MarkedCache(), MarkedCache()) if marked else (PrefixCache(writes=writes), PrefixCache(writes=writes))
    said: dict[str, tuple[float, float]] = {}
    worst, error = Worst(), Worst()
    paid = without = 0.0
    edited = number = 0
    for number, (made, body) in enumerate(requests, 1):
        clock.time += round(made.pause * 1_000)
        if number < begins:
            own.bill(body, clock.time / 1_000)
            direct.bill(body, clock.time / 1_000)
            continue
        raw = json.dumps(body).encode()
        name = conversation_name(wire, {"x-claude-code-session-id": client, "session-id": client}, fields_of(raw) or {})
        if number in restarts:
            host.close(name.session)
            host = ConversationHost(home, mode)
        host.follow(name, "", wire, model, raw)
        planned = host.plan(name.session, float("inf"))
        edited += planned.is_edited
        now, output = clock.time / 1_000, output_of(made.reply)
        tokens = own.bill(body if planned.body is None else json.loads(planned.body), now)._replace(output=output)
        paid += rates.dollars(tokens)
        without += rates.dollars(direct.bill(body, now)._replace(output=output))
        reply = stream_of(made.reply, tokens, number) if marked else completion_of(made.reply, tokens, number)
        found = host.observe(name.session, reply, "text/event-stream" if marked else "application/json", "planned")
        said[found.session] = found.bill.usd or 0.0, found.bill.usd_without or 0.0
        usd, usd_without = (sum(part) for part in zip(*said.values(), strict=True))
        worst = worst.then(paid / without, number)
        error = error.then(max(abs(usd / paid - 1), abs(usd_without / without - 1)), number)
    return GeneratedRow(client, model, mode, number, paid, without, worst, error, edited)
