from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tiny_format import BEGAN, Tiny, reply, source_of, user, written

from palimpsest.core.events import ContextStated, Failed, ModelReplied, Statement, ToolReturned, UserSaid
from palimpsest.core.items import Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.core.redaction import redact
from palimpsest.exchange.importing import import_session, provenance_of
from palimpsest.exchange.secrets import AnyValue, RedactingBlobs, clean_value, count_secrets, line_batches
from palimpsest.exchange.secrets import redacted as without_secrets
from palimpsest.exchange.transcript import ReadOutput
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

TOKEN = "ghp_" + "a1B2" * 9
KEY = "AKIA" + "ABCD1234" * 2
PASSWORD = "c0rrect-Horse-battery"
TALK: tuple[dict[str, Any], ...] = (
    user("u1", f"my token\n{TOKEN}\tis here", extra={"env": {"password": PASSWORD}, "key": "u1"}),
    reply("r1", f'I use "{KEY}".', calls=["c1"]),
    {"id": "t1", "kind": "result", "call": "c1", "text": f"again {TOKEN}"},
    {"id": "p1", "kind": "picture", "text": f"a text kept aside: {KEY}"},
    {"id": "f1", "kind": "fold", "first": "u1", "text": f"the token is {TOKEN}"},
)


def redacted(value: AnyValue) -> AnyValue:
    return clean_value(value, redact)


def bring(path: Path, blobs: Blobs, *, times: int = 0) -> tuple[bytes, dict[str, int]]:
    store = MemorySessions()

    def through(outputs: Iterator[ReadOutput]) -> Iterator[ReadOutput]:
        for _ in range(times):
            outputs = without_secrets(outputs)
        return outputs

    for _ in range(times):
        blobs = RedactingBlobs(blobs)
    import_session(Tiny(), source_of(path), store, blobs, FixedClock(BEGAN), through=through)
    data = b"".join(chunk for _, chunk in store.open("tiny-a").chunks())
    return data, count_secrets([data])


def test_secrets_are_counted_by_class_each_once(tmp_path: Path) -> None:
    data, found = bring(written(tmp_path / "a.tiny", *TALK), MemoryBlobs())

    assert found == {"assignment": 1, "aws": 1, "github": 1}
    assert TOKEN.encode() in data


def test_redacting_leaves_no_secret_in_bodies_lines_edits_and_blobs_and_keeps_the_keys(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)
    blobs = MemoryBlobs()
    plain, _ = bring(path, MemoryBlobs())
    data, found = bring(path, blobs, times=1)

    assert found == {}
    assert [secret for secret in (TOKEN, KEY, PASSWORD) if secret.encode() in data] == []
    assert [blobs.get(address) for address in blobs.addresses()] == [b"a text kept aside: [REDACTED:aws]"]
    events, before = ([msgspec.json.decode(line)["body"] for line in lines.splitlines()] for lines in (data, plain))
    assert [event["foreign"].get("key") for event in events] == [event["foreign"].get("key") for event in before]
    assert events[1]["parts"] == [{"type": "text", "text": "my token\n[REDACTED:github]\tis here"}]
    assert events[1]["foreign"]["line"] == {"extra": {"env": {"password": "[REDACTED:assignment]"}, "key": "u1"}}


def test_redacting_twice_gives_the_same_log(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)
    once, _ = bring(path, MemoryBlobs(), times=1)
    twice, _ = bring(path, MemoryBlobs(), times=2)

    assert once == twice


def test_every_text_of_a_body_is_redacted_but_names_and_seals_stay() -> None:
    seal = Signature("anthropic", "m", TOKEN)
    assert redacted(ContextStated((Statement("git", TOKEN),), head=(Statement("base", KEY, "system"),))) == ContextStated(
        (Statement("git", "[REDACTED:github]"),), head=(Statement("base", "[REDACTED:aws]", "system"),)
    )
    assert redacted(ModelReplied((Thinking("hm", seal), ToolCall(TOKEN, "bash", f'{{"command":"echo {TOKEN}"}}')))) == ModelReplied(
        (Thinking("hm", seal), ToolCall(TOKEN, "bash", '{"command":"echo [REDACTED:github]"}'))
    )
    assert redacted(ToolReturned(ToolResult(TOKEN, (Text(KEY),)), paths=(KEY,))) == ToolReturned(
        ToolResult(TOKEN, (Text("[REDACTED:aws]"),)), paths=("[REDACTED:aws]",)
    )
    assert redacted(Failed("call", "auth", f"401 for {TOKEN}")) == Failed("call", "auth", "401 for [REDACTED:github]")


def test_what_has_no_secret_is_handed_on_as_it_is(tmp_path: Path) -> None:
    said = UserSaid((Text("hello"),))
    assert redacted(said) is said

    written(tmp_path / "a.tiny", user("u1", "hello", extra={"b": 1, "a": [1.50, "é"]}))
    with_, _ = bring(tmp_path / "a.tiny", MemoryBlobs(), times=1)
    without, _ = bring(tmp_path / "a.tiny", MemoryBlobs())
    assert with_ == without
    body = redacted(UserSaid((Text("x"),), foreign=Raw(b'{"key":"k", "line":{"a":1}}')))
    assert provenance_of(body) is not None
    assert bytes(body.foreign) == b'{"key":"k", "line":{"a":1}}'


@given(st.lists(st.binary(max_size=40_000).map(lambda line: line.replace(b"\n", b" ") + b"\n"), max_size=6), st.integers(0, 6))
def test_lines_of_a_log_come_whole_and_none_is_missing(lines: list[bytes], first: int) -> None:
    log = MemorySessions(chunk_bytes=100_000).create("a", b"".join(lines) + b"later\n")
    start, stop = len(b"".join(lines[:first])), len(b"".join(lines))

    found = list(line_batches(log, start, stop))

    assert b"".join(found) == b"".join(lines[first:])
    assert all(chunk.endswith(b"\n") for chunk in found)


def test_thinking_that_was_redacted_loses_the_seal_that_no_longer_fits() -> None:
    seal = Signature("anthropic", "m", "sealed")
    assert redacted(Thinking("nothing to hide", seal)) == Thinking("nothing to hide", seal)
    assert redacted(Thinking("AKIAIOSFODNN7QWERTYU", seal)).signature is None


def test_arguments_of_a_call_stay_json_whatever_is_taken_out_of_them() -> None:
    args = '{"body":"{\\"password\\":\\"c0rrect-Horse\\"}","note":"plain"}'
    call = redacted(ToolCall("c1", "http", args))
    assert msgspec.json.decode(call.args) == {"body": '{"password":"[REDACTED:assignment]"}', "note": "plain"}
