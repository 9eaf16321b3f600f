"""Tokens of the blocks of a conversation, measured by what the provider reports: the prompt now, less the prompt before."""

from collections.abc import Iterable, Sequence
from typing import Final

from palimpsest.audit.pricing.bill import Block

# The tokens that are left for new blocks are believed within these multiples of their estimate. Beyond them the report is not of this list
# alone, such as one with a compaction by the provider, and all of its blocks are scaled.
_LEAST_SHARE: Final = 0.2
_MOST_SHARE: Final = 5.0
# Sizes are kept of blocks that were dropped from a list too, because a client may go back to them.
_KEPT_TIMES: Final = 4
_KEPT_LEAST: Final = 4_096


class MeasuredSizes:
    """Sizes in tokens by digest. What no report has covered yet is estimated, by the ratio of reports to estimates so far."""

    def __init__(self) -> None:
        # The very same block each time, because prompts are compared by identity first.
        self._known: dict[str, Block] = {}
        self._reported = self._estimated = 0.0
        self._is_first_report = False

    @property
    def has_reports(self) -> bool:
        """Whether the provider has reported a prompt of the conversation."""
        return self._estimated > 0

    def is_measured(self, digest: str) -> bool:
        """Whether a report covered a block."""
        return digest in self._known

    def sized(self, blocks: Iterable[Block]) -> tuple[Block, ...]:
        """Return blocks whose sizes are estimates with their sizes as they are known now."""
        known, ratio = self._known, self._ratio
        return tuple([known.get(digest) or (digest, max(1, round(size * ratio))) for digest, size in blocks])

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
        estimated = sum(new[digest] * count for digest, count in counts.items())
        left, expected = prompt - covered, estimated * self._ratio
        if new and (not self.has_reports or _LEAST_SHARE * expected <= left <= _MOST_SHARE * expected):
            if self._is_first_report:
                # It is mostly of tools and instructions, which are written in another way than results.
                self._reported = self._estimated = 0.0
            self._is_first_report = not self.has_reports
            self._reported += left
            self._estimated += estimated
            known.update((digest, (digest, size)) for digest, size in _shared_out(new, counts, left).items())
        else:
            known.update((digest, (digest, max(1, round(size * self._ratio)))) for digest, size in new.items())
            self._scale(blocks, prompt)
        self._forget(blocks)

    @property
    def _ratio(self) -> float:
        return self._reported / self._estimated if self._estimated and self._reported > 0 else 1.0

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
