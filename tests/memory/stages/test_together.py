"""Steps side by side: what they ask is asked at once, an error reaches its own steps only, and what ends one by force closes all."""

from collections.abc import Generator

import pytest

from palimpsest.core.errors import BadInput, NoModel, PalimpsestError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text, text_of
from palimpsest.core.plans import Answer, Ask, AskTogether, Look, Replies, Want
from palimpsest.memory.stage_one import together

Steps = Generator[Want, Answer, str]


def asking(name: str, ended: list[str], *, times: int = 1) -> Steps:
    words = ""
    try:
        for _ in range(times):
            try:
                answer = yield Ask((), name, "memory")
            except PalimpsestError as error:
                return f"{name}: {error.message}"
            assert isinstance(answer, ModelReplied)
            words += text_of(answer.parts[0])
    finally:
        ended.append(name)
    return words


def run(steps: Generator[Want, Answer, tuple[str, ...]], failing: str = "") -> tuple[list[list[str]], tuple[str, ...]]:
    """The rounds of questions, and the results; the question of this name fails."""
    rounds: list[list[str]] = []
    given: Answer = None
    while True:
        try:
            want = steps.send(given)
        except StopIteration as stop:
            return rounds, stop.value
        assert isinstance(want, AskTogether)
        rounds.append([each.prompt for each in want.asks])
        given = Replies(
            tuple(
                NoModel("none") if each.prompt == failing else ModelReplied((Text(f"<{each.prompt}>", "assistant"),)) for each in want.asks
            )
        )


def test_at_most_so_many_ask_at_once_and_results_keep_their_order() -> None:
    ended: list[str] = []
    rounds, results = run(together([asking(name, ended, times=2 if name == "a" else 1) for name in "abcd"], 2))
    assert rounds == [["a", "b"], ["a", "c"], ["d"]]
    assert results == ("<a><a>", "<b>", "<c>", "<d>")
    assert sorted(ended) == ["a", "b", "c", "d"]


def test_the_error_of_one_question_leaves_the_others_alone() -> None:
    _, results = run(together([asking(name, []) for name in "abc"], 3), failing="b")
    assert results == ("<a>", "b: none", "<c>")


def test_all_are_closed_if_the_run_ends_before_they_do() -> None:
    ended: list[str] = []
    steps = together([asking(name, ended) for name in "ab"], 2)
    next(steps)
    steps.close()
    assert ended == ["a", "b"]


def test_other_wants_are_refused() -> None:
    def looking() -> Steps:
        yield Look("file")
        return ""

    with pytest.raises(BadInput, match="can only ask"):
        next(together([looking()], 1))
