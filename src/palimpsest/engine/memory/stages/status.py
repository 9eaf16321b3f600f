"""The state of two-stage memory: what a start would read now and why not more, what is kept, and where its files are."""

from msgspec import Struct

from palimpsest.engine.memory.stages.places import StagePlaces
from palimpsest.engine.memory.stages.run import stage_plan


class HandbookStatus(Struct, frozen=True):
    """The state under a profile. `backlog` are sessions that a start would read, and `skipped` counts the reasons of the others."""

    folder: str
    backlog: int
    skipped: dict[str, int]
    memories: int
    files: int


def handbook_status(places: StagePlaces) -> HandbookStatus:
    """Return the state; nothing is claimed or written."""
    plan = stage_plan(places, by_model=places.config.jobs == "auto" and places.config.run_usd > 0)
    folder = places.folder
    return HandbookStatus(str(folder.folder), len(plan.sessions), plan.skipped, len(places.memories()), len(folder.read()))
