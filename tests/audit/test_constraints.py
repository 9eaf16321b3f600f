"""Sentences in which the user demands, forbids or decides, in words that the rules were not made from."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.claims import is_claim
from palimpsest.audit.constraints import binding_of, quotes_of
from palimpsest.audit.sentences import sentences_of
from palimpsest.core.situation import Quote


@pytest.mark.parametrize(
    "sentence",
    [
        "Whatever happens, hands stay away from the billing tables.",
        "I'd hate to see another mocking library in here.",
        "You're not to run the formatter.",
        "That package is banned in our company.",
        "Not a single TODO in the final code.",
        "We've ruled out Redis.",
        "Nobody merges on a Friday.",
        "Leave Dockerfile out of this, and don't ask.",
        "任何情况下都不要动生产数据库",
        "密钥一个都不许进仓库",
        "前端归他管，你别碰",
        "请勿引入新依赖",
        "能不改就不改",
    ],
)
def test_a_ban_is_found_however_it_is_worded(sentence: str) -> None:
    assert binding_of(sentence) == "forbidden"


@pytest.mark.parametrize(
    "sentence",
    [
        "Let's go with SQLite.",
        "We agreed yesterday that the API is REST.",
        "My preference would be a plain dict over a class.",
        "From now on commits are signed.",
        "The second one.",
        "Use pnpm instead of npm.",
        "I'm fine with breaking the internal API.",
        "数据库就定 PostgreSQL 吧",
        "改用 pnpm",
        "我们走第一套方案，就这样",
        "我拍板了，上 Kubernetes",
    ],
)
def test_a_decision_is_found_however_it_is_worded(sentence: str) -> None:
    assert binding_of(sentence) == "decided"


@pytest.mark.parametrize(
    "sentence",
    [
        "The CLI has to stay backwards compatible.",
        "Every public function gets a docstring.",
        "Aim for 80% coverage.",
        "Commits in English.",
        "Kindly spell colour the British way.",
        "Could you hand me a short summary?",
        "Put the constants into settings.py.",
        "I'd be grateful for a changelog entry.",
        "If in doubt, ask me.",
        "Should the build fail, roll everything back.",
        "回答一律用中文",
        "超时设成 5 秒",
        "麻烦您把报告写成表格",
        "测试全部通过再提交",
        "凡是涉及钱的地方都得加锁",
    ],
)
def test_a_demand_is_found_however_it_is_worded(sentence: str) -> None:
    assert binding_of(sentence) == "demanded"


@pytest.mark.parametrize(
    "sentence",
    [
        "The build is broken since this morning.",
        "What does this function return?",
        "Thanks, that worked.",
        "I got a 500 when I clicked save.",
        "where is the config loaded",
        "The page loads in two seconds.",
        "It prints an empty list.",
        "昨天服务器挂了",
        "这个函数返回什么？",
        "接口返回了 500",
        "我本地是正常的",
    ],
)
def test_reports_and_questions_bind_nobody(sentence: str) -> None:
    assert binding_of(sentence) is None


def test_a_message_is_quoted_sentence_by_sentence_with_its_item() -> None:
    text = "The tests are red. Never push to main! 请用中文回复。\n- keep e.g. the old API\n```\nrm -rf / # never\n```\nWhy is that?"
    assert quotes_of(text, "7.0") == (
        Quote("Never push to main!", "7.0", "forbidden"),
        Quote("请用中文回复。", "7.0", "demanded"),
        Quote("keep e.g. the old API", "7.0", "demanded"),
    )


def test_logs_and_stack_traces_are_not_what_the_user_says() -> None:
    log = "\n".join(f"[11:34:5{number}] [API] GET /api/must/not/{number}" for number in range(9))
    trace = "TypeError: cannot read\n    at Object.must (http://x/y.ts:1:2)\n    at never (http://x/y.ts:3:4)"
    assert quotes_of(f"{log}\n{trace}\n2026-02-15T20:46:19 never do this", "1.0") == ()


def test_what_a_program_put_between_its_own_tags_is_not_what_the_user_says() -> None:
    assert quotes_of("<system-reminder>You must never tell.</system-reminder>\nAdd a test.", "1.0") == (Quote("Add a test.", "1.0"),)


@given(st.text())
def test_any_text_has_sentences_that_stand_in_it(text: str) -> None:
    for sentence in sentences_of(text):
        assert sentence in text
        binding_of(sentence)
    assert quotes_of(text, "1.0") == quotes_of(text, "1.0")


ODD = [
    "a," * 20_000,
    "for " * 2_000,
    "the user explicitly " * 1_000,
    "<system-a>" * 8_000,
    "\n" * 60_000 + "```",
    "不要" * 9_000,
    "keep x " * 3_000,
]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_no_text_takes_long_however_odd_it_is(text: str) -> None:
    start = time.process_time()
    quotes_of(text, "1.0")
    binding_of(text)
    is_claim(text)
    assert time.process_time() - start < 1.0
