"""Texts of the synthetic sessions that benchmarks write: user messages, replies, files and command output."""

from random import Random

from palimpsest.lab.synthetic.project import AREAS, THINGS, VERBS

_AREAS, _THINGS, _VERBS = AREAS[:12], THINGS[:12], VERBS[:12]
_LEVELS = ("INFO", "DEBUG", "WARNING", "INFO", "INFO")

_ASKS = (
    "The {thing} of {area} comes out wrong when the list is empty. Find out why, fix it, and add a test that fails without the fix.",
    "Please rename `{verb}_{thing}` to `{verb}_every_{thing}` everywhere, and keep the old name working for one release.",
    "{area}: requests take four seconds since yesterday. Measure first, then tell me what you would change.",
    "Never touch `migrations/`. Apart from that: make `{verb}_{thing}` in {area} take a timeout of {number} seconds.",
    "Why does CI fail on {area} but not here? Look at the exit code before you guess.",
    "Write the {area} part of the changelog, at most {number} lines, no adjectives.",
)
_CHINESE = (
    "{area} 模块的 {thing} 在列表为空时结果不对。请先找出原因,再修复,并补一个测试。",
    "请不要修改 migrations 目录。把 `{verb}_{thing}` 的超时改成 {number} 秒。",
    "昨天开始 {area} 的请求变慢了,先测量,再告诉我你打算改什么。",
)
_STEPS = (
    "I look at {area} first.",
    "The {thing} is made in {area}; next I read who calls it.",
    "That explains it: `{verb}_{thing}` is called before the {thing} exists. I change the order.",
    "Now the tests of {area}.",
    "One more place uses `{verb}_{thing}`.",
)
_ENDINGS = (
    "Done: `{verb}_{thing}` in {area} now copes with an empty list. {number} tests pass, none is skipped.",
    "The cause was the {thing} that {area} kept from the run before. It is cleared now; exit code 0, {number} tests.",
    "Nothing to change: {area} did what it should, the measurement of yesterday was taken on a cold cache ({number} ms).",
)


class TextGenerator:
    """Generates texts from a seed; blocks of code repeat, as files are read more than once."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._blocks: dict[int, str] = {}

    def subject(self, random: Random) -> dict[str, str]:
        """Return values for the placeholders of the templates of one turn."""
        return {
            "area": random.choice(_AREAS),
            "thing": random.choice(_THINGS),
            "verb": random.choice(_VERBS),
            "number": str(random.randrange(3, 90)),
        }

    def ask(self, random: Random, subject: dict[str, str]) -> str:
        """Return a user message, 15 % of them in Chinese."""
        return random.choice(_CHINESE if random.random() < 0.15 else _ASKS).format(**subject)

    def step(self, random: Random, subject: dict[str, str]) -> str:
        """Return the text of the model before a tool call."""
        return random.choice(_STEPS).format(**subject)

    def ending(self, random: Random, subject: dict[str, str]) -> str:
        """Return the closing message of the model."""
        return random.choice(_ENDINGS).format(**subject)

    def path(self, random: Random, subject: dict[str, str]) -> str:
        """Return the path of a source or test file."""
        name = random.choice(_THINGS)
        return f"src/{subject['area']}/{name}.py" if random.random() < 0.7 else f"tests/{subject['area']}/test_{name}.py"

    def source(self, random: Random, blocks: int) -> str:
        """Return the content of a file of so many code blocks, with line numbers as tools print them."""
        text = "\n\n".join(self._block(random.randrange(400)) for _ in range(blocks))
        return "\n".join(f"{number:>5}\t{line}" for number, line in enumerate(text.split("\n"), 1))

    def test_run(self, random: Random, subject: dict[str, str], failed: int = 0) -> str:
        """Return the output of a test run, with log lines in between."""
        lines = [
            f"2031-04-{random.randrange(1, 29):02d} 09:{random.randrange(60):02d} {random.choice(_LEVELS)} {random.choice(_AREAS)}."
            f"{random.choice(_VERBS)}: {random.choice(_THINGS)}={random.randrange(10**6)} took {random.randrange(900)} ms"
            for _ in range(random.randrange(10, 70))
        ]
        if failed:
            lines.append(
                f"FAILED tests/{subject['area']}/test_{subject['thing']}.py::test_{subject['verb']} - IndexError: list index out of range"
            )
        return "\n".join([*lines, f"{failed} failed, {int(subject['number']) + 40} passed in {random.randrange(100, 9000) / 1000:.2f}s"])

    def _block(self, number: int) -> str:
        if number not in self._blocks:
            self._blocks[number] = _code(Random(f"{self._seed}:{number}"))  # noqa: S311 - synthetic code holds no secret
        return self._blocks[number]


def _code(random: Random) -> str:
    thing, verb, area = random.choice(_THINGS), random.choice(_VERBS), random.choice(_AREAS)
    lines = [
        f"def {verb}_{thing}_{random.randrange(1000)}({area}: list[str], limit: int = {random.randrange(2, 500)}) -> dict[str, int]:",
        f'    """{verb.capitalize()} each {thing} of the {area}, newest first."""',
        "    found: dict[str, int] = {}",
    ]
    for _ in range(random.randrange(4, 16)):
        left, right = random.choice(_THINGS), random.choice(_THINGS)
        lines += [
            f"    for {left} in {random.choice(_VERBS)}_{right}({area}, limit={random.randrange(1000)}):",
            f"        if {left}.startswith({right!r}) and len(found) < {random.randrange(10, 10_000)}:",
            f"            found[{left}] = found.get({left}, 0) + {random.randrange(1, 99)}",
        ]
    return "\n".join([*lines, "    return found"])
