"""Words that say nothing, in any number: they stand for what a recording does not show or a summary would say."""

from palimpsest.core.items import Text
from palimpsest.core.sizes import palimpsest_size


def padding(words: str, size: int) -> str:
    """The same words over and over, of so many unscaled tokens."""
    if size <= 0:
        return ""
    much = words * (size // 10 + 1)
    cut = much[: len(much) * size // palimpsest_size(Text(much))]
    # Estimates do not grow quite evenly, so that the rest is put right once.
    return much[: len(cut) * size // max(1, palimpsest_size(Text(cut)))].strip()
