"""What both stages work on: the home, the rules of the profile, claims, rows, budgets, and the folder of the handbook."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.engine.memory.pipeline.metering import Meter, RunMeter
from palimpsest.engine.memory.pipeline.places import PipelinePlaces
from palimpsest.engine.memory.stage_folder import StageFolder, stage_folder
from palimpsest.memory.pipeline.transcript import DEFAULT_LIMIT, input_limit
from palimpsest.memory.showing.note_units import is_showable
from palimpsest.memory.stages.handbook import AdHocNote, StoredMemory, ad_hoc_note
from palimpsest.profiles.profile import StageRules
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.home import AnyHome
from palimpsest.stores.notes.jobs_database import JobsDatabase
from palimpsest.stores.notes.spending import Tokens
from palimpsest.stores.notes.stage_rows import StageRows
from palimpsest.wire.models.cards import ModelCard, card

_MOST_NOTES: Final = 1_000


class PhaseUse(Struct, frozen=True):
    """The model of one phase: its card, the name for a request (empty: that of the session), its effort, and the budget of its calls."""

    card: ModelCard
    name: str
    effort: str
    meter: Meter

    @property
    def limit(self) -> int:
        """The most tokens of a session in one request."""
        return input_limit(self.card.window) if self.card.window else DEFAULT_LIMIT


class StagePlaces:
    """Everything of a home that the two stages read and write under the rules of a profile."""

    def __init__(self, home: AnyHome, config: MemoryConfig, rules: StageRules) -> None:
        timed = replace(config, idle_hours=rules.idle_hours, age_days=rules.age_days)
        self.pipeline = PipelinePlaces(home, timed)
        self.home = self.pipeline.home
        self.config = timed
        self.rules = rules
        self.claims = self.pipeline.claims
        self.rows = StageRows(JobsDatabase(self.pipeline.folder), rules.root)
        self.folder: StageFolder = stage_folder(self.home.folder, rules.root)

    def memories(self) -> tuple[StoredMemory, ...]:
        """Return what stage one has kept, by session."""
        return tuple(StoredMemory(*row) for row in self.rows.all())  # type: ignore[arg-type]  # the columns are its fields

    def key_of(self, session: str) -> str:
        """Return the key of the stage-one job of a session."""
        return f"{self.rules.root}/{session}"

    def notes(self) -> tuple[AdHocNote, ...]:
        """Return the active notes of the home, which consolidation must not lose."""
        found: list[AdHocNote] = []
        for scope in self.pipeline.scopes():
            active = self.pipeline.notebook(scope).notes().active.values()
            found += [ad_hoc_note(note) for note in active if is_showable(note)]
        return tuple(sorted(found, key=lambda note: note.name)[:_MOST_NOTES])

    def phases(self, session_card: ModelCard, cards: Iterable[ModelCard], usd: float) -> tuple[PhaseUse, PhaseUse] | None:
        """Return the models of both phases, within a budget; `None` if it allows no dollar. Raises `BadInput` for an unknown model."""
        if usd <= 0:
            return None
        known, rules, config = tuple(cards), self.rules, self.config
        day = Tokens(config.stage_day_tokens_read, config.stage_day_tokens_written)
        chosen = (
            (_card_of(rules.phase_one_model, rules.phase_one_default, config.model, session_card, known), "low"),
            (_card_of(rules.phase_two_model, rules.phase_two_default, config.model, session_card, known), "medium"),
        )
        one, two = (
            PhaseUse(
                found,
                "" if found.name == session_card.name else found.name,
                effort if found.wire == "responses" and found.thinks else "",
                RunMeter(found, self.pipeline.spending, self.home.clock, usd=usd, day=day),
            )
            for found, effort in chosen
        )
        return one, two


def _card_of(given: str, default: str, setting: str, session_card: ModelCard, cards: tuple[ModelCard, ...]) -> ModelCard:
    """Return the card of a phase: that of the profile's setting, of `memory.model`, or of the default; else that of the session.

    The default is one of Codex's provider, so that it is asked only in sessions with a model of the same.
    """
    if given or setting:
        return card(given or setting, cards)
    if not default:
        return session_card
    try:
        found = card(default, cards)
    except BadInput:
        return session_card
    return found if found.provider == session_card.provider else session_card
