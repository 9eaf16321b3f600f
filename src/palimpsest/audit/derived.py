"""The projections of this layer, as a session registers them with its log: metering, evidence, cache, rent, working state."""

from collections.abc import Callable, Iterable, Sequence

from palimpsest.audit.cache import CacheProjection
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.prices import AccountProjection, RentProjection
from palimpsest.audit.sizes import Metering
from palimpsest.audit.tool_calls import Action
from palimpsest.audit.uses import UsesProjection
from palimpsest.audit.working_state import WorkingProjection
from palimpsest.core.items import Content, ToolResult
from palimpsest.core.plans import PARTS, Card
from palimpsest.core.tokens import tool_list_size
from palimpsest.core.view import Projection
from palimpsest.core.view_projection import ViewProjection


class AuditProjections:
    """Creates and holds the audit projections of one log, with the settings of its session: size rule, cards, tools, fold parts."""

    metering: Metering
    evidence: EvidenceProjection
    uses: UsesProjection
    cache: CacheProjection
    account: AccountProjection
    rent: RentProjection
    working: WorkingProjection

    def __init__(self, card: Card, card_of: Callable[[str], Card], size: str = "palimpsest", parts: int = PARTS) -> None:
        self.card = card
        self._card_of = card_of
        self._size = size
        self._parts = parts
        self._schemas: tuple[bytes, ...] = ()

    def attach(self, views: ViewProjection) -> tuple[Projection, ...]:
        """Create the projections of a log, in the order in which they apply an event."""
        self.metering = Metering(views, self._card_named, self._size)
        self.evidence = EvidenceProjection()
        self.uses = UsesProjection(views)
        self.cache = CacheProjection(views, self.metering)
        self.account = AccountProjection(self.metering, self.cache)
        self.rent = RentProjection(views, self.metering, self.evidence, parts=self._parts)
        self.working = WorkingProjection()
        return self.metering, self.evidence, self.uses, self.cache, self.account, self.rent, self.working

    def _card_named(self, name: str) -> Card:
        """The card of a model that the log names: the card of the session, or one from `card_of`."""
        return self.card if name in ("", self.card.name) else self._card_of(name)

    @property
    def tools_tokens(self) -> int:
        """Tokens of the tool declarations in a request: as the provider counted them for this model, else estimated."""
        model, tokens = self._counted
        return tokens if tokens and model == self.card.name else self.tokens_of(self._schemas)

    def counted(self, model: str, tokens: int) -> None:
        """Take what the provider of a model counted for the tools that are offered."""
        self._counted = (model, tokens)

    def tokens_of(self, schemas: Iterable[bytes]) -> int:
        """Tokens of tool declarations, given as bytes."""
        return self.metering.tools_tokens(sum(map(tool_list_size, schemas)))

    def offer(self, schemas: Sequence[bytes]) -> None:
        """Count these tools from now on, given by their declarations as bytes."""
        self._schemas = tuple(schemas)
        self._counted = ("", 0)

    def remember_names(
        self, names_shown: Callable[[ToolResult, Action | None], tuple[str, ...]], names_used: Callable[[Content], Iterable[str]]
    ) -> None:
        """Replace the functions that find names in results and replies, for example by cached ones that several logs share."""
        self.uses.names_in_result = names_shown
        self.uses.names_used = self.evidence.names_used = names_used
