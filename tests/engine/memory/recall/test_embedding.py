from importlib.util import find_spec

import pytest

from palimpsest.core.errors import BadInput
from palimpsest.memory.vectors import Embedder

INSTALLED = find_spec("wordllama") is not None


@pytest.mark.skipif(INSTALLED, reason="the extra is installed here")
def test_without_the_extra_the_error_says_how_to_install_it() -> None:
    with pytest.raises(BadInput, match=r"embeddings need the extra `embed`: pip install 'palimpsest-agent\[embed\]'"):
        Embedder()


@pytest.mark.skipif(not INSTALLED, reason="needs the extra `embed`")
def test_the_nearest_text_is_the_one_that_means_the_same() -> None:
    found = Embedder().vectors(["the kitten sleeps", "tax forms are due", "a river in spring"]).similar("my cat")

    assert found.nearest(1) == [0]
    first, second = found.similarities([0, 1])
    assert 1 >= first > second >= -1
