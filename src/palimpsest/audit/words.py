"""Words without their endings, so that forms of one word are the same word."""

from collections.abc import Iterator
from functools import lru_cache

_ENDING_WORDS = "ations ation ating ators ator ated ates ate ings ing ions ion ments ment ers er ies ied es ed s ly e y"
_ENDINGS = tuple(_ENDING_WORDS.split())

_FORMS = (("ies", "y"), ("ied", "y"), ("es", ""), ("s", ""), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"))


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """A word without its ending, as far as comparing needs it."""
    word = word.removesuffix("'s").removesuffix("’s")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls" else word


def plain_forms(word: str) -> Iterator[str]:
    """A word and what it may be a form of: `studies`, `study`; `dropping`, `dropp`, `drop`; `saved`, `sav`, `save`."""
    word = word.removesuffix("'s").removesuffix("’s")
    yield word
    for ending, instead in _FORMS:
        if word.endswith(ending) and len(word) - len(ending) >= 2:
            base = word[: -len(ending)]
            yield base + instead
            if len(base) > 3 and base[-1] == base[-2]:
                yield base[:-1]
