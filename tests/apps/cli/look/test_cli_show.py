import msgspec
import pytest
from msgspec import Raw
from pal_runs import BEGAN, SMALL, Pal, edited, small

from palimpsest.core.events import (
    CacheDiagnosis,
    CallStarted,
    ChildEnded,
    ChildOpened,
    EventRef,
    Failed,
    InputTransformation,
    ModelReplied,
    SessionOpened,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Mask, Signature, Text, Thinking
from palimpsest.core.lines import decode_line, digest_of, encode_body, encode_line
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock


def test_a_session_is_shown_as_the_model_sees_it(pal: Pal) -> None:
    edited(pal.home)

    assert pal("show", SMALL).stdout.split("\n") == [
        f"{SMALL}  event 15, epoch 1, 4 items, 39 tokens, claude-sonnet-4-5",
        "",
        "1.0  context base  9 tokens  [head]",
        "  Be brief.",
        "",
        "14.0.0  summary  9 tokens  [masked]",
        "  (hidden)",
        "",
        "2.0  user  11 tokens",
        "  What is in a.py?",
        "",
        "10.0  user  13 tokens",
        "  超时改成 30 秒",
        "",
        "12.0  assistant  9 tokens",
        "  好的。",
        "",
    ]


def test_a_sub_agent_names_its_parent_and_the_parent_its_sub_agents(pal: Pal) -> None:
    small(pal.home)
    meta = {"nickname": "Ada", "role": "explorer", "depth": "1"}
    Log.create(pal.home.store, SessionOpened("ada", opener=EventRef(SMALL, 4), meta=meta), FixedClock(BEGAN)).close()
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN), write=True) as log:
        log.append(ChildOpened("ada", role="explorer", nickname="Ada", depth=1))
        log.append(ChildEnded("ada", "completed"))
        log.append(ChildOpened("eve", nickname="Eve", depth=1))
        log.append(ChildEnded("eve", "completed", cost_usd=0.25, children_usd=0.5))
        log.append(ChildOpened("bob", nickname="Bob", depth=1))
        while_open = pal("show", SMALL).stdout.splitlines()
    assert pal("show", "ada").stdout.splitlines()[0] == f"sub-agent Ada (explorer) of session {SMALL}"
    ended = ["sub-agent Ada (explorer): completed, $0.00, session ada", "sub-agent Eve: completed, $0.75, session eve"]
    assert while_open[:3] == [*ended, "sub-agent Bob: running, cost unknown, session bob"]
    assert pal("show", SMALL).stdout.splitlines()[:3] == [*ended, "sub-agent Bob: unknown, cost unknown, session bob"]
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN), write=True) as log:
        for number in range(30):
            log.append(ChildOpened(f"c{number}", nickname=f"C{number}", depth=1))
    assert pal("show", SMALL).stdout.splitlines()[20] == f"… and 13 more sub-agents: pal agents {SMALL}"


def test_an_earlier_moment_shows_what_the_model_saw_then(pal: Pal) -> None:
    edited(pal.home)
    shown = pal("show", SMALL, "--at", "6").stdout

    assert f"{SMALL}  event 6, epoch 1, 4 items" in shown
    assert "… 29 more lines (--full)" in shown
    assert "超时" not in shown
    assert pal("show", SMALL, "--at", "6", "--full").stdout.count("timeout = 10") == 40


def test_the_events_are_given_as_they_stand_in_the_file_but_for_their_times(pal: Pal) -> None:
    small(pal.home)
    lines = [msgspec.json.decode(line) for line in pal.home.store.path_of(SMALL).read_bytes().splitlines()]
    events = [{**line, "at": f"2031-04-01T09:00:{(line['at'] - BEGAN) // 1000:02d}.000Z"} for line in lines]

    assert pal.json("show", SMALL) == {
        "session": SMALL,
        "cache_checks": {"agreed": 0, "unknown": 0, "disagreed": []},
        "events": events,
    }
    assert pal.json("show", SMALL, "--at", "2")["events"] == events[:3]


def test_events_in_words_have_a_line_each(pal: Pal) -> None:
    small(pal.home)
    lines = pal("show", SMALL, "--events").stdout.splitlines()

    assert len(lines) == 14
    assert lines[2].split()[3] == "user_said"
    assert all(len(line) <= 80 for line in lines)


def test_a_past_request_is_given_byte_for_byte_and_verified(pal: Pal) -> None:
    edited(pal.home)
    result = pal("show", SMALL, "--request", "2")

    body = msgspec.json.decode(result.stdout_bytes)
    assert result.exit_code == 0
    assert result.stderr.startswith("verified: event 7, sha256 ")
    assert body["system"][0]["text"] == "Be brief."
    assert body["max_tokens"] == 1000
    assert [tool["name"] for tool in body["tools"]] == ["read"]
    assert body["messages"][2]["content"][0]["type"] == "tool_result"


def test_every_request_is_verified_after_edits_and_on_branches(pal: Pal) -> None:
    edited(pal.home)
    assert pal("rewind", SMALL, "9").exit_code == 0

    assert [pal("show", SMALL, "--request", str(number)).stderr.partition(":")[0] for number in (1, 2, 3)] == ["verified"] * 3


@pytest.mark.parametrize(("wire", "key"), [("anthropic", "messages"), ("responses", "input"), ("chat", "messages")])
def test_a_request_can_be_shown_in_the_shape_of_any_wire(pal: Pal, wire: str, key: str) -> None:
    small(pal.home)
    result = pal("show", SMALL, "--request", "1", "--wire", wire)

    assert "What is in a.py?" in str(msgspec.json.decode(result.stdout_bytes)[key])
    assert result.stderr.startswith("verified" if wire == "anthropic" else "as it would be sent")


def test_a_request_that_is_not_the_recorded_one_differs_and_is_a_finding(pal: Pal) -> None:
    small(pal.home)
    path = pal.home.store.path_of(SMALL)
    lines = path.read_bytes().splitlines(keepends=True)
    said = decode_line(lines[2], "test")
    digest = digest_of(encode_body(said.body))
    lines[2] = encode_line(2, 1, said.at, said.prev, encode_body(UserSaid((Text("[REDACTED]"),))), digest=digest)
    path.with_suffix(".checkpoint").unlink()
    path.write_bytes(b"".join(lines))
    result = pal("show", SMALL, "--request", "1")

    assert result.exit_code == 1
    assert result.stderr.startswith("differs: event 3 recorded ")
    assert b"[REDACTED]" in result.stdout_bytes


def test_a_session_without_calls_shows_the_request_to_come(pal: Pal) -> None:
    with Log.create(pal.home.store, SessionOpened("fresh"), FixedClock(BEGAN)) as log:
        log.append(UserSaid((Text("hello"),)))
    first = pal("show", "fresh", "--request", "next")
    second = pal("show", "fresh", "--wire", "responses")

    assert msgspec.json.decode(first.stdout_bytes)["messages"][0]["role"] == "user"
    assert first.stderr == "as it would be sent to claude-sonnet-4-5\n"
    assert msgspec.json.decode(second.stdout_bytes)["model"] == "gpt-5.5"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("show", "nope"), "pal: {sessions}: there is no session 'nope'; `pal sessions` lists them\n"),
        (("show", SMALL, "--request", "9"), f"pal: {SMALL}: there is no request 9 in this session: it has 3\n"),
        (("show", SMALL, "--request", "0"), "pal: show: --request takes a number from 1, or `next`, not '0'; see `pal show --help`\n"),
        (
            ("show", SMALL, "--request", "1", "--at", "3"),
            "pal: show: --at works only with `--request next`; a numbered request has its own event; see `pal show --help`\n",
        ),
        (("show",), "pal: show: Missing argument 'ID'; see `pal show --help`\n"),
        (("show", "no/such/file.jsonl"), "pal: no/such/file.jsonl: there is no such file\n"),
    ],
)
def test_wrong_input_is_one_clear_line(pal: Pal, words: tuple[str, ...], line: str) -> None:
    small(pal.home)
    result = pal(*words)

    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line.replace("{sessions}", str(pal.home.store.folder)))


def test_a_moment_that_never_was_is_named_with_the_newest_one(pal: Pal) -> None:
    small(pal.home)

    assert pal.json("show", SMALL, "--at", "99", code=2)["error"]["message"] == "there is no event 99; the newest is 13"
    assert pal.json("show", SMALL, "--at", "-5", code=2)["error"]["kind"] == "input"


def test_an_id_may_be_shortened_while_it_is_the_only_one(pal: Pal) -> None:
    small(pal.home)
    small(pal.home, "20310401-100000-cccc")

    assert pal.json("show", "20310401-09")["session"] == SMALL
    assert pal.json("show", "last")["session"] == "20310401-100000-cccc"
    assert pal("show", "20310401").stderr == (
        f"pal: {pal.home.store.folder}: '20310401' is the prefix of 2 sessions: {SMALL}, 20310401-100000-cccc; give a longer prefix\n"
    )


def test_a_prefix_of_a_session_and_its_own_children_means_the_session(pal: Pal) -> None:
    for session in (SMALL, f"{SMALL}.scout", f"{SMALL}.scout.deeper"):
        small(pal.home, session)

    assert [pal.json("show", word)["session"] for word in ("20310401", SMALL, f"{SMALL}.s")] == [SMALL, SMALL, f"{SMALL}.scout"]
    small(pal.home, f"{SMALL}x")
    assert "is the prefix of 4 sessions" in pal("show", "20310401").stderr


def test_another_model_without_a_number_means_the_request_to_come(pal: Pal) -> None:
    small(pal.home)

    assert pal("show", SMALL, "--model", "gpt-5.5").stdout == pal("show", SMALL, "--request", "next", "--model", "gpt-5.5").stdout
    assert pal("show", SMALL, "--model", "no-such-model").exit_code == 2


@pytest.mark.parametrize(
    "words", [("show", "nope"), ("show", "20310401"), ("delete", SMALL), ("undo", SMALL, "14"), ("nonsense",), ("show", "..")]
)
def test_every_error_for_programs_says_where(pal: Pal, words: tuple[str, ...]) -> None:
    edited(pal.home)
    small(pal.home, "20310401-100000-cccc")

    assert pal.json(*words, code=2)["error"]["where"]


def test_a_session_may_be_named_by_the_path_of_its_file(pal: Pal) -> None:
    small(pal.home)
    result = pal("show", str(pal.home.store.path_of(SMALL)), "--request", "1")

    assert result.stderr.startswith("verified")


def test_control_characters_of_a_log_never_reach_the_terminal(pal: Pal) -> None:
    with Log.create(pal.home.store, SessionOpened("evil"), FixedClock(BEGAN)) as log:
        log.append(UserSaid((Text("a\x1b]0;owned\x07b\u202ec"),)))

    assert "a␛]0;owned␇b\ufffdc" in pal("show", "evil").stdout


def test_a_session_of_a_model_without_a_card_shows_its_next_request_and_its_window_by_a_stand_in(pal: Pal) -> None:
    log = Log.create(pal.home.store, SessionOpened("strange", model="mimo-v2.5-free"), FixedClock(BEGAN))
    log.append(UserSaid((Text("hello"),)))
    log.close()
    note = (
        "pal: no card is known for the model 'mimo-v2.5-free'; that of an OpenAI-compatible server stands in: "
        "wire chat, window 128,000 tokens, price unknown; `pal cards` says how to add a card\n"
    )

    request, context = pal("show", "strange", "--request", "next"), pal("context", "strange", "--json")

    assert (request.exit_code, request.stderr) == (0, f"{note}as it would be sent to mimo-v2.5-free\n")
    assert msgspec.json.decode(request.stdout)["model"] == "mimo-v2.5-free"
    assert (context.exit_code, context.stderr, msgspec.json.decode(context.stdout)["window"]) == (0, note, 128_000)
    assert pal("show", "strange").exit_code == 0
    unknown = pal("show", "strange", "--request", "next", "--model", "mimo-v2.5-free")
    assert (unknown.exit_code, "no card is known for the model" in unknown.stderr) == (2, True)


@pytest.mark.states("PV-08")
def test_thinking_that_is_not_sent_and_what_the_provider_says_of_it_are_shown(pal: Pal) -> None:
    dropped = InputTransformation("thinking_dropped", "messages.1.content.0", "prefix_binding_mismatch")
    with Log.create(pal.home.store, SessionOpened("bound", model="claude-opus-5-5"), FixedClock(BEGAN)) as log:
        thought = Thinking("", Signature("anthropic", "claude-opus-5-5", "sealed"), "sealed")
        log.append(UserSaid((Text("begin"),)))
        call = log.append(CallStarted("claude-opus-5-5", "anthropic")).seq
        log.append(ModelReplied((thought, Text("first", "assistant")), call=call))
        log.append(ViewEdited((Mask(("1.0",), "shorter"),), "clear_dead"))
        call = log.append(CallStarted("claude-opus-5-5", "anthropic")).seq
        log.append(Failed("call", "thinking_refused", "bound to a different conversation", call=call, purpose="turn"))
        call = log.append(CallStarted("claude-opus-5-5", "anthropic", withheld=("3.0",))).seq
        replied = ModelReplied((Text("second", "assistant"),), call=call, usage=Usage(input=100), transformations=(dropped, dropped))
        log.append(replied)
    shown = pal("show", "bound").stdout.splitlines()
    assert [line for line in shown if line.startswith("3.0")] == ["3.0  thinking  0 tokens  [not sent: it no longer fits]"]
    assert shown[-1] == "messages.1.content.0  thinking_dropped  prefix_binding_mismatch"
    assert pal("audit", "bound").stdout.splitlines()[-2:] == [
        "reported by the provider of its input: thinking_dropped (prefix_binding_mismatch) 2x",
        "thinking refused by the provider: 1x",
    ]


@pytest.mark.states("PV-56")
def test_calls_of_which_the_provider_says_something_else_than_was_expected_are_counted_and_named(pal: Pal) -> None:
    compared = Raw(b'{"compared_reply":"msg_1"}')
    changed = CacheDiagnosis("changed", "system_changed", 40_000)
    with Log.create(pal.home.store, SessionOpened("compared"), FixedClock(BEGAN)) as log:
        log.append(UserSaid((Text("first"),)))
        for diagnosis, read in ((CacheDiagnosis("same"), 40_000), (changed, 0), (None, 0)):
            call = log.append(CallStarted("claude-opus-5-5", "anthropic", compared, cached=40_000)).seq
            usage = Usage(input=100, cache_read=read)
            replied = log.append(ModelReplied((Text("yes", "assistant"),), call=call, usage=usage, diagnosis=diagnosis)).seq
    assert pal("show", "compared").stdout.splitlines()[-2:] == [
        "cache: the provider compared 3 requests: 1 as expected, 1 not, 1 unknown",
        f"  event {replied - 2}: 40,000 tokens expected from the cache, 0 read; the provider names system_changed",
    ]
    said = {"found": "changed", "reason": "system_changed", "missed": 40_000}
    differing = {"seq": replied - 2, "expected": 40_000, "read": 0, "diagnosis": said, "agrees": False}
    assert pal.json("show", "compared")["cache_checks"] == {"agreed": 1, "unknown": 1, "disagreed": [differing]}
