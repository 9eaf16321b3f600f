"""Sessions of Codex as tests import them."""

from pathlib import Path

from corpus import corpus, golden
from msgspec import structs
from readings import Home
from rollouts import THREAD

from palimpsest.core.events import NULL, Body
from palimpsest.exchange.codex.reader import CodexFormat
from palimpsest.exchange.transcript import Format

CODEX: Format = CodexFormat()
GOLDEN = golden("codex/**/rollout-*.jsonl")
PUBLIC = corpus("codex/*.jsonl")
SESSION = f"codex-{THREAD}"


def imported(path: Path) -> tuple[Home, str]:
    """A home with one session of Codex, of which every line could be read."""
    home = Home()
    (done,) = home.take(CODEX, path)
    assert done.problems == ()
    return home, done.session


def bodies(path: Path) -> list[Body]:
    """The bodies of a session of Codex, without their source lines."""
    home, session = imported(path)
    return [structs.replace(body, foreign=NULL) for body in home.bodies(session)]
