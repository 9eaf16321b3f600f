"""What the tools of made-up sessions print: files, matches, test runs, version control, pages and reports, to a size."""

from collections.abc import Callable
from random import Random

from palimpsest.core.tokens.estimate import estimate
from palimpsest.lab.synthetic.world import AREAS, NOUNS, SourceFile, World

# What a result weighs beside its text.
_FRAME = 16
_WEIGHED = 10


class Printing:
    """Outputs about a project, each filled up to about as many tokens as wanted."""

    def __init__(self, random: Random, world: World) -> None:
        self._random = random
        self._world = world

    def _filled(self, tokens: int, line: Callable[[], str], first: str = "") -> str:
        lines = [first] if first else [line()]
        room = float(tokens - _FRAME - estimate(lines[0]))
        dense, length = 0.0, 0
        while room > 0:
            lines.append(line())
            # All lines of an output are alike, so that after a few the next ones need not be weighed.
            if len(lines) < _WEIGHED:
                weight = float(estimate(lines[-1]) + 1)
                dense, length = dense + weight, length + len(lines[-1]) + 1
            else:
                weight = (len(lines[-1]) + 1) * dense / length
            room -= weight
        return "\n".join(lines)

    def numbered(self, source: SourceFile, first: int, last: int) -> str:
        """Lines of a file as the reading tool shows them."""
        return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(source.lines[first - 1 : last], first))

    def lines_for(self, source: SourceFile, tokens: int) -> int:
        """How many lines of a file have about so many tokens."""
        some = source.lines[:40]
        return max(3, round((tokens - _FRAME) * len(some) / (estimate("\n".join(some)) + 2 * len(some))))

    def matches(self, name: str, area: str, tokens: int) -> str:
        """Where a name stands."""
        random, world = self._random, self._world

        def line() -> str:
            path = random.choice(world.paths[area])
            return f"{path}:{random.randrange(1, 400)}:    found = {name}({random.choice(NOUNS)}={random.randrange(10, 90)})"

        return self._filled(tokens, line)

    def paths(self, tokens: int) -> str:
        """Files of the project."""
        every = [path for paths in self._world.paths.values() for path in paths]
        return self._filled(tokens, lambda: self._random.choice(every))

    def log(self, area: str, tokens: int, last: str = "") -> str:
        """The lines of a program at work."""
        random, world = self._random, self._world

        def line() -> str:
            return (
                f"2031-04-{random.randrange(1, 29):02d}T09:{random.randrange(60):02d}Z INFO {world.name(area)}: "
                f"{random.choice(NOUNS)}={random.randrange(10**6)} took {random.randrange(900)} ms"
            )

        text = self._filled(tokens, line)
        return f"{text}\n{last}" if last else text

    def test_run(self, area: str, tokens: int, failed: int, source: SourceFile) -> str:
        """A run of the tests; a failure names the file and the function it happened in."""
        random = self._random
        last = f"{random.randrange(20, 400)} passed in {random.randrange(100, 9_000) / 1_000:.2f}s"
        if failed:
            name = random.choice(source.functions() or [self._world.name(area)])
            trace = f"{source.path}:{random.randrange(1, 200)}: in {name}\nE   IndexError: list index out of range"
            last = (
                f"{trace}\nFAILED tests/{area}/test_{name}.py::test_{name} - IndexError: list index out of range\n{failed} failed, {last}"
            )
        return self.log(area, tokens - 40, last)

    def difference(self, source: SourceFile, tokens: int) -> str:
        """What version control says has changed."""
        random = self._random
        head = f"diff --git a/{source.path} b/{source.path}\n@@ -{random.randrange(1, 90)},7 +{random.randrange(1, 90)},9 @@"
        lines = iter(source.lines * 40)
        return self._filled(tokens, lambda: f"{random.choice((' ', ' ', '+', '-'))}{next(lines, '')}", head)

    def history(self, tokens: int) -> str:
        """The newest commits."""
        random, world = self._random, self._world
        return self._filled(
            tokens,
            lambda: f"{random.getrandbits(28):07x} {world.area()}: {random.choice(('fix', 'add', 'drop'))} {world.name(world.area())}",
        )

    def page(self, tokens: int) -> str:
        """A page of documentation."""
        random, world = self._random, self._world
        return self._filled(
            tokens,
            lambda: (
                f"The {random.choice(NOUNS)} of {random.choice(AREAS)} is read once, when `{world.name(world.area())}` is first called."
            ),
        )

    def script(self, area: str, names: tuple[str, ...]) -> str:
        """A small program that is written for one look at something."""
        random = self._random
        lines = [
            f"print({random.choice(names)}({random.choice(NOUNS)}={random.randrange(10, 900)}))" for _ in range(random.randrange(5, 50))
        ]
        return "\n".join(["python - <<'PY'", f"from shop import {area}", *lines, "PY"])

    def report(self, area: str, tokens: int) -> str:
        """What a sub-agent found."""
        random, world = self._random, self._world
        return self._filled(
            tokens, lambda: f"- `{world.name(area)}` in {random.choice(world.paths[area])} is called {random.randrange(2, 40)} times."
        )
