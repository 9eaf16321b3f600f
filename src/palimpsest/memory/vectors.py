"""Vectors of texts from static word embeddings (`memory.recall_embeddings`): made by the extra `embed`, kept in the database of recall."""

from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Final

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import Similar
from palimpsest.memory.recall_store import opened
from palimpsest.memory.recall_terms import fold
from palimpsest.memory.session_memory import ProjectMemory

_DIGEST_BYTES: Final = 12
# Texts are embedded in blocks of this many, which bounds the memory of one step.
_BLOCK: Final = 1_024
_loading: Final = Lock()


MISSING: Final = "embeddings need the extra `embed`: pip install 'palimpsest-agent[embed]'"


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
        return TextVectors(self._model, matrix)

    @property
    def name(self) -> str:
        """The model; vectors of another one cannot be compared with its vectors."""
        return "wordllama-256"

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts, in their order, as they are kept on disk: 32-bit floats."""
        blocks = (self._model.embed(list(texts[at : at + _BLOCK]), norm=True) for at in range(0, len(texts), _BLOCK))
        return [row.astype("<f4").tobytes() for block in blocks for row in block]

    def similarity(self, query: str, vectors: Sequence[bytes]) -> Similar:
        """Return the similarity of a query to texts of which these are the vectors; an empty one is that of no text."""
        (found,) = self._model.embed([query], norm=True)
        blank = bytes(4 * len(found))
        matrix = self._numpy.frombuffer(b"".join(each or blank for each in vectors), dtype="<f4").reshape(len(vectors), len(found))
        return Similar((matrix @ found).tolist())


class TextVectors:
    """Vectors of texts, one a row."""

    def __init__(self, model: Any, matrix: Any) -> None:
        self._model = model
        self._matrix = matrix

    def similar(self, query: str) -> Similar:
        """Return the similarity of a query to all texts; costs one pass over the vectors."""
        (vector,) = self._model.embed([query], norm=True)
        return Similar((self._matrix @ vector).tolist())


class UnitVectors:
    """The vectors of one index. `file` and `part` say where they are kept; a database that cannot be written costs time later."""

    def __init__(self, embedding: Embedder, file: Path, part: str) -> None:
        self._embedding = embedding
        self._file = file
        self._part = part
        self._known: dict[str, tuple[bytes, bytes]] | None = None

    def refresh(self, index: RecallIndex) -> dict[str, bytes]:
        """Return the vector of each unit by id. Those whose text is new or has changed are made and saved."""
        known = self._load() if self._known is None else self._known
        texts = {each: index.with_previous(number) for each, number in index.numbers.items()}
        digests = {each: self._digest(text) for each, text in texts.items()}
        missing = [each for each in texts if each not in known or known[each][0] != digests[each]]
        gone = [each for each in known if each not in texts]
        if missing or gone:
            vectors = self._embedding.embed([texts[each] for each in missing])
            made = {each: (digests[each], vector) for each, vector in zip(missing, vectors, strict=True)}
            known = {**{each: row for each, row in known.items() if each in texts}, **made}
            self._save(made, gone)
        self._known = known
        return {each: vector for each, (_, vector) in known.items()}

    def _digest(self, text: str) -> bytes:
        return sha256(f"{self._embedding.name}\n{text}".encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]

    def _load(self) -> dict[str, tuple[bytes, bytes]]:
        if not self._file.exists():
            return {}
        with opened(self._file) as stored:
            return stored.vectors(self._part)

    def _save(self, made: dict[str, tuple[bytes, bytes]], gone: Sequence[str]) -> None:
        try:
            with opened(self._file) as stored:
                stored.save_vectors(self._part, made, gone)
        except PalimpsestError:
            return


def query_similarity(embedding: Embedder, index: RecallIndex, query: str, vectors: dict[str, bytes]) -> Similar:
    """Return the similarity of a query to the units of an index by number; erased units are similar to nothing."""
    rows = [b""] * len(index)
    for each, number in index.numbers.items():
        rows[number] = vectors[each]
    return embedding.similarity(index.without_speakers(fold(query)), rows)


def embedding_of(memory: ProjectMemory) -> Embedder | None:
    """Return the embeddings of a session, which are loaded once; `None` if the settings want none, or the extra is not installed."""
    if not memory.config.recall_embeddings:
        return None
    with _loading:
        made = next((each for each in memory.made if isinstance(each, Embedder)), None)
        if made is None and is_installed():
            made = Embedder()
            memory.made.append(made)
        return made
