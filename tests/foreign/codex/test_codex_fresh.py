"""What happened outside Codex in its own lines: roles, messages, folds and the tokens after them."""

import json
from collections.abc import Iterable
from pathlib import Path

from codex_homes import CODEX, SESSION
from codex_written import CONVERSATION, kinds, native, taken
from readings import Home
from rollouts import answered, context, counted, ended, message, meta, write
from rollouts import said as typed

from palimpsest.audit.sizes import responses_size
from palimpsest.core.events import CallStarted, ContextStated, Interrupted, ModelReplied, Statement, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Mask, Put, Signature, Text, Thinking, ToolCall
from palimpsest.core.log import Log
from palimpsest.exchange.codex.writer import write_codex
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card


def test_context_of_the_user_role_keeps_it_and_only_what_would_be_misread_says_what_it_is(tmp_path: Path) -> None:
    log, blobs = native(
        ContextStated((Statement("rules", "Be brief."), Statement("mode", "Plan first.", "developer"), Statement("user.name", "Ada"))),
        ContextStated((Statement("environment", "<environment_context>linux</environment_context>"),)),
        UserSaid((Text("<environment_context>what is this?</environment_context>"),)),
        UserSaid((Text("go"),), steering=True),
    )
    items = [json.loads(each)["payload"] for each in write_codex(log, blobs) if b'"response_item"' in each]
    assert items == [
        {**message("user", "Be brief."), **kinds("rules")},
        message("developer", "Plan first."),
        {**message("user", "Ada"), **kinds("context.user.name")},
        message("user", "<environment_context>linux</environment_context>"),
        {**message("user", "<environment_context>what is this?</environment_context>"), **kinds("user.text")},
        message("user", "go"),
    ]
    home, session = taken(b"".join(write_codex(log, blobs)), tmp_path)
    assert [(item.kind, item.source) for item in Log.open(home.store, session, FixedClock(1)).view.items] == [
        ("context", "rules"),
        ("context", "developer"),
        ("context", "context.user.name"),
        ("context", "environment"),
        ("user", ""),
        ("user", ""),
    ]


NO_TOKENS = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0, "reasoning_output_tokens": 0}


def counts(lines: Iterable[bytes]) -> list[tuple[str, int, int]]:
    """Folds and token counts in order: the kind of line, the tokens in use, and the tokens of the whole session."""
    found = []
    for each in map(json.loads, lines):
        payload = each["payload"]
        if each["type"] == "compacted":
            found.append(("compacted", 0, 0))
        elif payload.get("type") == "token_count":
            info = payload["info"]
            found.append(("token_count", info["last_token_usage"]["total_tokens"], info["total_token_usage"]["total_tokens"]))
    return found


def test_a_fold_is_followed_by_the_tokens_that_it_left_so_that_codex_does_not_fold_again(tmp_path: Path) -> None:
    log, blobs = native(*CONVERSATION)
    summary = Fold(log.view.ids[0], log.view.ids[-1], (Put("summary", Text("They looked.")),))
    log.append(ViewEdited((summary,), by="test", tokens_before=225, tokens_after=31))
    lines = list(write_codex(log, blobs))
    assert counts(lines) == [("token_count", 110, 110), ("token_count", 115, 225), ("compacted", 0, 0), ("token_count", 31, 225)]
    assert json.loads(lines[-1])["payload"]["info"]["last_token_usage"] == {**NO_TOKENS, "total_tokens": 31}
    home, session = taken(b"".join(lines), tmp_path)
    assert [body.tokens_after for body in home.bodies(session) if isinstance(body, ViewEdited)] == [31]


def test_a_fold_of_a_session_of_codex_is_followed_by_its_tokens_too(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), context(), typed("a"), answered("b"), counted(1010, 1000), ended())
    home = Home()
    home.take(CODEX, path)
    log = Log.open(home.store, SESSION, FixedClock(1_794_724_500_000), write=True)
    fold = Fold(log.view.ids[0], log.view.ids[-1], (Put("summary", Text("They spoke.")),))
    log.append(ViewEdited((fold,), by="test", tokens_after=7))
    assert counts(write_codex(log, home.blobs)) == [("token_count", 1010, 1010), ("compacted", 0, 0), ("token_count", 7, 1010)]
    log.close()


def test_an_edit_without_a_count_changes_the_reported_tokens_by_the_rule_of_codex() -> None:
    log, blobs = native(*CONVERSATION)
    cleared = log.view.items[6]
    log.append(ViewEdited((Mask((cleared.id,), "[cleared]"),), by="test"))
    log.append(UserSaid((Text("more"),)))
    # The provider reported 115; the result has 16 tokens and its mask 17, and the message comes after both lines.
    assert responses_size(cleared.content) == 16
    assert counts(write_codex(log, blobs))[2:] == [("compacted", 0, 0), ("token_count", 115 - 16 + 17, 225)]


def test_a_message_of_context_and_words_stays_one_message() -> None:
    log, blobs = native(
        ContextStated((Statement("datetime", "It is noon.", ref="m1"),)),
        UserSaid((Text("go", ref="m1"),)),
        ContextStated((Statement("reminder", "Be brief.", ref="m1"),)),
        ContextStated((Statement("tables", "none", ref="m2"),)),
    )
    items = [json.loads(each)["payload"] for each in write_codex(log, blobs) if b'"response_item"' in each]
    assert items == [
        {**message("user", "It is noon.", "go", "Be brief."), **kinds("datetime", "user.text", "reminder")},
        {**message("user", "none"), **kinds("tables")},
    ]


def test_parts_of_one_message_that_a_fold_kept_are_not_mistaken_for_the_same_words_elsewhere(tmp_path: Path) -> None:
    log, blobs = native(
        UserSaid((Text("a"),)),
        ModelReplied((Text("\n", "assistant"),)),
        UserSaid((Text("b"),)),
        ModelReplied((Text("\n", "assistant"), Text("two", "assistant"))),
    )
    log.append(ViewEdited((Fold("1.0", "2.0", (Put("summary", Text("They spoke.")),)),), by="test"))
    home, session = taken(b"".join(write_codex(log, blobs)), tmp_path)
    request = encode(Log.open(home.store, session, FixedClock(1)).view, card("gpt-5.5"))
    assert json.loads(request.body)["input"] == [
        message("user", "They spoke."),
        message("user", "b"),
        message("assistant", "\n", "two"),
    ]


def test_a_reply_beside_the_conversation_counts_and_is_not_written_and_what_had_arrived_of_a_broken_one_is() -> None:
    log, blobs = native(
        UserSaid((Text("go"),)),
        CallStarted("gpt-5.5", "responses"),
        ModelReplied((Text("one", "assistant"),), 2, Usage(10, output=1)),
        CallStarted("gpt-5.5", "responses", purpose="title"),
        ModelReplied((Text("A title", "assistant"),), 4, Usage(5, output=1), purpose="title"),
        CallStarted("gpt-5.5", "responses"),
        Interrupted(6, (Text("tw", "assistant"), ToolCall("a", "ls", '{"pa')), "the stream broke", Usage(20, output=1)),
    )
    lines = list(write_codex(log, blobs))
    items = [json.loads(each)["payload"] for each in lines if b'"response_item"' in each]
    assert items == [message("user", "go"), message("assistant", "one"), message("assistant", "tw")]
    assert counts(lines) == [("token_count", 11, 11), ("token_count", 21, 38)]


def test_messages_of_one_reply_stay_apart_and_parts_around_a_thought_of_another_provider_together(tmp_path: Path) -> None:
    sealed = Thinking("hm", Signature("anthropic", "claude-sonnet-4-5", "seal"))
    log, blobs = native(
        UserSaid((Text("go"),)),
        ModelReplied((Text("one", "assistant"),)),
        ModelReplied((Text("two", "assistant"), sealed, Text("three", "assistant"))),
    )
    home, session = taken(b"".join(write_codex(log, blobs)), tmp_path)
    shows = [message("user", "go"), message("assistant", "one"), message("assistant", "two", "three")]
    for view in (log.view, Log.open(home.store, session, FixedClock(1)).view):
        assert json.loads(encode(view, card("gpt-5.5")).body)["input"] == shows
