"""Tokens of the blocks of a conversation, measured by what the provider reports: the prompt now, less the prompt before."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Final, NamedTuple

from palimpsest.audit.cache import Block

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
# That of tools and system prompts, which are written in another form by the provider, so that their share says little about messages.
_HEAD_ERROR: Final = 0.3
# What a report has more or less is that of other blocks than its new ones from so many times their squared errors on.
_SURE: Final = 36.0
# Sizes are kept of blocks that were dropped from a list too, because a client may go back to them.
_KEPT_TIMES: Final = 4
_KEPT_LEAST: Final = 4_096


class _Size(NamedTuple):
    """Tokens as they follow from the fit: `fixed`, and so many times its factor and what a block takes besides."""

    fixed: float
    factors: float
    besides: float


class _PartlyShown(NamedTuple):
    """A group of blocks of which a list has only some, with squared errors; `error` is that of the sum of either part."""

    shown: dict[str, float]
    hidden: dict[str, float]
    error: float


def _part_of(group: Mapping[str, float], counts: Mapping[str, int]) -> _PartlyShown | None:
    shown = {digest: error for digest, error in group.items() if digest in counts}
    hidden = {digest: error for digest, error in group.items() if digest not in counts}
    if not shown or not hidden or any(counts[digest] > 1 for digest in shown):
        return None
    one, other = sum(shown.values()), sum(hidden.values())
    return _PartlyShown(shown, hidden, one * other / (one + other))


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

    def error(self, size: _Size) -> float:
        """How far the tokens of a block may be off, because the fit may be."""
        ff, fb, bb = self._squares
        scale = ff * bb - fb * fb
        one, two = size.factors, size.besides
        return sqrt(max(0.0, one * one * bb - 2 * one * two * fb + two * two * ff) / scale) if scale > 0 else 0.0

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
        # By digest the blocks of which a report has told only the sum, with the square of what each may be off by.
        self._groups: dict[str, dict[str, float]] = {}
        # The sum of each, which is asked for with each of its blocks between two reports; one report may have covered a whole conversation.
        self._totals: dict[int, float] = {}
        self._fit = _SizeFit()
        self.has_reports = False

    def is_measured(self, digest: str) -> bool:
        """Whether a report covered a block."""
        return digest in self._sizes

    def error_of(self, digest: str) -> float:
        """How many tokens a block that a report covered may be off: it was covered together with others, and the fit may be off too."""
        fitted, group = self._fit.error(self._sizes[digest]), self._groups.get(digest)
        if group is None:
            return fitted
        own, total = group.get(digest, 0.0), self._totals.get(id(group))
        if total is None:
            total = self._totals[id(group)] = sum(group.values())
        return sqrt(own * (total - own) / total if total else 0.0) + fitted

    def sized(self, blocks: Iterable[Block]) -> tuple[Block, ...]:
        """Return blocks whose sizes are estimates with their sizes as they are known now."""
        known, tokens = self._known, self._fit.tokens
        return tuple([known.get(digest) or (digest, tokens(_Size(0.0, size, 1.0))) for digest, size in blocks])

    def learn(self, blocks: Sequence[Block], prompt: int, heads: int = 0) -> None:
        """Take the reported tokens of a request with these blocks, whose sizes are estimates; the first `heads` are before its messages."""
        if not blocks or not prompt:
            return
        if not self.has_reports:
            self._fit.begin(prompt / sum(size for _, size in blocks))
        sizes, counts = self._sizes, Counter(digest for digest, _ in blocks)
        new = {digest: size for digest, size in blocks if digest not in sizes}
        sizes.update((digest, _Size(0.0, size, 1.0)) for digest, size in new.items())
        if new:
            self._share_out(new, counts, prompt, frozenset(digest for digest, _ in blocks[:heads]))
        self._scale(counts, prompt)
        self.has_reports = True
        self._forget(counts)
        self._know()

    def learn_beginning(self, blocks: Sequence[Block], tokens: float, error: float) -> None:
        """Take it that the blocks at the beginning of a list, all of them known, have so many tokens together, give or take an error."""
        size = self._sum(Counter(digest for digest, _ in blocks))
        self._fit.add(size.factors, size.besides, tokens - size.fixed, error)
        self._know()

    def learn_parts(self, blocks: Sequence[Block], end: int, tokens: int, prompt: int = 0) -> None:
        """Take it that the first blocks of a list, all of them known, have so many tokens together, and those after them the others.

        Without the tokens of all, those after them are left as they are, and need not be known.
        """
        first, rest = (Counter(digest for digest, _ in part) for part in (blocks[:end], blocks[end:]))
        if first.keys() & rest.keys():
            return
        self._correct({}, first, tokens)
        self._scale(first, tokens)
        if prompt and prompt - tokens >= len(rest):
            self._scale(rest, prompt - tokens)
        self._know()

    def _share_out(self, new: Mapping[str, int], counts: Counter[str], prompt: int, heads: frozenset[str]) -> None:
        """Give what a report has more or less than the fit says to its new blocks, the more the less is sure of each of them."""
        shares = {digest: _HEAD_ERROR if digest in heads else _SHARE_ERROR for digest in new}
        errors = {digest: (share * self._fit.tokens(self._sizes[digest]) + _LEAST_ERROR) ** 2 for digest, share in shares.items()}
        total = sum(errors[digest] * counts[digest] for digest in new)
        listed = self._sum(counts)
        fitted = self._fit.tokens(self._sum(Counter({digest: counts[digest] for digest in new})))
        left, estimate = prompt - self._fit.tokens(listed) + fitted, sum(size * counts[digest] for digest, size in new.items())
        if self.has_reports and _LEAST_SHARE * estimate <= left <= _MOST_SHARE * estimate:
            self._fit.add(listed.factors, listed.besides, prompt - listed.fixed, sqrt(total))
        self._correct(errors, counts, prompt)
        group = dict(errors)
        self._groups.update(dict.fromkeys(group, group))

    def _correct(self, errors: Mapping[str, float], counts: Counter[str], tokens: int) -> None:
        """Share out what blocks have more or less than the fit says: to new ones with these squared errors, and to groups shown in part.

        Of a group only the sum was reported. If a part of it is hidden, the rest is more by what that part is less.
        """
        listed = self._sum(counts)
        groups = {id(group): group for digest in counts if (group := self._groups.get(digest)) is not None}
        parts = [part for group in groups.values() if (part := _part_of(group, counts)) is not None]
        own = sum(error * counts[digest] for digest, error in errors.items())
        left = tokens - self._fit.tokens(listed)
        if errors and left * left <= _SURE * own:
            # The new blocks alone may be off by that.
            parts = []
        total = own + sum(part.error for part in parts)
        if not total or self._fit.tokens(self._sum(Counter({each: counts[each] for each in errors}))) + left * own / total <= len(errors):
            return
        shares = {digest: error / total for digest, error in errors.items()}
        for part in parts:
            shares |= {digest: part.error / total * error / sum(part.shown.values()) for digest, error in part.shown.items()}
            shares |= {digest: -part.error / total * error / sum(part.hidden.values()) for digest, error in part.hidden.items()}
            if part.error > total / 2:
                # Now it is known what each of its parts has.
                for half in (part.shown, part.hidden):
                    self._groups.update(dict.fromkeys(half, half))
        for digest, share in shares.items():
            size = self._sizes[digest]
            self._sizes[digest] = _Size(
                size.fixed + share * (tokens - listed.fixed),
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
        self._totals.clear()
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
                group = self._groups.pop(digest, {})
                group.pop(digest, None)
