"""Tokens of the blocks of a conversation, measured by what the provider reports: the prompt now, less the prompt before."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Final, NamedTuple

from palimpsest.audit.pricing.bill import Block

# A report counts for the fit if what it leaves for its new blocks is within these multiples of their estimate: an image has far fewer.
_LEAST_SHARE: Final = 0.2
_MOST_SHARE: Final = 5.0
# What is believed before any report of what a block takes besides its text, and how sure that and the factor of the first report are.
_BESIDES: Final = 8.0
_BESIDES_ERROR: Final = 8.0
_FACTOR_ERROR: Final = 0.3
_LEAST_FACTOR: Final = 0.5
_MOST_FACTOR: Final = 2.5
# How far a block may be from the fit: a share of it, and tokens.
_SHARE_ERROR: Final = 0.06
_LEAST_ERROR: Final = 10.0
# Sizes are kept of blocks that were dropped from a list too, because a client may go back to them.
_KEPT_TIMES: Final = 4
_KEPT_LEAST: Final = 4_096


class _Size(NamedTuple):
    """Tokens as they follow from the fit: `fixed`, and so many times its factor and what a block takes besides."""

    fixed: float
    factors: float
    besides: float


class _SizeFit:
    """Tokens of a block by its estimate: a factor, and what each block takes besides. Least squares over the reports."""

    def __init__(self) -> None:
        self.factor, self.besides = 1.0, 0.0
        self._squares = [0.0, 0.0, 0.0]
        self._products = [0.0, 0.0]

    def begin(self, factor: float) -> None:
        """Believe a factor before any other report. A first one of few words is mostly of what the provider adds by itself."""
        self.add(1.0, 0.0, min(max(factor, _LEAST_FACTOR), _MOST_FACTOR), _FACTOR_ERROR)
        self.add(0.0, 1.0, _BESIDES, _BESIDES_ERROR)

    def add(self, factors: float, besides: float, tokens: float, error: float) -> None:
        """Take it that so many times the factor and what is besides are so many tokens, give or take an error."""
        weight = error**-2
        for place, product in enumerate((factors * factors, factors * besides, besides * besides)):
            self._squares[place] += weight * product
        self._products[0] += weight * factors * tokens
        self._products[1] += weight * besides * tokens
        (ff, fb, bb), (ft, bt) = self._squares, self._products
        scale = ff * bb - fb * fb
        if scale > 0:
            self.factor, self.besides = max(0.1, (ft * bb - bt * fb) / scale), max(0.0, (bt * ff - ft * fb) / scale)

    def tokens(self, size: _Size) -> int:
        """The tokens of a block or of several."""
        return max(1, round(size.fixed + size.factors * self.factor + size.besides * self.besides))


class MeasuredSizes:
    """Sizes in tokens by digest. What no report has covered yet is estimated, as the reports so far differ from their estimates.

    The new blocks of a report have together what it leaves for them, so that the tokens of a list are those that were reported. What each
    of them has depends on the fit, and so does what is left for the blocks of later reports, if one of them is hidden: a size is kept
    as a function of the fit. Where large blocks are hidden one after the other, the small ones are what is left, and measured by that.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, _Size] = {}
        # The very same block each time, because prompts are compared by identity first.
        self._known: dict[str, Block] = {}
        self._fit = _SizeFit()
        self.has_reports = False

    def is_measured(self, digest: str) -> bool:
        """Whether a report covered a block."""
        return digest in self._sizes

    def sized(self, blocks: Iterable[Block]) -> tuple[Block, ...]:
        """Return blocks whose sizes are estimates with their sizes as they are known now."""
        known, tokens = self._known, self._fit.tokens
        return tuple([known.get(digest) or (digest, tokens(_Size(0.0, size, 1.0))) for digest, size in blocks])

    def learn(self, blocks: Sequence[Block], prompt: int) -> None:
        """Take the reported tokens of a request with these blocks, whose sizes are estimates."""
        if not blocks or not prompt:
            return
        if not self.has_reports:
            self._fit.begin(prompt / sum(size for _, size in blocks))
        sizes, counts = self._sizes, Counter(digest for digest, _ in blocks)
        new = {digest: size for digest, size in blocks if digest not in sizes}
        sizes.update((digest, _Size(0.0, size, 1.0)) for digest, size in new.items())
        if new:
            self._share_out(new, counts, prompt)
        self._scale(counts, prompt)
        self.has_reports = True
        self._forget(counts)
        self._know()

    def learn_beginning(self, blocks: Sequence[Block], tokens: float, error: float) -> None:
        """Take it that the blocks at the beginning of a list, all of them known, have so many tokens together, give or take an error."""
        size = self._sum(Counter(digest for digest, _ in blocks))
        self._fit.add(size.factors, size.besides, tokens - size.fixed, error)
        self._know()

    def _share_out(self, new: Mapping[str, int], counts: Counter[str], prompt: int) -> None:
        """Give what a report has more or less than the fit says to its new blocks, the more the less is sure of each of them."""
        errors = {digest: (_SHARE_ERROR * self._fit.tokens(self._sizes[digest]) + _LEAST_ERROR) ** 2 for digest in new}
        total = sum(errors[digest] * counts[digest] for digest in new)
        listed = self._sum(counts)
        fitted = self._fit.tokens(self._sum(Counter({digest: counts[digest] for digest in new})))
        left, estimate = prompt - self._fit.tokens(listed) + fitted, sum(size * counts[digest] for digest, size in new.items())
        if self.has_reports and _LEAST_SHARE * estimate <= left <= _MOST_SHARE * estimate:
            self._fit.add(listed.factors, listed.besides, prompt - listed.fixed, sqrt(total))
        if left > len(new):
            for digest, error in errors.items():
                size, share = self._sizes[digest], error / total
                self._sizes[digest] = _Size(
                    size.fixed + share * (prompt - listed.fixed),
                    size.factors - share * listed.factors,
                    size.besides - share * listed.besides,
                )

    def _sum(self, counts: Counter[str]) -> _Size:
        found = [(self._sizes[digest], count) for digest, count in counts.items()]
        return _Size(*(sum(size[place] * count for size, count in found) for place in range(3)))

    def _scale(self, counts: Counter[str], prompt: int) -> None:
        """Scale all blocks of a list whose tokens are not those that were reported, such as after a compaction by the provider."""
        total = self._fit.tokens(self._sum(counts))
        for digest in counts if total != prompt else ():
            self._sizes[digest] = _Size(*(part * prompt / total for part in self._sizes[digest]))

    def _know(self) -> None:
        known, tokens = self._known, self._fit.tokens
        for digest, size in self._sizes.items():
            now, before = tokens(size), known.get(digest)
            if before is None or before[1] != now:
                known[digest] = (digest, now)

    def _forget(self, shown: Counter[str]) -> None:
        if len(self._sizes) > max(_KEPT_LEAST, _KEPT_TIMES * len(shown)):
            # The oldest come first.
            for digest in [each for each in self._sizes if each not in shown][: len(self._sizes) // 2]:
                del self._sizes[digest]
                del self._known[digest]
