import json

from every_case import every_case
from hypothesis import given as drawn
from hypothesis import strategies as st

from pal.replay.probes import (
    CommandOutcome,
    EditedFile,
    Fact,
    LastValue,
    NamedIn,
    Probe,
    ProbedText,
    QuotedText,
    RecordedTexts,
    Score,
    answerable,
    assignments,
    fact_checker,
    named_values,
    path_ending,
    probes_of,
    score,
    spread,
    visible,
)
from palimpsest.core.events import Body, Event, ModelReplied, SessionOpened, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Content, Fold, Keep, Mask, Part, Put, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.core.view_projection import project


def _events(*bodies: Body) -> tuple[Event, ...]:
    return tuple(Event(seq, seq - 1, 1_000 * seq, "", body) for seq, body in enumerate((SessionOpened("s"), *bodies)))


def _said(text: str) -> UserSaid:
    return UserSaid((Text(text),))


def _replied(*parts: Content) -> ModelReplied:
    return ModelReplied(parts)


def _call(number: int, tool: str, **args: str) -> ToolCall:
    return ToolCall(f"c{number}", tool, json.dumps(args))


def _gave(number: int, text: str, tool: str = "", exit_code: int | None = None, *, error: bool = False) -> ToolReturned:
    parts: tuple[Part, ...] = (Text(text),)
    return ToolReturned(ToolResult(f"c{number}", parts, error=error), tool, exit_code)


ENGLISH = _events(
    _said("Fix the timeout in src/shop/cart.py. Never touch migrations/."),
    _replied(Text("I read it.", "assistant"), _call(1, "Read", file_path="/repo/src/shop/cart.py")),
    _gave(1, "request_timeout = 30\nretries = 5\n", "Read"),
    _replied(_call(2, "Edit", file_path="/repo/src/shop/cart.py", old_string="request_timeout = 30", new_string="request_timeout = 45")),
    _gave(2, "changed", "Edit"),
    _replied(_call(3, "Bash", command="pytest -q tests/shop")),
    _gave(3, "1 failed, 41 passed in 2.10s", "Bash", 1),
    _replied(_call(4, "TodoWrite", todos="- [ ] update the changelog\n- [x] fix the timeout")),
    _gave(4, "ok", "TodoWrite"),
    _replied(Text("request_timeout is higher now; one test still fails.", "assistant")),
)
CHINESE = _events(
    _said("把购物车的超时改掉。不要修改 migrations 目录。"),
    _replied(_call(1, "Read", file_path="/repo/配置/cart.toml")),
    _gave(1, "超时时间：30\n重试次数：15\n", "Read"),
    _replied(Text("超时时间太短，我来改。", "assistant"), _call(2, "Bash", command="pytest -q 测试")),
    _gave(2, "3 passed in 0.20s", "Bash", 0),
)


def test_questions_come_with_their_answers() -> None:
    failed = CommandOutcome("pytest -q tests/shop", 1, "1 failed, 41 passed in 2.10s", 7)
    assert probes_of(ENGLISH) == (
        Probe(
            "asked",
            "What did the user ask at turn 1?",
            (QuotedText("Fix the timeout in src/shop/cart.py."), QuotedText("Never touch migrations/.")),
        ),
        Probe("edited", "Which files were edited?", (EditedFile("/repo/src/shop/cart.py"),)),
        Probe("commands", "Which commands were run last, and how did each end?", (failed,)),
        Probe("tests", "What was the exit code of the last test run?", (failed,)),
        Probe("values", "Which value did request_timeout have last?", (LastValue("request_timeout", "45"),)),
        Probe("open", "What is still open?", (QuotedText("update the changelog"), failed)),
        Probe("concluded", "What did the agent conclude?", (NamedIn("request_timeout", ("is",)),)),
    )


def test_questions_are_derived_from_chinese_sessions_too() -> None:
    found = {probe.kind: probe.facts for probe in probes_of(CHINESE)}
    assert found["asked"] == (QuotedText("把购物车的超时改掉。"), QuotedText("不要修改 migrations 目录。"))
    assert found["values"] == (LastValue("超时时间", "30"),)
    assert found["tests"] == (CommandOutcome("pytest -q 测试", 0, "3 passed in 0.20s", 5),)
    assert "open" not in found


def test_steering_and_words_that_could_stand_anywhere_are_no_questions() -> None:
    events = _events(_said("ok"), UserSaid((Text("Look at the second file instead."),), steering=True), _said("继续"))
    assert [probe.question for probe in probes_of(events) if probe.kind == "asked"] == ["What did the user ask at turn 2?"]


def test_a_message_of_which_nothing_reads_like_a_sentence_counts_by_its_lines() -> None:
    events = _events(_said("at Object.run (http://localhost/a.ts:17:40)\n\nat main (b.ts:2)"))
    (asked, *_) = probes_of(events)
    assert asked.facts == (QuotedText("at Object.run (http://localhost/a.ts:17:40)"), QuotedText("at main (b.ts:2)"))


def test_things_are_spread_with_both_ends() -> None:
    assert spread(range(5), 5) == [0, 1, 2, 3, 4]
    assert spread(range(100), 4) == [0, 33, 66, 99]


def test_of_more_than_a_hundred_facts_as_many_are_asked_for_at_even_distances_whatever_they_are() -> None:
    edits = [_call(number, "Write", file_path=f"/repo/src/part_{number}.py", content="x") for number in range(150)]
    written = [_gave(number, "written", "Write") for number in range(150)]
    wishes = " ".join(f"Look at part {number} first." for number in range(150))
    todos = "\n".join(f"- [ ] finish part {number}" for number in range(150))
    planned = (_replied(_call(200, "TodoWrite", todos=todos)), _gave(200, "ok", "TodoWrite"))
    found = {probe.kind: probe.facts for probe in probes_of(_events(_said(wishes), _replied(*edits), *written, *planned))}
    assert found["asked"] == tuple(spread([QuotedText(f"Look at part {number} first.") for number in range(150)], 100))
    assert found["edited"] == tuple(spread([EditedFile(f"/repo/src/part_{number}.py") for number in range(150)], 100))
    assert found["open"] == tuple(spread([QuotedText(f"finish part {number}") for number in range(150)], 100))


@every_case(
    ("text", "found"),
    [
        ("max_tokens = 8192", [("max_tokens", "8192")]),
        ('{"maxTokens": 8192, "top": 40}', [("maxTokens", "8192")]),
        ("pool_size: -12\nratio_of: 0.25", [("pool_size", "-12"), ("ratio_of", "0.25")]),
        ("超时为30，端口号：8080", [("超时", "30"), ("端口号", "8080")]),
        ("started_at: 12:30:05", []),
        ("version_no = 1.2.3", []),
        ("see page_count=7", []),
        ("window = 8192", []),
        ("a.py:max_size=10_000", [("max_size", "10_000")]),
    ],
)
def test_a_name_has_a_value_where_a_sign_gives_it_a_number(text: str, found: list[tuple[str, str]]) -> None:
    assert list(assignments(text)) == found


def test_the_newest_value_counts_and_one_that_a_text_gives_twice_does_not() -> None:
    events = _events(
        _replied(_call(1, "Bash", command="cat a")),
        _gave(1, "pool_size = 10\nrow_limit = 20\nrow_limit = 30\nnever_named = 40", "Bash", 0),
        _replied(Text("pool_size and row_limit matter", "assistant"), _call(2, "Bash", command="cat b")),
        _gave(2, "pool_size = 12", "Bash", 0),
        _replied(_call(3, "Bash", command="cat c")),
        _gave(3, "pool_size = 99", "Bash", 1, error=True),
    )
    assert named_values(events) == [LastValue("pool_size", "12")]


@every_case(
    ("fact", "piece", "proven"),
    [
        (QuotedText("Never touch  migrations/."), ProbedText("He said: Never touch\nmigrations/. And left."), True),
        (QuotedText("Never touch migrations/."), ProbedText("Never touch the migrations/."), False),
        (EditedFile("/repo/src/shop/cart.py"), ProbedText("- src/: shop/cart.py"), True),
        (EditedFile("C:\\repo\\shop\\cart.py"), ProbedText("edited C:\\repo\\shop\\cart.py"), True),
        (EditedFile("/repo/src/shop/cart.py"), ProbedText("shop/cart.pyc"), False),
        (EditedFile("/repo/src/shop/cart.py"), ProbedText("src/shop/cart.py:3: def run", 4, result=True), False),
        (CommandOutcome("make all", 2, "", 7), ProbedText("whatever it printed", 7, result=True), True),
        (CommandOutcome("make all", 2, "", 7), ProbedText("whatever it printed", 8, result=True), False),
        (CommandOutcome("make all", 2, "", 7), ProbedText("Commands:\n- [2] make all\n- [0] ls"), True),
        (CommandOutcome("make all", 2, "", 7), ProbedText("- [0] make all\n- [2] ls"), False),
        (CommandOutcome("make all", 2, "", 7), ProbedText("- [2] make all-docs"), True),
        (CommandOutcome("make all", 2, "", 7), ProbedText("- [2] make allow"), False),
        (CommandOutcome("echo " + 30 * "ab ", 3, "", 7), ProbedText("- [3] echo " + 30 * "ab "), True),
        (CommandOutcome("echo " + 30 * "ab", 3, "", 7), ProbedText("- [3] echo " + 27 * "ab"), False),
        (CommandOutcome("echo " + 30 * "ab", 3, "", 7), ProbedText("- [3] echo " + 28 * "ab"), True),
        (CommandOutcome("echo " + 30 * "ab", 3, "", 7), ProbedText("- [0] echo " + 28 * "ab"), False),
        (CommandOutcome("pytest", 1, "3 failed, 4 passed", 7), ProbedText("Last: 3 failed, 4 passed."), True),
        (CommandOutcome("pytest", 1, "FAILED", 7), ProbedText("it FAILED"), False),
        (CommandOutcome("pytest", None, "", 7), ProbedText("- [?] pytest"), False),
        (CommandOutcome("cd a\nmake all", 2, "", 7), ProbedText("- [2] cd a\nmake all"), True),
        (LastValue("pool_size", "12"), ProbedText("x\npool_size = 12"), True),
        (LastValue("pool_size", "12"), ProbedText("pool_size = 112"), False),
        (LastValue("pool_size", "12"), ProbedText("pool_size = 12.5"), False),
        (LastValue("pool_size", "12"), ProbedText("pool_size\n12"), False),
        (LastValue("pool_size", "12"), ProbedText("my_pool_size = 12"), False),
        (LastValue("超时时间", "30"), ProbedText("现在超时时间是30秒"), True),
    ],
)
def test_a_fact_is_proven_by_rules(fact: Fact, piece: ProbedText, *, proven: bool) -> None:
    assert fact_checker((piece,))(fact) is proven


def test_every_kind_of_question_weighs_the_same_however_many_there_are() -> None:
    probes = (
        Probe("asked", "1?", (QuotedText("the first wish"), QuotedText("the second wish"))),
        Probe("asked", "2?", (QuotedText("the third wish"),)),
        Probe("values", "3?", (LastValue("pool_size", "12"),)),
    )
    seen = (ProbedText("the first wish, the third wish"),)
    assert score(probes, seen) == Score(0.375, {"asked": 0.75, "values": 0.0})
    assert score(probes, seen, (ProbedText("pool_size = 12"),)) == Score(0.875, {"asked": 0.75, "values": 1.0})
    assert score((), seen) == Score(1.0, {})


def test_facts_that_the_recording_does_not_prove_are_not_asked() -> None:
    probes = (
        Probe("asked", "1?", (QuotedText("the first wish"), QuotedText("the second wish"))),
        Probe("values", "2?", (LastValue("pool_size", "12"),)),
    )
    assert answerable(probes, (ProbedText("the first wish"),)) == (Probe("asked", "1?", (QuotedText("the first wish"),)),)


SAME = {seq: seq for seq in range(11)}


def _view(*edits: Fold | Mask) -> View:
    return project((*ENGLISH, Event(11, 10, 11_000, "", ViewEdited(edits, "test"))))


def test_masked_and_folded_contents_are_not_seen_and_thinking_never_is() -> None:
    events = _events(_said("Hello there."), _replied(Thinking("hm"), _call(1, "Bash", command="ls")), _gave(1, "a.txt", "Bash", 0))
    edited = Event(4, 3, 4_000, "", ViewEdited((Mask(("3.0",), "[Bash ls: 3 tokens, id 3.0]"),), "test"))
    assert visible(project((*events, edited)), {1: 101, 2: 102, 3: 103}) == (
        ProbedText("Hello there.", 101),
        ProbedText("", 102),
        ProbedText("Bash\nls", 102),
        ProbedText("[Bash ls: 3 tokens, id 3.0]"),
    )


def test_one_recall_brings_what_a_stub_or_a_fold_names_by_its_id() -> None:
    recorded = RecordedTexts(ENGLISH)
    masked = _view(Mask(("7.0",), "[Bash pytest: 9 tokens, id 7.0]"))
    assert recorded.reachable(masked, SAME) == (ProbedText("1 failed, 41 passed in 2.10s", 7, result=True),)

    reported = Put(
        "summary", Text('Earlier messages:\n- 1.0, 2026-01-01 10:00: Fix the\n- forbidden (1.0): "Never"\nversion 7.0 was released')
    )
    folded = _view(Fold("1.0", "9.0", (reported,)))
    assert recorded.reachable(folded, SAME) == (ProbedText("Fix the timeout in src/shop/cart.py. Never touch migrations/.", 1),)


def test_one_recall_brings_the_newest_content_of_a_path_that_is_named() -> None:
    recorded = RecordedTexts(ENGLISH)
    folded = _view(Fold("1.0", "9.0", (Put("summary", Text("edited: src/shop/cart.py")),)))
    assert [piece.event for piece in recorded.reachable(folded, SAME)] == [3, 4]
    unnamed = _view(Fold("1.0", "9.0", (Put("summary", Text("something was edited")),)))
    assert recorded.reachable(unnamed, SAME) == ()
    kept = _view(Fold("1.0", "9.0", (Put("summary", Text("cart.py")), Keep("2.1"), Keep("3.0"))))
    assert [piece.event for piece in recorded.reachable(kept, SAME)] == [4]


def test_one_recall_brings_the_whole_of_a_result_that_says_where_it_is_kept() -> None:
    recorded = RecordedTexts(_events(_replied(_call(1, "Bash", command="env")), _gave(1, "pool_size = 12\nand much more", "Bash", 0)))

    def reached(shown: str) -> list[str]:
        result = ToolResult("c1", (Text(shown),), blob="4be1f0")
        view = project(_events(_replied(_call(1, "Bash", command="env")), ToolReturned(result, "Bash", 0)))
        return [piece.text for piece in recorded.reachable(view, SAME)]

    assert reached("[the whole is kept as 4be1f0]") == ["pool_size = 12\nand much more"]
    assert reached("…12 tokens truncated…") == []


def test_a_path_is_known_by_its_last_two_parts() -> None:
    assert [path_ending(path) for path in ("/a/b/c.py", "c.py", "C:\\x\\y.ts", "src/")] == ["b/c.py", "c.py", "x/y.ts", "src"]


@drawn(st.lists(st.booleans(), min_size=7, max_size=7), st.lists(st.booleans(), min_size=7, max_size=7))
def test_seeing_less_never_scores_more(first: list[bool], second: list[bool]) -> None:
    pieces = RecordedTexts(ENGLISH).texts
    probes = probes_of(ENGLISH)
    less = [piece for piece, one, other in zip(pieces, first, second, strict=False) if one and other]
    more = [piece for piece, one in zip(pieces, first, strict=False) if one]
    assert score(probes, less).total <= score(probes, more).total <= score(probes, pieces).total == 1.0
    assert score(probes, less, more) == score(probes, more)
