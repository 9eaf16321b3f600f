"""The profile `classroom`, statement by statement."""

import inspect

import msgspec
import pytest
from workplace import NOTHING, first_ask, offline, online, reply, say, use, work

from palimpsest.agent.calls import call
from palimpsest.agent.editing import compact_focus, run_policies
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.core.errors import ProviderError, StoreError
from palimpsest.core.events import CallStarted, ContextStated, Failed, ModelReplied, Statement, ToolReturned, ViewEdited
from palimpsest.core.items import Text, ToolCall, ToolResult, Unmask, text_of
from palimpsest.core.plans import Ask, Look
from palimpsest.peers import classroom as profile_file
from palimpsest.policies.limits import prompt
from palimpsest.policies.named import profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

SECOND = 1_700_000_000


class Folder:
    """A folder that remembers what was kept in it, and may be full."""

    def __init__(self, *, full: bool = False) -> None:
        self.files: dict[str, bytes] = {}
        self.full = full

    def keep(self, name: str, data: bytes) -> str:
        if self.full:
            raise StoreError("the disk is full")
        self.files[name] = data
        return name

    def create(self, name: str, data: bytes) -> str:
        stem = name.removesuffix(".jsonl")
        return self.keep(name if name not in self.files else f"{stem}-{len(self.files) + 1}.jsonl", data)

    def look(self, want: Look) -> str | None:
        return self.files[want.name].decode() if want.name in self.files else None


def at_work(folder: Folder | None = None, told_from: str = "") -> Session:
    session = work(profile("classroom", {"told_from": told_from}))
    place = folder or Folder()
    session.environment = Environment(
        MemorySessions(),
        MemoryBlobs(),
        FixedClock(SECOND * 1_000),
        create=place.create,
        look=place.look,
        offload=inline,
        retries=NO_RETRIES,
    )
    return session


def results(session: Session, *lengths: int, tool: str = "bash", error: bool = False) -> Session:
    for number, length in enumerate(lengths):
        reply(session, ToolCall(f"c{number}", tool, "{}"))
        session.log.append(ToolReturned(ToolResult(f"c{number}", (Text("x" * length),), error=error), tool=tool))
    return session


def shown(session: Session) -> list[str]:
    items = [item for item in session.log.view.items if item.kind == "result"]
    return [item.mask.text if item.mask is not None else f"{len(text_of(item.content))}" for item in items]


def before_call(session: Session, *answers: str | Exception) -> Scripted:
    provider = Scripted(*answers)
    online(session, run_policies(session, "before_call"), provider)
    return provider


def used_exactly(tokens: int) -> Session:
    around = at_work()
    say(around, "y")
    session = at_work()
    # Four characters are a token: the frame of a message is as long as that of a short one.
    say(session, "y" * (1 + 4 * (tokens - around.used)))
    assert session.used == tokens
    return session


@pytest.mark.states("CL-01")
def test_before_every_call_all_results_but_the_newest_three_are_masked() -> None:
    session = results(at_work(), 500, 600, 700, 800, 900)
    before_call(session)
    assert shown(session) == ["[Previous: used bash]", "[Previous: used bash]", "700", "800", "900"]


@pytest.mark.states("CL-02")
def test_a_result_of_100_characters_is_never_masked_and_one_of_101_is() -> None:
    session = results(at_work(), 100, 101, 500, 500, 500)
    before_call(session)
    assert shown(session) == ["100", "[Previous: used bash]", "500", "500", "500"]


@pytest.mark.states("CL-03")
def test_with_three_results_nothing_is_masked_however_long() -> None:
    session = results(at_work(), 9_000, 9_000, 9_000)
    before_call(session)
    assert shown(session) == ["9000", "9000", "9000"]


@pytest.mark.states("CL-04")
def test_the_mask_names_the_tool_of_the_call_with_the_same_id() -> None:
    session = at_work()
    for number, tool in enumerate(("read", "bash", "read", "grep", "edit")):
        use(session, f"c{number}", tool, "{}", "x" * 300)
    before_call(session)
    assert shown(session) == ["[Previous: used read]", "[Previous: used bash]", "300", "300", "300"]


@pytest.mark.states("CL-05")
def test_error_results_count_and_are_masked_like_others() -> None:
    session = results(at_work(), 400, 400, 400, 400, error=True)
    before_call(session)
    assert shown(session) == ["[Previous: used bash]", "400", "400", "400"]


@pytest.mark.states("CL-06")
def test_calls_and_texts_are_unchanged_and_a_second_run_proposes_nothing() -> None:
    session = results(at_work(), 500, 500, 500, 500)
    before = [item for item in session.log.view.items if item.kind != "result"]
    before_call(session)
    assert [item for item in session.log.view.items if item.kind != "result"] == before
    assert offline(session, run_policies(session, "before_call")).events == ()


@pytest.mark.states("CL-07")
def test_masking_changes_no_event_and_unmask_restores_every_byte() -> None:
    session = results(at_work(), 500, 500, 500, 500)
    view, event = session.log.view, session.log.event(3)
    before_call(session)
    assert (session.log.event(3), view.items[1].mask) == (event, None)
    session.log.append(ViewEdited((Unmask(("3.0",)),), by="test"))
    assert session.log.view.items == view.items


@pytest.mark.states("CL-08")
def test_an_estimate_of_50_000_does_not_compact_and_50_001_does() -> None:
    assert before_call(used_exactly(50_000), "short").remaining == 1
    assert before_call(used_exactly(50_001), "short").remaining == 0


@pytest.mark.states("CL-09")
def test_if_masking_makes_enough_room_no_summary_is_asked_for() -> None:
    session = results(at_work(), 160_000, 10_000, 10_000, 40_000)
    assert session.used > 50_000
    assert before_call(session, "short").remaining == 1
    assert session.used <= 50_000


@pytest.mark.states("CL-10")
def test_the_transcript_is_complete_before_the_fold_and_each_line_is_one_message() -> None:
    folder = Folder()
    session = at_work(folder)
    say(session, "hello")
    use(session, "c1", "bash", '{"command":"ls"}', "a.py")
    seen: list[int] = []

    def answer(_: object) -> str:
        seen.append(len(folder.files))
        return "short"

    online(session, run_policies(session, "asked"), Scripted(answer))
    assert seen == [1]
    lines = [msgspec.json.decode(line) for line in folder.files[f".transcripts/transcript_{SECOND}.jsonl"].splitlines()]
    assert lines == [
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.py"}]},
    ]


@pytest.mark.states("CL-11")
def test_if_the_transcript_cannot_be_written_nothing_is_folded() -> None:
    session = at_work(Folder(full=True))
    say(session, "y" * 300_000)
    provider = before_call(session, "short")
    assert provider.remaining == 1
    last = session.log.event(session.log.tip).body
    assert last == Failed("plan", "store", "the disk is full", by="compress")


@pytest.mark.states("CL-12")
def test_two_compactions_in_the_same_second_leave_two_transcripts() -> None:
    folder = Folder()
    session = at_work(folder)
    for _ in range(2):
        say(session, "y" * 300_000)
        before_call(session, "short")
    assert sorted(folder.files) == [f".transcripts/transcript_{SECOND}-2.jsonl", f".transcripts/transcript_{SECOND}.jsonl"]


def asked(session: Session) -> Ask:
    return first_ask(session.profile.policies[1], session.situation("asked"))


@pytest.mark.parametrize(("told_from", "first"), [("", True), ("end", False)])
@pytest.mark.states("CL-13")
def test_the_model_is_shown_80_000_characters_from_one_end(told_from: str, first: bool) -> None:
    session = at_work(told_from=told_from)
    say(session, "FIRST" + "y" * 120_000)
    say(session, "LAST")
    said = ("FIRST" + "y" * 120_000, "LAST")
    parts = [f'{{"type":"message","role":"user","content":[{{"type":"input_text","text":"{text}"}}]}}' for text in said]
    whole = f"[{parts[0]},{parts[1]}]"
    part = whole[:80_000] if first else whole[-80_000:]
    assert asked(session).prompt == prompt("classroom_summary", focus="", conversation=part)
    assert (said[0] in whole, "FIRST" in part, "LAST" in part) == (True, first, not first)


@pytest.mark.states("CL-14")
def test_the_reply_is_limited_to_2_000_tokens_and_no_tools_are_sent() -> None:
    session = at_work()
    say(session, "hello")
    want = asked(session)
    assert (want.reply, want.tools, want.head, want.items) == (2_000, False, False, ())


@pytest.mark.states("CL-15")
def test_after_the_fold_there_are_two_items() -> None:
    session = at_work()
    say(session, "y" * 300_000)
    before_call(session, "the summary")
    items = [(item.content.role, item.content.text) for item in session.log.view.items if isinstance(item.content, Text)]
    assert items == [("user", "[Compressed]\n\nthe summary"), ("assistant", "Understood. Continuing.")]
    assert len(session.log.view.items) == 2


@pytest.mark.states("CL-16")
def test_head_and_what_sources_said_are_in_the_first_request_after_a_fold() -> None:
    session = at_work()
    session.log.append(ContextStated((Statement("tasks", "ready: #3"),), head=(Statement("base", "You teach.", "system"),)))
    stated = (Statement("skills", "skills: pdf"), Statement("business_state", "waiting for payment"), Statement("cards", "likes tea"))
    session.log.append(ContextStated(stated))
    say(session, "y" * 300_000)
    provider = Scripted("short", "on it")
    online(session, call(session), provider)
    request = msgspec.json.decode(provider.requests[1].body)
    assert [block["text"] for block in request["system"]] == ["You teach."]
    texts = [block["text"] for message in request["messages"] for block in message["content"]]
    assert texts == [
        "ready: #3",
        "skills: pdf",
        "waiting for payment",
        "likes tea",
        "[Compressed]\n\nshort",
        "Understood. Continuing.",
    ]


def test_what_shows_a_pinned_file_is_not_masked_and_a_second_look_rests() -> None:
    session = at_work()
    session.pin(paths=("kept.py",))
    for number, path in enumerate(("kept.py", "a.py", "b.py", "c.py", "d.py")):
        use(session, f"c{number}", "read", f'{{"path":"{path}"}}', "x" * 300)
    before_call(session)
    assert shown(session) == ["300", "[Previous: used read]", "300", "300", "300"]
    assert offline(session, run_policies(session, "before_call")).events == ()


@pytest.mark.states("CL-17")
def test_a_failing_summary_leaves_the_view_and_after_three_no_attempt_is_made() -> None:
    session = at_work()
    say(session, "y" * 300_000)
    before = session.log.view.items
    for expected in (1, 1, 1, 2):
        provider = Scripted(ProviderError("down"), ProviderError("down"))
        online(session, run_policies(session, "before_call"), provider)
        assert provider.remaining == expected
    assert session.log.view.items == before


def compacting(*calls: ToolCall) -> Session:
    session = at_work()
    say(session, "y" * 2_000)
    started = session.log.append(CallStarted("m", "anthropic"))
    session.log.append(ModelReplied(calls, call=started.seq, usage=NOTHING))
    return session


@pytest.mark.states("CL-18")
def test_the_compact_tool_folds_below_the_threshold_after_all_results_and_once() -> None:
    first = ToolCall("c1", "compact", '{"focus":"the parser"}')
    session = compacting(first, ToolCall("c2", "compact", ""))
    assert compact_focus(ModelReplied((first, ToolCall("c2", "compact", "")))) == "the parser"
    assert compact_focus(ModelReplied((Text("no", "assistant"),))) is None
    assert compact_focus(ModelReplied((ToolCall("c2", "compact", "not json"),))) == ""
    provider = Scripted("short", "again")
    for name in ("c1", "c2"):
        session.log.append(ToolReturned(ToolResult(name, (Text("ok"),)), tool="compact"))
    assert online(session, run_policies(session, "asked", asked="the parser"), provider).folded
    assert (provider.remaining, b"the parser" in provider.requests[0].body) == (1, True)


@pytest.mark.states("CL-19")
def test_the_result_of_compact_is_paired_with_its_call_in_the_log() -> None:
    session = compacting(ToolCall("c1", "compact", ""))
    session.log.append(ToolReturned(ToolResult("c1", (Text("ok"),)), tool="compact"))
    online(session, run_policies(session, "asked"), Scripted("short"))
    bodies = [event.body for event in session.log.events()]
    assert [body.result.call_id for body in bodies if isinstance(body, ToolReturned)] == ["c1"]
    assert session.log.pending_calls == ()


@pytest.mark.states("CL-50")
def test_the_profile_and_its_policies_are_short() -> None:
    policies = profile("classroom", {"PAL_EVIDENCE": "on"}).policies
    assert [type(policy).__module__ for policy in policies] == [
        "palimpsest.peers.clearing",
        "palimpsest.peers.summaries",
        *["palimpsest.policies.notices"] * (len(policies) - 2),
    ]
    written = [inspect.getsource(profile_file), *(inspect.getsource(kind) for kind in {type(policy) for policy in policies})]
    assert sum(len(text.splitlines()) for text in written) < 400
