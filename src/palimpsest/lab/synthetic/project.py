"""A synthetic project: files whose functions and settings refer to each other and that edits really change."""

import re
from dataclasses import dataclass, field
from random import Random
from typing import Final

from palimpsest.lab.synthetic.distributions import RESULT_TOKENS, sample_int

AREAS: Final = (
    *("orders", "billing", "parser", "cache", "search", "invoice", "ledger", "router"),
    *("session", "worker", "report", "schema", "catalog", "mailer", "auth", "export"),
)
THINGS: Final = (
    *("window", "bucket", "cursor", "token", "batch", "ticket", "margin", "signal"),
    *("branch", "record", "anchor", "widget", "voucher", "parcel", "store", "basket"),
)
VERBS: Final = (
    *("load", "merge", "split", "check", "count", "render", "store", "drop"),
    *("group", "trace", "lift", "close", "fetch", "apply", "prune", "settle"),
)
NOUNS: Final = ("limit", "timeout", "retries", "depth", "budget", "quota", "ratio", "delay", "floor", "ceiling")
_CHINESE: Final = ("先检查列表是否为空", "旧接口保留到下个版本", "超时由调用方决定", "结果按时间倒序排列")
_SETTING: Final = re.compile(r"^(\w+) = (\d+)$")
# Characters per token in such code.
_CHARACTERS: Final = 3.3


@dataclass
class SourceFile:
    """One file with its current lines."""

    path: str
    area: str
    lines: list[str] = field(default_factory=list)

    def settings(self) -> list[tuple[int, str, int]]:
        """Return line index, name and value of each numeric setting in the first 40 lines."""
        found = ((place, _SETTING.match(line)) for place, line in enumerate(self.lines[:40]))
        return [(place, match[1], int(match[2])) for place, match in found if match is not None]

    def functions(self) -> list[str]:
        """Return the names of its functions."""
        return [line[4 : line.index("(")] for line in self.lines if line.startswith("def ")]


class SyntheticProject:
    """All files of a project; each is generated on first access."""

    def __init__(self, random: Random, files: int = 160) -> None:
        self._random = random
        self._files: dict[str, SourceFile] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self.paths: dict[str, list[str]] = {area: [] for area in AREAS}
        for number in range(files):
            area, thing, verb = random.choice(AREAS), random.choice(THINGS), random.choice(VERBS)
            folder = f"src/{area}/{thing}" if number % 3 else f"src/{area}"
            path = f"tests/{area}/test_{verb}_{thing}.py" if number % 5 == 0 else f"{folder}/{verb}_{thing}.py"
            if path not in self.paths[area]:
                self.paths[area].append(path)

    def area(self) -> str:
        """Return a random area that has files."""
        return self._random.choice([area for area, paths in self.paths.items() if paths])

    def file(self, path: str) -> SourceFile:
        """Return a file of the project; generate it on first access."""
        if path not in self._files:
            area = next((area for area, paths in self.paths.items() if path in paths), AREAS[0])
            self._files[path] = SourceFile(path, area, self._code(area, path))
        return self._files[path]

    def add(self, area: str) -> SourceFile:
        """Add a new file to an area."""
        random = self._random
        path = f"src/{area}/{random.choice(VERBS)}_{random.choice(THINGS)}_{random.randrange(10, 99)}.py"
        self.paths[area].append(path)
        return self.file(path)

    def name(self, area: str) -> str:
        """Return the name of a function in a random file of an area."""
        return self._random.choice(self.names(self._random.choice(self.paths[area])))

    def names(self, path: str) -> tuple[str, ...]:
        """Return the function names of a file, also before the file is generated."""
        if path not in self._names:
            random, area = self._random, path.split("/")[1]
            self._names[path] = tuple(
                f"{random.choice(VERBS)}_{area}_{random.choice(THINGS)}_{random.choice(NOUNS)}_{random.randrange(100)}"
                for _ in range(random.randrange(6, 15))
            )
        return self._names[path]

    def change(self, source: SourceFile) -> tuple[str, str]:
        """Change a setting or some lines of a file. Returns the old and the new text."""
        random, settings = self._random, source.settings()
        if settings and random.random() < 0.4:
            place, name, value = random.choice(settings)
            old, new = [source.lines[place]], [f"{name} = {value + random.randrange(1, 40)}"]
        else:
            place = random.randrange(max(1, len(source.lines) - 6))
            old = source.lines[place : place + random.randrange(2, 30)]
            new = [*old[:-1], *self._body(source.path, random.randrange(1, 9)), *old[-1:]]
        source.lines[place : place + len(old)] = new
        return "\n".join(old), "\n".join(new)

    def _code(self, area: str, path: str) -> list[str]:
        """Generate lines with about as many tokens as files that agents read."""
        random = self._random
        characters = 2.5 * max(sample_int(random, RESULT_TOKENS["read"]) for _ in range(2)) * _CHARACTERS
        lines = [f'"""The {area} part: {path.rpartition("/")[2]}."""', f"from shop import {self.name(area)}", ""]
        lines += [
            f"{random.choice(THINGS)}_{area}_{each} = {random.randrange(10, 900)}" for each in random.sample(NOUNS, random.randrange(1, 4))
        ]
        while sum(map(len, lines)) + 8 * len(lines) < characters:
            name, thing = random.choice(self.names(path)), random.choice(THINGS)
            lines += ["", f"def {name}({thing}: list[str], *, limit: int = {random.randrange(10, 900)}) -> dict[str, int]:"]
            lines += self._body(path, random.randrange(1, 6))
            lines.append("    return found")
        return lines

    def _body(self, path: str, blocks: int) -> list[str]:
        """Generate lines that call functions of the same file."""
        random, names = self._random, self.names(path)
        lines = []
        for _ in range(blocks):
            thing = random.choice(THINGS)
            if random.random() < 0.06:
                lines.append(f"    # {random.choice(_CHINESE)}")
            lines += [
                f"    for {thing} in {random.choice(names)}({random.choice(THINGS)}):",
                f"        if len({thing}) > {random.randrange(10, 9_000)} and len(found) < limit:",
                f"            found[{thing}] = {random.choice(names)}({thing}, {random.choice(NOUNS)}={random.randrange(2, 90)})",
            ]
        return lines
