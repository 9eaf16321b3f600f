"""Vectors of texts from static word embeddings on this machine (extra `embed`), and the similarity of one query to many of them."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from palimpsest.core.errors import BadInput

# Texts are embedded in blocks of this many, which bounds the memory of one step.
_BLOCK = 1_024


MISSING = "embeddings need the extra `embed`: pip install 'palimpsest-agent[embed]'"


def is_installed() -> bool:
    """Return whether the extra `embed` is installed."""
    return find_spec("wordllama") is not None


class Embedder:
    """The model of the package `wordllama`: 256 dimensions, weights inside the package, nothing is downloaded.

    Raises `BadInput` if the extra is not installed.
    """

    def __init__(self) -> None:
        if not is_installed():
            raise BadInput(MISSING, where="embeddings")
        package = import_module("wordllama")
        self._numpy: Any = import_module("numpy")
        self._model: Any = package.WordLlama.load(cache_dir=Path(str(package.__file__)).parent, disable_download=True)

    def vectors(self, texts: Sequence[str]) -> "TextVectors":
        """Return the vectors of texts, in their order."""
        blocks = [self._model.embed(list(texts[at : at + _BLOCK]), norm=True) for at in range(0, len(texts), _BLOCK)]
        matrix = self._numpy.vstack(blocks) if blocks else self._numpy.zeros((0, 1))
        return TextVectors(self._numpy, self._model, matrix)

    @property
    def name(self) -> str:
        """The model; vectors of another one cannot be compared with its vectors."""
        return "wordllama-256"

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts, in their order, as they are kept on disk: 32-bit floats."""
        blocks = (self._model.embed(list(texts[at : at + _BLOCK]), norm=True) for at in range(0, len(texts), _BLOCK))
        return [row.astype("<f4").tobytes() for block in blocks for row in block]

    def similarity(self, query: str, vectors: Sequence[bytes]) -> "QuerySimilarity":
        """Return the similarity of a query to texts of which these are the vectors; an empty one is that of no text."""
        (found,) = self._model.embed([query], norm=True)
        blank = bytes(4 * len(found))
        matrix = self._numpy.frombuffer(b"".join(each or blank for each in vectors), dtype="<f4").reshape(len(vectors), len(found))
        return QuerySimilarity(self._numpy, matrix @ found)


class TextVectors:
    """Vectors of texts, one a row."""

    def __init__(self, numpy: Any, model: Any, matrix: Any) -> None:
        self._numpy = numpy
        self._model = model
        self._matrix = matrix

    def similar(self, query: str) -> "QuerySimilarity":
        """Return the similarity of a query to all texts; costs one pass over the vectors."""
        (vector,) = self._model.embed([query], norm=True)
        return QuerySimilarity(self._numpy, self._matrix @ vector)


class QuerySimilarity:
    """Cosine similarity of one query to texts, by number."""

    def __init__(self, numpy: Any, cosines: Any) -> None:
        self._numpy = numpy
        self._cosines = cosines

    def nearest(self, count: int) -> list[int]:
        """Return the numbers of the most similar texts, at most `count`, best first; equal ones in their order."""
        order = self._numpy.argsort(-self._cosines, kind="stable")
        return [int(number) for number in order[:count]]

    def similarities(self, numbers: Sequence[int]) -> list[float]:
        """Return the similarity of texts by number, from -1 to 1."""
        return [float(value) for value in self._cosines[list(numbers)]]
