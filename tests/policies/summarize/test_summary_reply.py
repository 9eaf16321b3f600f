"""A refusal in plain words is not taken for a summary."""

from every_case import every_case
from workplace import online, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.core.events import Failed
from palimpsest.peers.summaries import is_refusal
from palimpsest.policies.named import profile
from palimpsest.providers.scripted import Scripted

REFUSALS = (
    "I'm sorry, but I can't assist with that request.",
    "I am unable to summarise this conversation.",
    "Unfortunately I won't write one. If there is anything else, let me know.",
    "As an AI I must not repeat what was said here, so I have to refuse.",
    "No, I will not do that.",
    "抱歉，这个请求我无法处理。",
    "我不能为这段对话写总结。",
    "作为一个语言模型，我没办法完成它。",
)
SUMMARIES = (
    "The login page is fixed. I cannot run the tests, because the runner is missing.",
    "I must still rename the module; everything else is done.",
    "I need to finish the parser; the tests run against Postgres 14.",
    "Unfortunately the build cannot find libfoo; I changed the path.",
    "I don't have failing tests left. The server won't start on port 80.",
    "I cannot reproduce the crash on Linux.",
    "无法编译 foo.c，已修复头文件。",
    "我无法复现第二个问题，其余都已完成。",
    "Sorry page: the text was wrong and is right now.",
    "登录已修好；第二个问题无法复现。",
    "I can't find the cause yet. " + "The log shows another failure in the parser. " * 30,
)


@every_case("text", REFUSALS)
def test_a_refusal_is_recognised(text: str) -> None:
    assert is_refusal(text)


@every_case("text", SUMMARIES)
def test_a_summary_that_tells_of_what_cannot_be_done_is_no_refusal(text: str) -> None:
    assert not is_refusal(text)


@every_case("name", ["claude-code", "claude-code-2.1.325", "opencode", "opencode-1.18", "classroom"])
@every_case("text", [REFUSALS[0], REFUSALS[5]])
def test_a_model_that_refuses_in_plain_words_harms_nothing(name: str, text: str) -> None:
    session = work(profile(name))
    say(session, "read all of it")
    for number in range(40):
        use(session, f"c{number}", "Read", f'{{"file_path":"f{number}.py"}}', f"value_{number} = 1\n" * 200)
    before = session.log.view
    ran = online(session, run_policies(session, "asked"), Scripted(*[text] * 5))
    assert ran.folded is False
    assert any(isinstance(event.body, Failed) for event in ran.events)
    assert session.log.view.items == before.items
