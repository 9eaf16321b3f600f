"""Vectors of the units of an index (`memory.recall_embeddings`): kept in its database, and made again where they are missing."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Final, Protocol, runtime_checkable

from palimpsest.core.errors import PalimpsestError
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import Similar
from palimpsest.memory.recall_store import opened
from palimpsest.memory.recall_terms import fold
from palimpsest.memory.session_memory import ProjectMemory

_DIGEST_BYTES: Final = 12
_loading: Final = Lock()


@runtime_checkable
class Embedding(Protocol):
    """A model on this machine that makes vectors of texts."""

    @property
    def name(self) -> str:
        """The model; vectors of another one cannot be compared with its vectors."""
        ...

    def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """Return the vectors of texts, in their order."""
        ...

    def similarity(self, query: str, vectors: Sequence[bytes]) -> Similar:
        """Return the similarity of a query to texts of which these are the vectors; an empty one is that of no text."""
        ...


class UnitVectors:
    """The vectors of one index. `file` and `part` say where they are kept; a database that cannot be written costs time later."""

    def __init__(self, embedding: Embedding, file: Path, part: str) -> None:
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


def query_similarity(embedding: Embedding, index: RecallIndex, query: str, vectors: dict[str, bytes]) -> Similar:
    """Return the similarity of a query to the units of an index by number; erased units are similar to nothing."""
    rows = [b""] * len(index)
    for each, number in index.numbers.items():
        rows[number] = vectors[each]
    return embedding.similarity(index.without_speakers(fold(query)), rows)


def embedding_of(memory: ProjectMemory) -> Embedding | None:
    """Return the embeddings of a session, which are loaded once; `None` if the settings want none, or the extra is not installed."""
    if not memory.config.recall_embeddings:
        return None
    from palimpsest.providers.embedding import (
        Embedder,  # few sessions have the extra
        is_installed,
    )

    with _loading:
        made = next((each for each in memory.made if isinstance(each, Embedding)), None)
        if made is None and is_installed():
            made = Embedder()
            memory.made.append(made)
        return made
