"""Generates tool output of a given size for synthetic sessions: files, matches, test runs, version control, pages and reports."""

from collections.abc import Callable
from random import Random

from palimpsest.core.tokens.estimate import estimate
from palimpsest.lab.synthetic.project import AREAS, NOUNS, SourceFile, SyntheticProject

# Tokens of a result beside its text.
_RESULT_OVERHEAD = 16
_LINES_COUNTED = 10


class SyntheticOutput:
    """Generates outputs about a project, each of about the requested number of tokens."""

    def __init__(self, random: Random, project: SyntheticProject) -> None:
        self._random = random
        self._project = project

    def _filled(self, tokens: int, line: Callable[[], str], first: str = "") -> str:
        lines = [first] if first else [line()]
        tokens_left = float(tokens - _RESULT_OVERHEAD - estimate(lines[0]))
        counted_tokens, counted_characters = 0.0, 0
        while tokens_left > 0:
            lines.append(line())
            # All lines of an output are alike, so later ones are estimated by length instead of counted.
            if len(lines) < _LINES_COUNTED:
                tokens_used = float(estimate(lines[-1]) + 1)
                counted_tokens, counted_characters = counted_tokens + tokens_used, counted_characters + len(lines[-1]) + 1
            else:
                tokens_used = (len(lines[-1]) + 1) * counted_tokens / counted_characters
            tokens_left -= tokens_used
        return "\n".join(lines)

    def numbered(self, source: SourceFile, first: int, last: int) -> str:
        """Return lines of a file with line numbers, as the read tool prints them."""
        return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(source.lines[first - 1 : last], first))

    def lines_for(self, source: SourceFile, tokens: int) -> int:
        """Return how many lines of a file have about this many tokens."""
        some = source.lines[:40]
        return max(3, round((tokens - _RESULT_OVERHEAD) * len(some) / (estimate("\n".join(some)) + 2 * len(some))))

    def matches(self, name: str, area: str, tokens: int) -> str:
        """Return search matches of a name."""
        random, project = self._random, self._project

        def line() -> str:
            path = random.choice(project.paths[area])
            return f"{path}:{random.randrange(1, 400)}:    found = {name}({random.choice(NOUNS)}={random.randrange(10, 90)})"

        return self._filled(tokens, line)

    def paths(self, tokens: int) -> str:
        """Return a list of file paths of the project."""
        every = [path for paths in self._project.paths.values() for path in paths]
        return self._filled(tokens, lambda: self._random.choice(every))

    def log(self, area: str, tokens: int, last: str = "") -> str:
        """Return log lines of a running program; `last` is appended."""
        random, project = self._random, self._project

        def line() -> str:
            return (
                f"2031-04-{random.randrange(1, 29):02d}T09:{random.randrange(60):02d}Z INFO {project.name(area)}: "
                f"{random.choice(NOUNS)}={random.randrange(10**6)} took {random.randrange(900)} ms"
            )

        text = self._filled(tokens, line)
        return f"{text}\n{last}" if last else text

    def test_run(self, area: str, tokens: int, failed: int, source: SourceFile) -> str:
        """Return the output of a test run; a failure names its file and function."""
        random = self._random
        last = f"{random.randrange(20, 400)} passed in {random.randrange(100, 9_000) / 1_000:.2f}s"
        if failed:
            name = random.choice(source.functions() or [self._project.name(area)])
            trace = f"{source.path}:{random.randrange(1, 200)}: in {name}\nE   IndexError: list index out of range"
            last = (
                f"{trace}\nFAILED tests/{area}/test_{name}.py::test_{name} - IndexError: list index out of range\n{failed} failed, {last}"
            )
        return self.log(area, tokens - 40, last)

    def diff(self, source: SourceFile, tokens: int) -> str:
        """Return a diff of a file."""
        random = self._random
        head = f"diff --git a/{source.path} b/{source.path}\n@@ -{random.randrange(1, 90)},7 +{random.randrange(1, 90)},9 @@"
        lines = iter(source.lines * 40)
        return self._filled(tokens, lambda: f"{random.choice((' ', ' ', '+', '-'))}{next(lines, '')}", head)

    def history(self, tokens: int) -> str:
        """Return one line for each of the newest commits."""
        random, project = self._random, self._project
        return self._filled(
            tokens,
            lambda: (
                f"{random.getrandbits(28):07x} {project.area()}: {random.choice(('fix', 'add', 'drop'))} {project.name(project.area())}"
            ),
        )

    def documentation(self, tokens: int) -> str:
        """Return a page of documentation."""
        random, project = self._random, self._project
        return self._filled(
            tokens,
            lambda: (
                f"The {random.choice(NOUNS)} of {random.choice(AREAS)} is read once, when `{project.name(project.area())}` is first called."
            ),
        )

    def script(self, area: str, names: tuple[str, ...]) -> str:
        """Return a shell command with a short throw-away script."""
        random = self._random
        lines = [
            f"print({random.choice(names)}({random.choice(NOUNS)}={random.randrange(10, 900)}))" for _ in range(random.randrange(5, 50))
        ]
        return "\n".join(["python - <<'PY'", f"from shop import {area}", *lines, "PY"])

    def agent_report(self, area: str, tokens: int) -> str:
        """Return the report of a sub-agent."""
        random, project = self._random, self._project
        return self._filled(
            tokens, lambda: f"- `{project.name(area)}` in {random.choice(project.paths[area])} is called {random.randrange(2, 40)} times."
        )
