"""Laws of the hand-over over synthetic histories with messages, calls, stated context, pins and masks."""

import pytest
from codex_work import BOTH, GPT, OTHER, codex_session
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workplace import online

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.errors import PromptTooLong, ProviderError, TooFull
from palimpsest.core.events import (
    CallStarted,
    ContextStated,
    EditRefused,
    ModelReplied,
    Statement,
    ToolReturned,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Image, Mask, Opaque, Role, Text, Thinking, ToolCall, ToolResult, pending_calls, unpaired
from palimpsest.core.plans import Moment
from palimpsest.policies.handoff import messages_of
from palimpsest.providers.scripted import Scripted, ScriptedAnswer
from palimpsest.wire.encode import encode
from palimpsest.wire.json_reading import parse
from palimpsest.wire.models import ModelCard
from palimpsest.wire.rules import responses_violations

SEALED = Opaque("openai", "gpt-5.5", '{"type":"compaction","encrypted_content":"abc"}')
MOMENTS: tuple[Moment, ...] = ("turn_starts", "before_call", "after_call", "overflow", "asked", "switched")
ANSWERS: tuple[ScriptedAnswer, ...] = (
    "the summary",
    ModelReplied((SEALED,)),
    ModelReplied((SEALED, SEALED)),
    ModelReplied(()),
    ModelReplied((ToolCall("z", "shell", "{}"),)),
    "long " * 60_000,
    PromptTooLong("too long"),
    ProviderError("down", status=500),
)
STEPS = st.lists(st.tuples(st.sampled_from("usctrpmife"), st.integers(0, 3), st.integers(1, 400)), min_size=1, max_size=30)


class History:
    """A session that is written step by step."""

    def __init__(self, name: str, model: ModelCard) -> None:
        self.session = codex_session(name, model)
        self.calls = 0
        self.open: list[str] = []

    def take(self, step: str, which: int, size: int) -> None:
        session = self.session
        match step:
            case "u":
                self._close()
                session.log.append(UserSaid((Text("u" * size * 100),)))
            case "i":
                self._close()
                session.log.append(UserSaid((Text("<image>"), Image("image/png", url="https://example.org/a.png"), Text("</image>"))))
            case "s":
                session.log.append(UserSaid((Text("s" * size),), steering=True))
            case "t":
                self._reply(Thinking("t" * size), Text("a" * size * 20, "assistant"))
            case "c":
                self._close()
                names = [f"c{self.calls + each}" for each in range(which + 1)]
                self.calls += len(names)
                self.open += names
                self._reply(*(ToolCall(each, "shell", '{"command":["ls"]}') for each in names))
            case "r" if self.open:
                session.log.append(ToolReturned(ToolResult(self.open.pop(0), (Text("r" * size * 50),)), tool="shell"))
            case "e":
                sources = ("environment", "permissions", "model_switch", "turn_aborted")
                role: Role = "developer" if which in {1, 2} else "user"
                session.log.append(ContextStated((Statement(sources[which], "c" * size, role),)))
            case "p" if session.log.view.items:
                session.pin(ids=(session.log.view.items[size % len(session.log.view.items)].id,))
            case "m":
                self._mask(size)
            case "f":
                session.log.append(CallStarted(session.card.name, session.card.wire))
                session.log.append(ModelReplied((Text("ok", "assistant"),), usage=Usage(input=250_000)))
                self.open.clear()
            case _:
                return

    def _reply(self, *parts: Thinking | Text | ToolCall) -> None:
        self.session.log.append(CallStarted(self.session.card.name, self.session.card.wire))
        self.session.log.append(ModelReplied(parts))

    def _close(self) -> None:
        while self.open:
            self.session.log.append(ToolReturned(ToolResult(self.open.pop(0), (Text("done"),)), tool="shell"))

    def _mask(self, size: int) -> None:
        results = [item.id for item in self.session.log.view.items if item.kind == "result" and item.mask is None]
        if results:
            self.session.log.append(ViewEdited((Mask((results[size % len(results)],), "left out"),), by="test"))


def touched(session: Session) -> bool:
    request = encode(session.log.view, session.card, session.tools, session.params)
    # Where nothing is left to show, the request begins with a message of its own.
    repairs = [repair for repair in request.repairs if session.log.view.items or repair.case != "no_first_user"]
    return bool(repairs) or bool(list(responses_violations(parse(request.body, "test"))))


@pytest.mark.parametrize("model", [OTHER, GPT], ids=["here", "remote"])
@pytest.mark.parametrize("name", BOTH)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, moment=st.sampled_from(MOMENTS), answers=st.lists(st.sampled_from(ANSWERS), min_size=6, max_size=6))
def test_no_edit_is_unfit_no_pair_is_parted_and_the_last_request_stays(
    name: str, model: ModelCard, steps: list[tuple[str, int, int]], moment: Moment, answers: list[ScriptedAnswer]
) -> None:
    history = History(name, model)
    for step, which, size in steps:
        history.take(step, which, size)
    session = history.session
    before, pins = session.log.view, session.log.view.pins
    clean = not touched(session)
    unanswered_calls = pending_calls(before.items)
    last = messages_of(before.items)[-1:]
    try:
        ran = online(session, run_policies(session, moment), Scripted(*answers))
    except TooFull:
        # What the provider reported was more than all that could be left out.
        assert session.log.view.items == before.items
        return
    after = session.log.view
    for event in ran.events:
        if isinstance(event.body, EditRefused):
            assert event.body.why == "the view would not be smaller"
    assert unpaired(after.items) <= unpaired(before.items)
    # A pinned call that was never answered may seem to wait once nothing stands behind it.
    assert pins or pending_calls(after.items) == unanswered_calls
    assert {item.id for item in after.items} >= pins & {item.id for item in before.items}
    assert not clean or not touched(session)
    if last and last[0].text and len(last[0].text) <= 4_000:
        assert last[0].text in [message.text for message in messages_of(after.items)]
    if ran.edited:
        assert session.counter.total(after) < session.counter.total(before)
        kept = [item.id for item in after.items if item.kind in {"user", "steering"} and item.id.count(".") == 1]
        assert kept == [item.id for item in before.items if item.id in set(kept)]
    if ran.folded and not unanswered_calls:
        assert online(session, run_policies(session, moment), Scripted(*answers)).edited == ()
