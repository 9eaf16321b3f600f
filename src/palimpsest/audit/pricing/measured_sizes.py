"""Tokens of the blocks of a conversation, measured by what the provider reports: the prompt now, less the prompt before."""

from collections.abc import Iterable, Sequence
from typing import Final

from palimpsest.audit.pricing.bill import Block

# The tokens that are left for new blocks are believed within these multiples of their estimate. Beyond them the report is not of this list
# alone, such as one with a compaction by the provider, and all of its blocks are scaled.
_LEAST_SHARE: Final = 0.2
_MOST_SHARE: Final = 5.0
# How much is believed of the fit before any report, in reports, and the least tokens of a report that counts as much as others.
_FACTOR_TRUST: Final = 500.0
_BESIDES_TRUST: Final = 0.05
_LEAST_REPORT: Final = 200
# Sizes are kept of blocks that were dropped from a list too, because a client may go back to them.
_KEPT_TIMES: Final = 4
_KEPT_LEAST: Final = 4_096


class _Fit:
    """Tokens of a block by its estimate: a factor, and what each block takes besides, fitted to what the provider reported.

    Least squares over the reports, with what is believed before any of them: a factor of 1 and nothing besides.
    """

    def __init__(self) -> None:
        self.factor, self.besides = 1.0, 0.0
        self._squares = [_FACTOR_TRUST, 0.0, _BESIDES_TRUST]
        self._products = [_FACTOR_TRUST, 0.0]

    def size(self, estimate: int) -> int:
        """The tokens of a block."""
        return max(1, round(self.factor * estimate + self.besides))

    def begin(self, factor: float) -> None:
        """Believe a factor before any report of the conversation itself."""
        self.factor = factor
        self._products[0] = _FACTOR_TRUST * factor

    def add(self, estimates: float, blocks: int, tokens: int) -> None:
        """Take a report: so many blocks with these estimates together have so many tokens."""
        weight = 1 / (tokens + _LEAST_REPORT)
        for place, (one, other) in enumerate(((estimates, estimates), (estimates, blocks), (blocks, blocks))):
            self._squares[place] += weight * one * other
        self._products[0] += weight * estimates * tokens
        self._products[1] += weight * blocks * tokens
        (ee, en, nn), (et, nt) = self._squares, self._products
        scale = ee * nn - en * en
        self.factor, self.besides = max(0.1, (et * nn - nt * en) / scale), max(0.0, (nt * ee - et * en) / scale)


class MeasuredSizes:
    """Sizes in tokens by digest. What no report has covered yet is estimated, as the reports so far differ from their estimates."""

    def __init__(self) -> None:
        # The very same block each time, because prompts are compared by identity first.
        self._known: dict[str, Block] = {}
        self._fit = _Fit()
        self.has_reports = False

    def is_measured(self, digest: str) -> bool:
        """Whether a report covered a block."""
        return digest in self._known

    def sized(self, blocks: Iterable[Block]) -> tuple[Block, ...]:
        """Return blocks whose sizes are estimates with their sizes as they are known now."""
        known, size_of = self._known, self._fit.size
        return tuple([known.get(digest) or (digest, size_of(size)) for digest, size in blocks])

    def learn(self, blocks: Sequence[Block], prompt: int) -> None:
        """Take the reported tokens of a request with these blocks, whose sizes are estimates."""
        if not blocks or not prompt:
            return
        known = self._known
        new = {digest: size for digest, size in blocks if digest not in known}
        counts = dict.fromkeys(new, 0)
        covered = 0
        for digest, _ in blocks:
            if digest in counts:
                counts[digest] += 1
            else:
                covered += known[digest][1]
        left = prompt - covered
        if self.has_reports and new and left > 0:
            # The first report is mostly of tools and instructions, which are written in another way than results.
            self._fit.add(sum(new[digest] * count for digest, count in counts.items()), sum(counts.values()), left)
        if not self.has_reports and left > 0:
            self._fit.begin(left / sum(size for _, size in blocks))
        sizes = {digest: self._fit.size(size) for digest, size in new.items()}
        expected = sum(sizes[digest] * count for digest, count in counts.items())
        if new and (not self.has_reports or _LEAST_SHARE * expected <= left <= _MOST_SHARE * expected):
            sizes = _shared_out(sizes, counts, left)
            known.update((digest, (digest, size)) for digest, size in sizes.items())
        else:
            known.update((digest, (digest, size)) for digest, size in sizes.items())
            self._scale(blocks, prompt)
        self.has_reports = True
        self._forget(blocks)

    def _scale(self, blocks: Sequence[Block], prompt: int) -> None:
        total = sum(self._known[digest][1] for digest, _ in blocks)
        for digest in {digest for digest, _ in blocks} if total != prompt else ():
            self._known[digest] = (digest, max(1, round(self._known[digest][1] * prompt / total)))

    def _forget(self, blocks: Sequence[Block]) -> None:
        if len(self._known) > max(_KEPT_LEAST, _KEPT_TIMES * len(blocks)):
            shown = {digest for digest, _ in blocks}
            # The oldest come first.
            for digest in [each for each in self._known if each not in shown][: len(self._known) // 2]:
                del self._known[digest]


def _shared_out(sizes: dict[str, int], counts: dict[str, int], tokens: int) -> dict[str, int]:
    """Share tokens out among blocks by their estimates, so that all of them together have as many."""
    total = sum(sizes[digest] * count for digest, count in counts.items())
    shared = {digest: max(1, tokens * size // total) for digest, size in sizes.items()}
    # What rounding leaves goes to the largest of those that occur once.
    once = max((digest for digest, count in counts.items() if count == 1), key=sizes.__getitem__, default="")
    if once:
        shared[once] = max(1, shared[once] + tokens - sum(shared[digest] * count for digest, count in counts.items()))
    return shared
