"""A law of exports: whatever was said, called and edited in a session, the files made of it show a model the same."""

import json
import random
from collections.abc import Iterator
from contextlib import suppress

from every_export import TARGETS, differences, there_and_back
from hypothesis import given, settings
from hypothesis import strategies as st
from readings import Home

from palimpsest.core.errors import BadEdit, BadInput
from palimpsest.core.events import Body, ContextStated, ModelReplied, SessionOpened, Statement, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import (
    Content,
    Fold,
    Insert,
    Item,
    Keep,
    Mask,
    Put,
    Role,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    safe_cuts,
    unanswered_calls,
)
from palimpsest.core.log import Log
from palimpsest.core.undo import undo
from palimpsest.stores.in_memory import FixedClock

MODEL = "claude-sonnet-4-5"
ROLES: tuple[Role, ...] = ("user", "user", "developer")


class Days:
    """Makes up what happens in a session, one thing after the other."""

    def __init__(self, draw: random.Random, log: Log) -> None:
        self.draw = draw
        self.log = log
        self.number = 0

    def text(self, role: Role = "user") -> Text:
        self.number += 1
        return Text(f"words {self.number}", role)

    def bodies(self) -> Iterator[Body]:
        """What may happen next."""
        waiting = [item.content for item in unanswered_calls(self.log.view.items) if isinstance(item.content, ToolCall)]
        if waiting:
            call = self.draw.choice(waiting)
            yield ToolReturned(ToolResult(call.call_id, (self.text(),), error=self.draw.random() < 0.1))
            return
        yield UserSaid(tuple(self.text() for _ in range(self.draw.choice((1, 1, 2)))), steering=self.draw.random() < 0.2)
        yield ContextStated(
            tuple(Statement(f"source {n}", self.text().text, self.draw.choice(ROLES)) for n in range(self.draw.choice((1, 3))))
        )
        yield ModelReplied(tuple(self.reply()), model=MODEL)
        yield ModelReplied((*self.reply(), ToolCall(self.draw.choice(("same", "", f"own {self.number}")), "bash", "{}")), model=MODEL)
        if self.log.view.items:
            yield ViewEdited((self.fold(),), "law", tokens_before=9, tokens_after=5)
            yield ViewEdited((self.mask(self.draw.choice(self.log.view.items)),), "law")
            before = self.draw.choice((self.draw.choice(self.log.view.items).id, ""))
            yield ViewEdited((Insert((Put("reminder", self.text()),), before),), "law")

    def reply(self) -> Iterator[Content]:
        if self.draw.random() < 0.3:
            yield Thinking("hm", Signature("anthropic", MODEL, f"seal {self.number}"))
        yield self.text("assistant")
        if self.draw.random() < 0.3:
            args = json.dumps({"number": self.number})
            yield ToolCall(self.draw.choice(("same", f"id.{self.number}")), "bash", args)

    def fold(self) -> Fold:
        items, cuts = self.log.view.items, safe_cuts(self.log.view.items)
        start, stop = sorted(self.draw.sample(cuts, 2))
        run = items[start:stop]
        said = [Keep(item.id) for item in run if item.kind in {"user", "steering", "context", "summary"} and self.draw.random() < 0.5]
        into: list[Put | Keep] = self.draw.sample(said, len(said)) if self.draw.random() < 0.2 else list(said)
        for _ in range(self.draw.choice((0, 1, 2))):
            put = Put("summary", self.text()) if self.draw.random() < 0.8 else Put("assistant", self.text("assistant"))
            into.insert(self.draw.randrange(len(into) + 1), put)
        calls = {item.content.call_id: item.id for item in run if isinstance(item.content, ToolCall)}
        results = {item.content.call_id: item.id for item in run if isinstance(item.content, ToolResult)}
        pairs = [(calls[name], results[name]) for name in calls if name in results and self.draw.random() < 0.3]
        return Fold(run[0].id, run[-1].id, (*into, *(Keep(half) for pair in pairs for half in pair)))

    def mask(self, item: Item) -> Mask:
        return Mask((item.id,), "[cleared]" if isinstance(item.content, ToolResult) else self.draw.choice(("", "[shorter]")))


def session_of(draw: random.Random) -> tuple[Home, Log]:
    home = Home()
    log = Log.create(
        home.store, SessionOpened("s", cwd="/repo", model=draw.choice((MODEL, "gpt-5.5"))), FixedClock(1_700_000_000_000, 1_000)
    )
    days, edits = Days(draw, log), list[int]()
    for _ in range(draw.randrange(4, 30)):
        body = draw.choice(list(days.bodies()))
        if isinstance(body, ViewEdited) and any(isinstance(edit, Mask) and not _may_be_masked(log, edit) for edit in body.edits):
            continue
        with suppress(BadEdit):
            event = log.append(body)
            edits += [event.seq] if isinstance(body, ViewEdited) else []
        if edits and draw.random() < 0.1:
            with suppress(BadEdit, BadInput):
                undo(log, edits.pop(draw.randrange(len(edits))))
    return home, log


def _may_be_masked(log: Log, mask: Mask) -> bool:
    """Calls cannot show other arguments in a file for Claude Code: their ids would be there twice."""
    return not any(isinstance(log.item(item_id).content, ToolCall) for item_id in mask.ids)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1_000_000))
def test_the_files_of_any_session_show_what_its_view_shows(seed: int) -> None:
    home, log = session_of(random.Random(seed))
    with log:
        for target in TARGETS:
            ours, theirs = there_and_back(log, home, target)
            assert list(differences(ours, theirs)) == []
