"""Titles of sessions: with and without a model, once, in any script."""

from dataclasses import replace

import pytest
from job_stubs import PlainJob, after_turns, job_runs, last

from palimpsest.core.errors import ProviderError
from palimpsest.core.events import CallStarted, JobRan, ModelReplied, Titled
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.policies.jobs import GiveTitle, title_of
from palimpsest.providers.scripted import ScriptedReply


def titles(log: Log) -> list[Titled]:
    return [event.body for event in log.events() if isinstance(event.body, Titled)]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        pytest.param("Fix the build", "Fix the build", id="a short message is its own title"),
        pytest.param("\n\n  # Why is CI red?\nLog below", "Why is CI red?", id="the first line with words"),
        pytest.param("The parser drops comments. Please fix that soon.", "The parser drops comments", id="the first sentence"),
        pytest.param("Hi. The parser drops comments. Fix it.", "Hi. The parser drops comments", id="a greeting is not enough"),
        pytest.param("Upgrade to 3.12.1 everywhere", "Upgrade to 3.12.1 everywhere", id="a point within a word ends nothing"),
        pytest.param("解析器会丢掉注释。请修复它。", "解析器会丢掉注释", id="a sentence without spaces"),
        pytest.param("a" * 100, "a" * 71 + "…", id="a long word"),
        pytest.param("word " * 30, "word word word word word word word word word word word word word word…", id="cut behind a word"),
        pytest.param("注释" * 40, "注释" * 17 + "注…", id="wide characters count twice"),
        pytest.param("e\u0301" * 72, "e\u0301" * 72, id="combining marks count nothing"),
        pytest.param("a\tb\x1b[31m\u202ec", "a b [31m c", id="control characters are left out"),
        pytest.param('"Quoted"', "Quoted", id="quotation marks are left out"),
        pytest.param("...\n---", "", id="no words, no title"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_title_without_a_model_is_the_first_sentence(text: str, title: str) -> None:
    assert title_of(text) == title


def test_a_session_gets_its_title_after_the_first_turn_and_only_once() -> None:
    log = after_turns("Fix the build. It is red.", "Thanks!", jobs=(GiveTitle(),))
    assert titles(log) == [Titled("Fix the build", by="titles")]
    assert len(job_runs(log)) == 1


def test_a_session_that_has_a_title_keeps_it() -> None:
    given = PlainJob(lambda _: (Titled("By hand", by="user"),))
    later = replace(GiveTitle(), moments=frozenset({"session_ends"}))
    log = after_turns("Fix it", jobs=(given, later))
    assert titles(log) == [Titled("By hand", by="user")]
    assert [run.job for run in job_runs(log)] == ["probe", "titles"]


def with_model(reply: ScriptedReply) -> Log:
    return after_turns("Fix the build. It is red.", replies=("ok", reply), jobs=(GiveTitle("claude-haiku-4-5"),))


@pytest.mark.parametrize(
    ("reply", "title"),
    [
        pytest.param("Red build in CI", "Red build in CI", id="its answer"),
        pytest.param('"Red build. Fixed."\nI hope this helps!', "Red build. Fixed", id="the first line of a talkative answer"),
        pytest.param("x" * 5_000, "x" * 71 + "…", id="a bounded answer"),
        pytest.param("", "Fix the build", id="an empty answer"),
        pytest.param(ProviderError("no", status=400), "Fix the build", id="a failure"),
        pytest.param(ModelReplied((Text("I cannot", "assistant"),), stop="refusal"), "Fix the build", id="a refusal"),
    ],
)
def test_a_small_model_writes_the_title_and_without_its_answer_it_is_a_plain_one(reply: ScriptedReply, title: str) -> None:
    log = with_model(reply)
    assert titles(log) == [Titled(title, by="titles")]
    assert [run.status for run in job_runs(log)] == ["done"]


def test_the_request_goes_to_the_small_model_and_is_accounted_for_as_the_job() -> None:
    started = last(with_model("Red build"), CallStarted).body
    assert isinstance(started, CallStarted)
    assert (started.model, started.purpose) == ("claude-haiku-4-5", "job:titles")


def test_an_unknown_model_costs_only_the_better_title() -> None:
    log = after_turns("Fix the build", jobs=(GiveTitle("no-such-model"),))
    assert titles(log) == [Titled("Fix the build", by="titles")]
    assert job_runs(log) == [JobRan("titles", log.tip - 1)]
