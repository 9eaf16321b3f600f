"""Measures the search for secrets on the sets in tests/golden/secrets: prints precision and recall of both halves, and what failed."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from palimpsest.core.secrets import Secret, find_secrets

SETS = Path(__file__).parents[2] / "golden" / "secrets"
HALVES = ("dev", "held-out")
Find = Callable[[str], Sequence[Secret]]


@dataclass(frozen=True)
class Sample:
    """A text of a class, with the spans of its secrets as start and end index; an innocent text has none."""

    group: str
    half: str
    text: str
    secrets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Score:
    """Counts over some samples: secrets planted and found whole, right and wrong findings, and a line for each failure."""

    planted: int
    found: int
    right: int
    wrong: int
    failures: tuple[str, ...]

    @property
    def precision(self) -> float:
        """The share of findings that are secrets."""
        return self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        """The share of planted secrets of which no character is left."""
        return self.found / max(1, self.planted)


def planted() -> list[Sample]:
    """Return the samples with secrets."""
    return [_marked(group, half, text) for group, half, body in _groups("planted.txt") for text in body.strip("\n").split("\n\n")]


def innocents() -> list[Sample]:
    """Return the samples without secrets, one a line."""
    return [Sample(group, half, line) for group, half, body in _groups("innocents.txt") for line in body.splitlines() if line]


def current() -> list[Sample]:
    """Return the secrets of current programs and services, one sample for each form."""
    return [_marked(group, "", body.strip("\n")) for group, _, body in _groups("current.txt")]


def score(samples: Sequence[Sample], find: Find = find_secrets) -> Score:
    """Return the counts of a search over some samples."""
    planted_count = found_count = right = wrong = 0
    failures: list[str] = []
    for sample in samples:
        hits = find(sample.text)
        for start, end in sample.secrets:
            planted_count += 1
            if all(any(hit.start <= place < hit.end for hit in hits) for place in range(start, end)):
                found_count += 1
            else:
                failures.append(f"missed  {sample.group}: {sample.text[start:end]!r} in {sample.text!r}")
        for hit in hits:
            if 2 * sum(max(0, min(hit.end, end) - max(hit.start, start)) for start, end in sample.secrets) >= hit.end - hit.start:
                right += 1
            else:
                wrong += 1
                failures.append(f"wrong   {sample.group}: {hit.kind} {sample.text[hit.start : hit.end]!r} in {sample.text!r}")
    return Score(planted_count, found_count, right, wrong, tuple(failures))


def _groups(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield the groups of a file as name, half and text; the halves alternate in the order of the file."""
    whole = (SETS / name).read_text(encoding="utf-8")
    for number, block in enumerate(("\n" + whole).split("\n== ")[1:]):
        group, _, body = block.partition("\n")
        yield group, HALVES[number % 2], body


def _marked(group: str, half: str, marked: str) -> Sample:
    text = ""
    spans: list[tuple[int, int]] = []
    for piece in marked.replace("‸", "").split("«"):
        secret, closing, rest = piece.partition("»")
        if closing:
            spans.append((len(text), len(text) + len(secret)))
        text += secret + rest
    return Sample(group, half, text, tuple(spans))


def main(verbose: bool) -> None:
    """Print the figures of both halves, and with `verbose` each failure of the tuning half."""
    samples = planted() + innocents()
    for half in HALVES:
        result = score([sample for sample in samples if sample.half == half])
        print(
            f"{half:9} recall {result.recall:.3f} ({result.found}/{result.planted}) precision {result.precision:.3f} ({result.wrong} wrong)"
        )
        if verbose and half == "dev":
            print("\n".join(result.failures))


if __name__ == "__main__":
    main("--verbose" in sys.argv[1:])
