from every_case import every_case
from msgspec import Raw
from side_calls import side_reply

from palimpsest.core.events import (
    Body,
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    EditRefused,
    Failed,
    HookRan,
    InputWithdrawn,
    ModeChanged,
    ModelReplied,
    ModelSwitched,
    NotesTaken,
    ProfileChanged,
    Recalled,
    SessionOpened,
    Statement,
    Titled,
    ToolRefused,
    ToolReturned,
    TurnEnded,
    Unknown,
    Usage,
    UserSaid,
    UserTyped,
    ViewEdited,
)
from palimpsest.core.items import Insert, Item, Mask, Put, Text, Thinking, ToolCall, ToolResult, Unmask
from palimpsest.core.log import Log
from palimpsest.exchange.pages import (
    EditEntry,
    InputEntry,
    ItemLine,
    NoteEntry,
    ReplyEntry,
    SessionHeader,
    ToolEntry,
    Turn,
    arguments_of,
    code_blocks,
    cut,
    edit_line,
    gist_of,
    header_of,
    headline,
    outcome_of,
    size_of,
    turn_line,
    turns_of,
    utc_time,
    visible,
)
from palimpsest.stores.in_memory import FixedClock, MemorySessions


def _log(*bodies: Body) -> Log:
    log = Log.create(MemorySessions(), SessionOpened("s", cwd="/repo", model="claude-sonnet-4-5"), FixedClock(1_000, 1_000))
    for body in bodies:
        log.append(body)
    return log


def test_a_turn_has_what_was_said_called_and_given_back_in_its_order() -> None:
    call, result = ToolCall("c", "read", '{"path":"a"}'), ToolReturned(ToolResult("c", (Text("x"),)), "read")
    log = _log(
        ContextStated((Statement("git", "clean"),), (Statement("base", "Be brief.", "system"),)),
        UserTyped((Text("hi"),)),
        UserSaid((Text("hi"),), typed=2),
        CallStarted("claude-sonnet-4-5", "anthropic"),
        ModelReplied((Thinking("hm"), Text("I look.", "assistant"), call), usage=Usage(input=1_000_000, output=0)),
        UserSaid((Text("faster"),), steering=True),
        result,
        TurnEnded(),
        UserSaid((Text("thanks"),)),
    )

    assert list(turns_of(log)) == [
        Turn(
            0,
            (
                InputEntry(1, 2_000, "context", Text("Be brief.", "system"), "base"),
                InputEntry(1, 2_000, "context", Text("clean"), "git"),
            ),
        ),
        Turn(
            1,
            (
                InputEntry(3, 4_000, "user", Text("hi")),
                ReplyEntry(5, 6_000, "claude-sonnet-4-5", Thinking("hm")),
                ReplyEntry(5, 6_000, "claude-sonnet-4-5", Text("I look.", "assistant")),
                ToolEntry(5, 6_000, call, result),
                InputEntry(6, 7_000, "steering", Text("faster")),
            ),
            1,
            Usage(input=1_000_000),
            3.0,
        ),
        Turn(2, (InputEntry(9, 10_000, "user", Text("thanks")),)),
    ]


def test_a_result_without_its_call_is_an_entry_of_its_own() -> None:
    result = ToolReturned(ToolResult("c", (Text("x"),)), "read")
    assert list(turns_of(_log(result))) == [Turn(0, (ToolEntry(1, 2_000, None, result),))]


@every_case(
    ("body", "line", "text"),
    [
        (side_reply("title", "claude-haiku-4-5", text="A title"), "a call beside the conversation (title)", "A title"),
        (Failed("call", "overloaded", "busy"), "call failed: overloaded", "busy"),
        (ToolRefused("c1", "bash", "user", "too wild"), "bash was refused by user", "too wild"),
        (HookRan("lint", "turn_end", failure="was interrupted"), "the hook lint (turn_end) failed", "was interrupted"),
        (InputWithdrawn(1, "hook keys", "no keys here"), "queued input was withdrawn by hook keys", "no keys here"),
        (EditRefused((), "fold", "gate", "no smaller"), "edit was refused by gate", "no smaller"),
        (ModelSwitched("gpt-5.5"), "the model is now gpt-5.5", ""),
        (ProfileChanged("codex"), "the profile is now codex", ""),
        (ModeChanged("plan"), "the mode is now plan", ""),
        (NotesTaken("so far", 0), "notes were taken up to event 0", "so far"),
        (ChildOpened("t", role="scout"), "a sub-agent began: session t", "scout"),
        (ChildEnded("t", "done", "found it"), "a sub-agent ended (done): session t", "found it"),
        (TurnEnded("interrupted"), "the turn ended: interrupted", ""),
        (Unknown(Raw(b'{"type":"dreamt"}'), "dreamt"), "an event of a newer version (dreamt)", ""),
    ],
)
def test_everything_else_worth_a_line_has_one(body: Body, line: str, text: str) -> None:
    (turn,) = turns_of(_log(body))
    assert turn.entries == (NoteEntry(1, 2_000, line, text),)


def test_a_reply_that_broke_off_says_so_and_a_side_call_costs() -> None:
    (turn,) = turns_of(_log(ModelReplied((), error="reset"), side_reply("title", "claude-haiku-4-5", Usage(input=1_000_000))))
    assert turn.entries[0] == NoteEntry(1, 2_000, "the reply broke off", "reset")
    assert (turn.calls, turn.cost) == (2, 1.0)


def test_edits_say_what_they_hid_brought_back_and_made() -> None:
    log = _log(
        Recalled("q", ("n",), parts=(Text("a note"),)),
        UserSaid((Text("one"),)),
        ViewEdited((Mask(("1.0", "2.0"), "(gone)"), Insert((Put("reminder", Text("remember")),))), by="p", why="w", price_usd=0.5),
        ViewEdited((Unmask(("2.0",)),), by="q"),
    )
    (_, turn) = turns_of(log)

    assert turn.entries[1:] == (
        EditEntry(
            3,
            4_000,
            "p",
            "w",
            price=0.5,
            hidden_items=(ItemLine("1.0", "recalled", "a note"), ItemLine("2.0", "user", "one")),
            mask_texts=("(gone)",),
            inserted=(Item("3.1.0", "reminder", Text("remember")),),
        ),
        EditEntry(4, 5_000, "q", restored=(ItemLine("2.0", "user", "one"),)),
    )
    assert [edit_line(edit) for edit in turn.entries[1:] if isinstance(edit, EditEntry)] == [
        "by p: w · costs $0.50 once · hides 2 items · adds 1 item",
        "by q · brings back 1 item",
    ]


def test_what_the_model_does_not_see_any_more_is_said_to_be_hidden() -> None:
    call, result = ToolCall("c", "read", "{}"), ToolReturned(ToolResult("c", (Text("x"),)), "read")
    log = _log(
        ContextStated(head=(Statement("base", "old", "system"),)),
        UserSaid((Text("one"), Text("two"))),
        ModelReplied((Text("ok", "assistant"), call)),
        result,
        ContextStated(head=(Statement("base", "new", "system"),)),
        ViewEdited((Mask(("2.1", "4.0"), "(gone)"),), by="p"),
    )
    entries = [entry for turn in turns_of(log) for entry in turn.entries if isinstance(entry, InputEntry | ReplyEntry | ToolEntry)]
    earlier = [
        entry
        for turn in turns_of(log, log.reader.path(4))
        for entry in turn.entries
        if isinstance(entry, InputEntry | ReplyEntry | ToolEntry)
    ]

    assert [entry.hidden for entry in entries] == [True, False, True, False, True, False]
    assert [entry.hidden for entry in earlier] == [False] * 5


def test_a_model_without_a_price_makes_the_price_unknown() -> None:
    (turn,) = turns_of(_log(ModelReplied((), model="nobody", usage=Usage(input=5, cache_read=7, output=2))))
    assert turn.cost is None
    assert turn_line(turn) == "1 call · 12 tokens read (7 from the cache) · 2 written · price unknown"


def test_the_cover_has_title_model_messages_and_the_number_of_events() -> None:
    log = _log(UserSaid((Text("one"), Text("two"))), UserSaid((Text("no"),), steering=True), Titled("old"), Titled("new"))
    assert header_of(log) == SessionHeader("s", "new", "palimpsest", "/repo", "claude-sonnet-4-5", 1_000, 5, ("one\ntwo",))


def test_arguments_are_shown_each_on_its_line() -> None:
    assert arguments_of(ToolCall("c", "bash", '{"command":"a\\nb","timeout":3,"x":null}')) == "command:\n    a\n    b\ntimeout: 3\nx: null"
    assert arguments_of(ToolCall("c", "bash", "*** Begin", "free")) == "*** Begin"
    assert arguments_of(ToolCall("c", "bash", '{"half')) == '{"half'
    assert arguments_of(ToolCall("c", "bash", "[1]")) == "[1]"


def test_the_gist_of_a_call_is_its_first_text() -> None:
    gists = [gist_of(ToolCall("c", "t", args)) for args in ('{"n":1,"path":"a\\n b"}', '{"n":1}', "{}", "free\ntext", "")]
    assert gists == ["a b", '{"n":1}', "", "free text", ""]


def test_outcomes_show_size_error_and_exit_code() -> None:
    failed = ToolReturned(ToolResult("c", (Text("a\nb\n"),), error=True), exit=2)
    assert outcome_of(ToolEntry(1, 1, None, failed)) == "2 lines, 4 bytes, error, exit 2"
    assert outcome_of(ToolEntry(1, 1, None, ToolReturned(ToolResult("c")))) == "nothing"


def test_texts_are_cut_measured_and_made_visible() -> None:
    assert cut("abcdefghi", 6) == "abcd\n… 3 characters are left out here …\nhi"
    assert [cut("abc", 3), cut("abc", None)] == ["abc", "abc"]
    assert [size_of("é"), size_of("a\n" * 6_000)] == ["1 line, 2 bytes", "6,000 lines, 12 kB"]
    assert headline("a " * 100, 9) == "a a a a…"
    assert visible("\x07\x7f\x9b\u2067a\tb") == "␇␡��a\tb"
    assert [utc_time(0), utc_time(10**18)] == ["1970-01-01 00:00:00 UTC", f"{10**18} ms"]


def test_only_a_fence_at_the_beginning_of_a_line_opens_a_block_of_code() -> None:
    assert code_blocks("a\n```py\nx\n````\nb\n ```\nc") == [(False, "a"), (True, "```py\nx\n````"), (False, "b\n ```\nc")]
    assert code_blocks("~~~\n```\n~~\n~~~ \nz") == [(True, "~~~\n```\n~~\n~~~ "), (False, "z")]
    assert code_blocks("```a`b\nc") == [(False, "```a`b\nc")]


def test_the_size_of_an_edit_is_shown_only_if_both_of_its_numbers_are_known() -> None:
    sizes = ((900, 40), (900, 0), (0, 40))
    lines = [edit_line(EditEntry(4, 5_000, "q", tokens_before=before, tokens_after=after)) for before, after in sizes]
    assert lines == ["by q · 900 → 40 tokens", "by q", "by q"]
