"""Where real sessions of other programs are found: ours in the golden folder, public ones in `shared/corpus` beside the checkout."""

from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "golden" / "foreign"
CORPUS = Path(__file__).parents[3].parent / "shared" / "corpus"
WITHOUT = "the public sessions (a folder shared/corpus beside the checkout) are not here"


def golden(pattern: str) -> list[Path]:
    """Files that the real programs wrote in conversations of ours."""
    return sorted(GOLDEN.glob(pattern))


def corpus(pattern: str) -> list[Path]:
    """Public sessions, where they are at hand."""
    return sorted(CORPUS.glob(pattern))
