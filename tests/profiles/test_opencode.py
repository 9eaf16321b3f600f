"""The profiles `opencode` and `opencode-1.18`, statement by statement."""

from collections.abc import AsyncIterator, Mapping

import pytest
from workplace import first_ask, offline, online, reply, say, use, work

from palimpsest.agent.calls import call
from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.audit.sizes import json_size, readable_size
from palimpsest.core.deltas import Delta
from palimpsest.core.errors import PromptTooLong, ProviderError, WireError
from palimpsest.core.events import Failed, ModelReplied, ToolReturned, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Document, Fold, Image, Text, ToolCall, ToolResult, text_of
from palimpsest.core.plans import Ask, Moment, Proposal, ask
from palimpsest.core.ports import Sendable
from palimpsest.peers.summaries import MARKER, Anchor
from palimpsest.policies.limits import prompt
from palimpsest.policies.named import profile
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.models import ModelCard
from palimpsest.wire.reply import http_error

BOTH = ("opencode", "opencode-1.18")


def model(window: int = 200_000, reply: int = 32_000, input_limit: int | None = None) -> ModelCard:
    return ModelCard("model", "anthropic", "anthropic", window, reply, input_limit=input_limit, cache="breakpoints")


NO_SETTINGS: Mapping[str, str] = {}


def at_work(name: str, card: ModelCard | None = None, settings: Mapping[str, str] = NO_SETTINGS) -> Session:
    return work(profile(name, settings), card or model())


def filled(session: Session, tokens: int, text: str = "Done so far.") -> Session:
    """A turn after which the provider reported that many tokens."""
    say(session, "please fix the parser")
    use(session, "c1", "read", '{"filePath":"parser.py"}', "def parse(): ...\n" * 200)
    reply(session, Text(text, "assistant"), usage=Usage(input=tokens - 10, output=10))
    return session


def compacts(session: Session) -> bool:
    return online(session, run_policies(session, "before_call"), Scripted("## Objective\nfix it")).folded


def level(name: str, card: ModelCard, **settings: str) -> int | None:
    return profile(name, settings).budget(card).compact_at


def texts(session: Session) -> list[str]:
    return [text_of(item.content) for item in session.log.view.items]


@pytest.mark.states("OC-01")
def test_as_documented_168_000_used_of_200_000_does_not_compact_and_168_001_does() -> None:
    assert not compacts(filled(at_work("opencode"), 168_000))
    assert compacts(filled(at_work("opencode"), 168_001))


@pytest.mark.states("OC-02")
def test_as_measured_the_same_card_compacts_at_168_000_and_not_at_167_999() -> None:
    assert not compacts(filled(at_work("opencode-1.18"), 167_999))
    assert compacts(filled(at_work("opencode-1.18"), 168_000))


@pytest.mark.states("OC-03")
def test_the_reply_limit_moves_the_level_and_is_capped_at_32_000() -> None:
    assert (level("opencode-1.18", model(reply=8_000)), level("opencode", model(reply=8_000))) == (192_000, 192_001)
    assert (level("opencode-1.18", model(400_000, 128_000)), level("opencode", model(400_000, 128_000))) == (368_000, 368_001)


@pytest.mark.states("OC-04")
def test_an_input_limit_is_used_as_it_is_or_less_a_reserve() -> None:
    limited = model(400_000, 128_000, 272_000)
    assert level("opencode-1.18", limited) == 252_000
    assert level("opencode-1.18", limited, **{"compaction.reserved": "50000"}) == 222_000
    assert level("opencode", limited) == level("opencode", limited, **{"compaction.reserved": "50000"}) == 272_001
    assert level("opencode-1.18", model(), **{"compaction.reserved": "50000"}) == 168_000


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("OC-05")
def test_a_window_of_0_or_auto_off_never_folds_by_itself(name: str) -> None:
    assert not compacts(filled(at_work(name, model(window=0)), 900_000))
    switched_off = filled(at_work(name, settings={"compaction.auto": "false"}), 900_000)
    assert not compacts(switched_off)
    assert online(switched_off, run_policies(switched_off, "asked"), Scripted("short")).folded


@pytest.mark.states("OC-05")
def test_the_documented_variable_switches_it_off_too() -> None:
    assert not compacts(filled(at_work("opencode", settings={"OPENCODE_DISABLE_AUTOCOMPACT": "1"}), 900_000))
    assert compacts(filled(at_work("opencode", settings={"OPENCODE_DISABLE_AUTOCOMPACT": "0"}), 900_000))


@pytest.mark.states("OC-06")
def test_one_counts_no_cache_writes_and_the_other_everything_reported() -> None:
    def used(name: str) -> int:
        session = at_work(name)
        say(session, "hello")
        reply(session, Text("hi", "assistant"), usage=Usage(input=1_000, cache_read=20_000, cache_write=7_000, output=500))
        return session.used

    assert (used("opencode"), used("opencode-1.18")) == (21_500, 28_500)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("OC-07")
def test_a_summary_that_is_over_the_limit_itself_does_not_trigger_another(name: str) -> None:
    session = filled(at_work(name), 190_000)
    provider = Scripted(ModelReplied((Text("short", "assistant"),), usage=Usage(input=199_000, output=1_000), stop="end_turn"), "again")
    assert online(session, run_policies(session, "before_call"), provider).folded
    assert not online(session, run_policies(session, "before_call"), provider).edited
    assert provider.remaining == 1


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("OC-08")
def test_the_check_runs_before_and_after_a_call(name: str) -> None:
    after = filled(at_work(name), 190_000)
    assert online(after, run_policies(after, "after_call"), Scripted("short")).folded
    huge = at_work(name)
    say(huge, "read it all")
    reply(huge, ToolCall("c1", "read", "{}"), usage=Usage(input=189_000, output=1_000))
    assert not online(huge, run_policies(huge, "after_call"), Scripted()).events
    huge.log.append(ToolReturned(ToolResult("c1", (Text("x" * 9_000),)), tool="read"))
    assert online(huge, run_policies(huge, "before_call"), Scripted("short")).folded


def asked(session: Session, moment: Moment = "asked") -> Ask:
    """What the summary asks the model."""
    anchor = next(policy for policy in session.profile.policies if isinstance(policy, Anchor))
    return first_ask(anchor, session.situation(moment))


@pytest.mark.states("OC-15")
def test_as_documented_the_summary_is_asked_of_every_visible_item_without_tools() -> None:
    session = filled(at_work("opencode"), 1_000)
    want = asked(session)
    assert want.items == session.log.view.items
    assert (want.tools, want.head, want.prompt) == (False, False, prompt("opencode/request"))
    provider = Scripted("short")
    online(session, ask(want), provider)
    body = provider.requests[0].body
    assert b'"tools"' not in body
    assert body.index(b"Write the opening message") > body.index(b"please fix the parser")


@pytest.mark.states("OC-16")
def test_as_measured_it_is_one_text_in_which_long_results_are_cut() -> None:
    session = filled(at_work("opencode-1.18"), 1_000)
    want = asked(session)
    assert (want.items, want.tools) == ((), False)
    inside = want.prompt.partition("<conversation>\n")[2].partition("\n</conversation>")[0]
    cut = ("def parse(): ...\n" * 200)[:2_000]
    assert inside == (
        "[User]: please fix the parser\n\n"
        '[Assistant tool call]: read({"filePath":"parser.py"})\n\n'
        f"[Tool result]: {cut}\n[truncated]\n\n"
        "[Assistant]: Done so far."
    )


@pytest.mark.states("OC-17")
def test_a_second_summary_gets_the_first_one_apart_and_five_headings_are_demanded_in_order() -> None:
    session = filled(at_work("opencode-1.18"), 190_000)
    online(session, run_policies(session, "before_call"), Scripted("the first summary"))
    say(session, "go on")
    reply(session, Text("I go on.", "assistant"))
    text = asked(session).prompt
    assert "<prior-summary>\nthe first summary\n</prior-summary>" in text
    assert "the first summary" not in text.partition("<conversation>")[2]
    places = [text.index(f"## {name}") for name in ("Objective", "Important Details", "Work State", "Next Move", "Relevant Files")]
    assert places == sorted(places)
    assert [name in text for name in ("### Completed", "### Active", "### Blocked")] == [True] * 3


@pytest.mark.states("OC-21")
def test_after_a_fold_come_marker_summary_tail_and_later_items() -> None:
    session = filled(at_work("opencode"), 1_000)
    online(session, run_policies(session, "asked"), Scripted("we fixed it"))
    say(session, "thanks")
    assert texts(session) == [MARKER, "we fixed it", "thanks"]
    assert MARKER == "What did we do so far?"
    roles = [item.content.role for item in session.log.view.items if isinstance(item.content, Text)]
    assert roles == ["user", "assistant", "user"]
    measured = filled(at_work("opencode-1.18"), 1_000)
    say(measured, "and the lexer")
    reply(measured, Text("The lexer too.", "assistant"))
    measured.profile = profile("opencode-1.18", {"compaction.tail_turns": "1"})
    online(measured, run_policies(measured, "asked"), Scripted("we fixed it"))
    assert texts(measured) == [MARKER, "we fixed it", "and the lexer", "The lexer too."]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("OC-22")
def test_an_automatic_fold_asks_to_go_on_and_one_that_was_asked_for_does_not(name: str) -> None:
    automatic = filled(at_work(name), 190_000)
    online(automatic, run_policies(automatic, "before_call"), Scripted("short"))
    assert texts(automatic) == [MARKER, "short", prompt("opencode/continue" if name == "opencode" else "opencode/continue_or_ask")]
    assert ("stop and ask" in texts(automatic)[-1]) is (name == "opencode-1.18")
    manual = filled(at_work(name), 190_000)
    online(manual, run_policies(manual, "asked"), Scripted("short"))
    assert texts(manual) == [MARKER, "short"]


def raw_reply(stop: str, error: str = "", word: str = "") -> ModelReplied:
    return ModelReplied((Text("half", "assistant"),), stop=stop, error=error, provider_stop=word)


class Plain:
    """A provider that gives its reply as it is, finished or not."""

    def __init__(self, answer: ModelReplied) -> None:
        self.answer = answer

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        yield self.answer


@pytest.mark.parametrize(
    ("name", "answer", "folds"),
    [
        ("opencode", raw_reply(""), False),
        ("opencode", raw_reply("", word="other"), True),
        ("opencode", raw_reply("end_turn", "overloaded"), True),
        ("opencode-1.18", raw_reply(""), False),
        ("opencode-1.18", raw_reply("end_turn", "overloaded"), False),
    ],
)
@pytest.mark.states("OC-23")
def test_a_summary_that_did_not_finish_folds_nothing(name: str, answer: ModelReplied, folds: bool) -> None:
    session = filled(at_work(name), 1_000)
    provider = Plain(answer)
    ran = online(session, run_policies(session, "asked"), provider)
    assert ran.folded is folds
    assert isinstance(ran.failure, WireError) is not folds


def rejected(session: Session) -> Session:
    filled(session, 1_000)
    session.log.append(
        UserSaid((Text("look at this"), Image("image/png", url="shot.png"), Document("application/pdf", "b", name="plan.pdf")))
    )
    return session


@pytest.mark.states("OC-24")
def test_after_an_overflow_the_refused_message_is_not_summed_up_and_comes_once_after_the_summary() -> None:
    session = rejected(at_work("opencode-1.18"))
    assert "look at this" not in asked(session, "overflow").prompt
    online(session, run_policies(session, "overflow"), Scripted("short"))
    assert texts(session) == [MARKER, "short", "look at this", "[Attached image/png: shot.png]", "[Attached application/pdf: plan.pdf]"]


@pytest.mark.states("OC-24")
def test_within_a_turn_too_the_message_is_not_summed_up_and_the_request_is_sent_again() -> None:
    session = filled(at_work("opencode-1.18"), 1_000)
    say(session, "and the lexer")
    use(session, "c2", "read", '{"filePath":"lexer.py"}', "def lex(): ...\n" * 200)
    provider = Scripted(PromptTooLong("too long"), "we read the lexer", "Done.")
    online(session, call(session), provider)
    assert b"and the lexer" not in provider.requests[1].body
    assert b"def lex()" in provider.requests[1].body
    assert texts(session) == [MARKER, "we read the lexer", "and the lexer", "Done."]


@pytest.mark.states("OC-24")
def test_as_documented_the_error_ends_the_turn() -> None:
    session = rejected(at_work("opencode"))
    with pytest.raises(PromptTooLong):
        online(session, call(session), Scripted(PromptTooLong("too long")))
    assert not any(isinstance(event.body, ViewEdited) for event in session.log.events())


@pytest.mark.states("OC-25")
def test_media_of_a_repeated_message_become_text_and_an_only_message_is_not_repeated() -> None:
    session = at_work("opencode-1.18")
    say(session, "much too long " * 100)
    online(session, run_policies(session, "overflow"), Scripted("short"))
    assert texts(session) == [MARKER, "short", prompt("opencode/continue_or_ask")]


@pytest.mark.states("OC-26")
def test_a_rate_limit_is_never_taken_for_an_overflow_nor_an_overflow_for_a_network_error() -> None:
    too_long = (
        (400, b'{"error":{"message":"prompt is too long: 214000 tokens > 200000 maximum"}}'),
        (400, b'{"error":{"code":"context_length_exceeded","message":"maximum context length"}}'),
        (413, b""),
        (400, b""),
    )
    assert [type(http_error(status, body, "anthropic")) for status, body in too_long] == [PromptTooLong] * 4
    limits = (
        (429, b'{"error":{"message":"Rate limit reached: too many tokens per minute, input is too long for your tier"}}'),
        (400, b'{"error":{"message":"ThrottlingException: Too many tokens, please wait before trying again."}}'),
    )
    assert [type(http_error(status, body, "anthropic")) for status, body in limits] == [ProviderError] * 2


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("OC-27")
def test_if_the_summary_is_too_long_itself_the_turn_ends_and_the_view_stays(name: str) -> None:
    session = filled(at_work(name), 190_000)
    before = session.log.view.items
    provider = Scripted(PromptTooLong("Conversation history too large"), "never asked")
    with pytest.raises(PromptTooLong, match="history too large"):
        online(session, call(session), provider)
    assert session.log.view.items == before
    assert provider.remaining == 1


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("OC-28")
def test_three_failures_in_a_row_open_the_circuit(name: str) -> None:
    session = filled(at_work(name), 190_000)
    provider = Scripted(*[ProviderError("down")] * 4)
    for _ in range(5):
        online(session, run_policies(session, "before_call"), provider)
    assert provider.remaining == 1
    failures = [event.body.what for event in session.log.events() if isinstance(event.body, Failed)]
    assert failures == ["call", "plan"] * 3


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(("text", "notice"), [("x\n" * 2_000 + "x", "...1 lines truncated..."), ("x" * 51_201, "bytes truncated...")])
@pytest.mark.states("OC-29")
def test_a_result_over_2_000_lines_or_51_200_bytes_spills_whole(name: str, text: str, notice: str) -> None:
    session = at_work(name)
    arrived = offline(session, session.profile.limiter(session.card)(ToolReturned(ToolResult("c1", (Text(text),)), tool="read")))
    shown = text_of(arrived.result)
    assert session.environment.blobs.get(arrived.result.blob) == text.encode()
    assert notice in shown
    assert arrived.result.blob in shown
    small = ToolReturned(ToolResult("c1", (Text("x\n" * 1_999 + "x"),)), tool="read")
    assert offline(session, session.profile.limiter(session.card)(small)) == small


def bounded(session: Session, tool: str, lines: list[str]) -> str:
    returned = ToolReturned(ToolResult("c1", (Text("\n".join(lines)),)), tool=tool)
    return text_of(offline(session, session.profile.limiter(session.card)(returned)).result)


@pytest.mark.parametrize(("name", "tool"), [("opencode", "read"), ("opencode", "bash"), ("opencode-1.18", "read")])
@pytest.mark.states("OC-29")
def test_51_200_bytes_are_kept_from_the_start_and_not_one_more(name: str, tool: str) -> None:
    session = at_work(name)
    # 512 lines of 99 bytes and their ends have 51,199 bytes together.
    lines = [f"{number:099d}" for number in range(512)]
    fitting = [*lines[:-1], lines[-1] + "."]
    assert bounded(session, tool, fitting) == "\n".join(fitting)
    assert bounded(session, tool, [*fitting, "end"]).startswith("\n".join(fitting) + "\n\n...4 bytes truncated...")
    longer = [*lines[:-1], lines[-1] + ".."]
    assert bounded(session, tool, longer).startswith("\n".join(lines[:-1]) + "\n\n...102 bytes truncated...")


@pytest.mark.states("OC-29")
def test_as_measured_51_200_bytes_are_kept_from_the_end_of_what_a_shell_printed() -> None:
    session = at_work("opencode-1.18")
    lines = [f"{number:099d}" for number in range(512)]
    fitting = ["." + lines[0], *lines[1:]]
    assert bounded(session, "bash", fitting) == "\n".join(fitting)
    shown = bounded(session, "bash", ["start", *fitting])
    assert shown.startswith("...6 bytes truncated...")
    assert shown.endswith("\n\n" + "\n".join(fitting))
    assert bounded(session, "bash", [".." + lines[0], *lines[1:]]).endswith("\n\n" + "\n".join(lines[1:]))


@pytest.mark.states("OC-29")
def test_as_measured_the_end_of_what_a_shell_printed_is_kept() -> None:
    text = "\n".join(str(number) for number in range(3_000))
    returned = ToolReturned(ToolResult("c1", (Text(text),)), tool="bash")
    measured = at_work("opencode-1.18")
    assert text_of(offline(measured, measured.profile.limiter(measured.card)(returned)).result).endswith("\n2999")
    documented = at_work("opencode")
    assert text_of(offline(documented, documented.profile.limiter(documented.card)(returned)).result).startswith("0\n1\n")


def test_the_estimators_are_those_of_the_variants() -> None:
    assert (at_work("opencode").counter.rule, at_work("opencode-1.18").counter.rule) == (readable_size, json_size)


def test_a_fold_keeps_what_is_pinned() -> None:
    session = filled(at_work("opencode"), 1_000)
    session.pin(ids=("1.0",))
    body = online(session, run_policies(session, "asked"), Scripted("short")).edited[0].body
    assert isinstance(body, ViewEdited)
    assert isinstance(body.edits[0], Fold)
    assert texts(session) == [MARKER, "short", "please fix the parser"]
    assert isinstance(Anchor().plan(at_work("opencode").situation("before_call")), tuple | Proposal)
