"""Templates for the messages of users and models in synthetic sessions, in English and Chinese."""

from random import Random
from typing import Final

_SHORT: Final = (
    "go on",
    "yes, do that",
    "Run the tests again.",
    "And {path}?",
    "Fix `{name}` in {area}.",
    "Why is {area} slow?",
    "Commit this, please.",
    "Use `{name}` there instead.",
    "What does `{name}` return?",
    "Looks good. Next: {area}.",
)
_LONG: Final = (
    "The {thing} of {area} comes out wrong when the list is empty. Find out why, fix it, and add a test that fails without the fix.",
    "Please rename `{name}` everywhere, and keep the old name working for one release. Do not touch the migrations.",
    "{area}: requests take four seconds since yesterday. Measure first, then tell me what you would change.",
    "Set the timeout in {path} to {number} seconds. Never change a public signature without asking me.",
    "Why does CI fail on {area} but not here? Look at the exit code before you guess.",
    "I decided to keep `{name}`; callers must pass a limit of {number}. Always run the tests of {area} before you say that it works.",
)
_SHORT_CHINESE: Final = ("继续", "好的，就这样做", "再运行一次测试", "`{name}` 返回什么？", "看一下 {path}", "提交吧")
_LONG_CHINESE: Final = (
    "{area} 模块的 {thing} 在列表为空时结果不对。请先找出原因，再修复，并补一个测试。",
    "请不要修改 migrations 目录。把 {path} 里的超时改成 {number} 秒。",
    "昨天开始 {area} 的请求变慢了，先测量，再告诉我你打算改什么。必须保留旧接口。",
    "我决定保留 `{name}`，调用方必须传入 {number}。改完之后一定要运行 {area} 的测试。",
)
_STEPS: Final = (
    "I look at {path} first.",
    "`{name}` is called from {area}; next I read who else uses it.",
    "That explains it: `{name}` runs before the {thing} exists. I change the order.",
    "Now the tests of {area}.",
    "One more place uses `{name}`, in {path}.",
    "The output names `{name}`, so I check {path} again.",
)
_ENDINGS: Final = (
    "Done. `{name}` in {path} copes with an empty list now; {number} tests of {area} pass and none is skipped.",
    "The cause was the {thing} that {area} kept from the run before. `{name}` clears it now, and {number} tests pass.",
    "Nothing to change in {area}: `{name}` did what it should, and the measurement of yesterday was taken on a cold cache ({number} ms).",
    "I changed {path} and ran the tests of {area}: {number} pass. Open: the documentation of `{name}`.",
)
_DETAILS: Final = (
    "- {path}: `{name}` takes a limit.",
    "- The {thing} of {area} is counted once.",
    "- {number} lines changed, no public signature.",
    "- `{name}` has a test of its own now.",
)
_TASKS: Final = (
    "read {path}",
    "fix `{name}`",
    "add a test for the {thing} of {area}",
    "run the tests of {area}",
    "update the changelog for {area}",
)


def user_message(random: Random, variables: dict[str, str], *, chinese: bool, tokens: int) -> str:
    """Return a user message of about so many tokens; a long one quotes log lines."""
    short, long = (_SHORT_CHINESE, _LONG_CHINESE) if chinese else (_SHORT, _LONG)
    if tokens < 24:
        return random.choice(short).format(**variables)
    text = random.choice(long).format(**variables)
    lines: list[str] = []
    while (len(text) + 60 * len(lines)) / 3 < min(tokens, 2_500):
        when = f"2031-04-{random.randrange(1, 29):02d} 09:{random.randrange(60):02d}"
        lines.append(f"{when} ERROR {variables['area']}.{variables['name']}: {random.randrange(10**6)}")
    return "\n".join([text, *lines])


def step(random: Random, variables: dict[str, str]) -> str:
    """Return the text of the model before a tool call, one to six sentences."""
    return " ".join(each.format(**variables) for each in random.sample(_STEPS, random.choice((1, 2, 3, 4, 6))))


def ending(random: Random, variables: dict[str, str]) -> str:
    """Return the closing message of the model."""
    details = [each.format(**variables) for each in random.sample(_DETAILS * 12, random.randrange(0, 40))]
    return "\n".join([random.choice(_ENDINGS).format(**variables), *details])


def tasks(random: Random, variables: dict[str, str]) -> list[str]:
    """Return four tasks for a plan."""
    return [each.format(**variables) for each in random.sample(_TASKS, 4)]
