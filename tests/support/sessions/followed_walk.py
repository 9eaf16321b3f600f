"""A client with a list of its own, behind a gateway or followed in its process, under random steps; the strict double answers it."""

import json
import random
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from pal.gateway.hosting import ConversationHost
from pal.gateway.routing import ConversationName
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ViewEdited
from palimpsest.core.items import Fold, Mask, Put, Text, Unmask
from palimpsest.follow.conversation import Conversation
from palimpsest.follow.rewinding import SeenReply
from palimpsest.stores.home import FolderHome
from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks
from palimpsest.wire.models import card

Door = Literal["followed", "gateway"]
STUB = "[cleared]"
STEPS = ("mask", "mask", "fold", "undo", "unmask", "rewind", "restart")
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "key"}
SYSTEM = "Be brief."
SCHEMA = {"type": "object", "properties": {}}


class Wire(NamedTuple):
    """How a client of one wire asks: the path, the fields of its requests, and how it writes down a reply and its results."""

    path: str
    field: str
    fields: dict[str, Any]
    headers: dict[str, str]
    said: Callable[[str], list[Any]]
    reply: Callable[[Any], list[Any]]
    results: Callable[[Any, str], list[Any]]


def _results(message: Any, text: str) -> list[Any]:
    used = [block for block in message["content"] if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": each["id"], "content": text} for each in used]
    return [{"role": "user", "content": results}] if results else []


def _outputs(response: Any, text: str) -> list[Any]:
    used = [item for item in response["output"] if item["type"] == "function_call"]
    return [{"type": "function_call_output", "call_id": each["call_id"], "output": text} for each in used]


WIRES = {
    "anthropic": Wire(
        "/v1/messages",
        "messages",
        {"max_tokens": 4_096, "system": SYSTEM, "tools": [{"name": "cat", "description": "Show.", "input_schema": SCHEMA}]},
        HEADERS,
        lambda text: [{"role": "user", "content": [{"type": "text", "text": text}]}],
        lambda message: [{"role": "assistant", "content": message["content"]}],
        _results,
    ),
    "responses": Wire(
        "/v1/responses",
        "input",
        {"instructions": SYSTEM, "store": False, "tools": [{"type": "function", "name": "cat", "parameters": SCHEMA}]},
        {"authorization": "Bearer key"},
        lambda text: [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}],
        lambda response: response["output"],
        _outputs,
    ),
}


class FollowedWalk:
    """The client, its door, and the double. `step` takes one step; one that does not fit is left out."""

    def __init__(self, home: FolderHome, seed: int, door: Door, model: str = "claude-opus-5-5") -> None:
        self.home, self.door, self.model, self.chance = home, door, model, random.Random(seed)
        self.wire_name = card(model).wire
        self.wire = WIRES[self.wire_name]
        self.double = StrictProvider(lambda _: self._reply(), thinks=False)
        self.messages: list[Any] = self.wire.said("Begin.")
        self.replies: dict[str, SeenReply] = {}
        self._open()

    def _open(self) -> None:
        """Open what the door has of the list: each model has a conversation of its own, as for real clients."""
        if self.door == "gateway":
            self.host = ConversationHost(self.home, "palimpsest")
        else:
            name = f"walk-{self.model}"
            self.followed = Conversation.open(name, model=self.model, home=self.home, shape=self.wire_name, replies=self.replies)

    @property
    def name(self) -> ConversationName:
        """The name of the conversation behind a gateway."""
        return ConversationName(f"walk-{self.model}", "client")

    def switch(self, model: str) -> None:
        """Go on with another model."""
        if self.door == "followed":
            self.followed.close()
        self.model = model
        if self.door == "followed":
            self._open()

    @property
    def conversation(self) -> Conversation:
        """The conversation of the list; behind a gateway, after the first request."""
        return self.host._open[self.name.session].recorded.conversation if self.door == "gateway" else self.followed

    def _reply(self) -> list[Any]:
        chance = self.chance
        blocks = [chance.choice((thinks, says))(f"{chance.random()}") for _ in range(chance.randint(1, 4))]
        if chance.random() < 0.7:
            blocks += [calls("cat", path=f"{chance.random()}") for _ in range(chance.randint(1, 2))]
        return blocks if blocks[-1]["type"] != "thinking" else [*blocks, says(f"{chance.random()}")]

    def go(self, requests: int) -> None:
        """Make so many requests, with a step at random after every second one."""
        for number in range(requests):
            self.ask()
            if number % 2:
                self.step(self.chance.choice(STEPS))

    def ask(self) -> None:
        """One request and its reply; the client goes on with results, or its user says something."""
        wire, streams = self.wire, self.chance.random() < 0.5
        body = {"model": self.model, **wire.fields, "stream": streams, wire.field: self.messages}
        sent = self._prepared(body)
        answer = self.double.answer(sent, path=wire.path, headers=wire.headers)
        assert answer.status == 200, answer.json
        reply = self.double.records[-1].reply
        if self.door == "gateway":
            kind = "text/event-stream" if streams else "application/json"
            self.host.observe(self.name.session, b"".join(answer.pieces), kind, "planned")
        else:
            self.followed.observe(reply)
        results = wire.results(reply, f"x = {self.chance.random()}\n" * 50)
        said = [] if results and self.chance.random() < 0.7 else wire.said(f"Go on {self.chance.random()}.")
        self.messages = [*self.messages, *json.loads(json.dumps(wire.reply(reply))), *self._joined(results, said)]

    def _joined(self, results: list[Any], said: list[Any]) -> list[Any]:
        if self.wire_name == "anthropic" and results and said:
            return [{"role": "user", "content": [*results[0]["content"], *said[0]["content"]]}]
        return [*results, *said]

    def _prepared(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.door == "gateway":
            self.host.follow(self.name, "", self.wire_name, self.model, json.dumps(body).encode())
            prepared = self.host.plan(self.name.session, float("inf"))
            return body if prepared.body is None else dict(json.loads(prepared.body))
        system = body.get("system") or body.get("instructions")
        sent = self.followed.prepare(body[self.wire.field], tools=body["tools"], system=system)
        assert self.followed.reason == ""
        return {**body, self.wire.field: list(sent)}

    def step(self, name: str) -> None:
        """Take one step; one that does not fit the state of the conversation is left out."""
        conversation, chance = self.conversation, self.chance
        log = conversation.session.log
        items = [item for item in log.view.items if item.kind in ("result", "user", "assistant")]
        try:
            match name:
                case "mask":
                    log.append(ViewEdited((Mask((chance.choice([each.id for each in items if each.mask is None]),), STUB),), "test"))
                case "unmask":
                    log.append(ViewEdited((Unmask((chance.choice([each.id for each in items if each.mask]),)),), "test"))
                case "fold":
                    turns = [number for number, item in enumerate(log.view.items) if item.kind == "user"]
                    first, last = sorted(chance.sample(turns, 2))
                    run = log.view.items[first:last]
                    log.append(ViewEdited((Fold(run[0].id, run[-1].id, (Put("summary", Text("short")),)),), "test"))
                case "undo":
                    conversation.undo(chance.choice([each.event for each in conversation.audit() if each.by == "test" and not each.undone]))
                case "rewind":
                    said = (message.get("role") == "user" and "text" in message["content"][0] for message in self.messages)
                    places = [number for number, is_said in enumerate(said) if is_said]
                    self.messages = [*self.messages[: chance.choice(places[1:])], *self.wire.said(f"Again {chance.random()}.")]
                case "restart":
                    conversation.close()
                    self._open()
                case _:
                    raise AssertionError(name)
        except (PalimpsestError, IndexError, ValueError):
            return
