"""What calls used, kept apart by all that decides what they cost: the values of the ledger."""

from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec.structs import astuple, replace

from palimpsest.core.events import Usage
from palimpsest.core.items import Value
from palimpsest.core.tokens import Calibration

PRICE_STEPS: Final = (
    *(1_000, 2_000, 4_000, 4_096, 5_000, 8_000, 8_192, 10_000, 16_000, 16_384, 20_000, 32_000, 32_768, 50_000, 64_000, 65_536),
    *(100_000, 128_000, 131_072, 150_000, 200_000, 204_800, 250_000, 256_000, 262_144, 272_000, 300_000, 400_000, 409_600),
    *(500_000, 512_000, 524_288, 600_000, 750_000, 800_000, 1_000_000, 1_048_576, 2_000_000, 2_097_152),
)
"""Prompt sizes in tokens above which a tariff may charge another price for the whole call; usage is summed between two of them."""


class Spending(Value, frozen=True):
    """Usage of calls that one price holds for: of one model, purpose and UTC day, with prompts between the same two `PRICE_STEPS`.

    `model` is the model that replied, or the asked one or that of the session if the reply names none; `asked` is the model of the
    call, empty where none is recorded. `day` counts from 1970, `above` is the highest step that the prompts exceed, or 0. `unmeasured`
    counts the replies to our own requests that did not report what was read or written, or that had a tier of the service: what they
    cost is unknown. `estimated` counts our calls that were broken off before their usage was reported, and whose usage is therefore an
    estimate, rather too high than too low.
    """

    model: str
    purpose: str
    calls: int = 0
    usage: Usage = Usage()
    asked: str = ""
    day: int = 0
    above: int = 0
    unmeasured: int = 0
    estimated: int = 0


class OpenCall(Value, frozen=True):
    """A call without an outcome; `estimate` and `tools` are the unscaled estimates of its view and tools, in tokens.

    `is_ours` is whether this library sent the request; `prompt` is then an estimate of all its tokens that is rather too high, and
    `cached` are those of them that were probably read from the cache.
    `has_tier` is whether it asked for a tier, speed or place of the service whose price is not known.
    """

    seq: int
    model: str
    purpose: str
    estimate: int = 0
    tools: int = 0
    is_ours: bool = False
    prompt: int = 0
    cached: int = 0
    has_tier: bool = False


class Ledger(Value, frozen=True):
    """All usage of a log, the calibration of token estimates that follows from it, and the open calls.

    `model` is that of the session, for replies of other programs that name none.
    """

    spendings: tuple[Spending, ...] = ()
    calibration: Calibration = Calibration()
    open: tuple[OpenCall, ...] = ()
    model: str = ""

    @property
    def calls(self) -> int:
        """Number of replies, and of interrupted calls that were billed; side calls are included."""
        return sum(spending.calls for spending in self.spendings)

    @property
    def usage(self) -> Usage:
        """Usage of all calls together."""
        return total_of(spending.usage for spending in self.spendings)

    def since(self, earlier: "Ledger") -> tuple[Spending, ...]:
        """What was spent after an earlier state of the same log."""
        before = {spending_key(spending): spending for spending in earlier.spendings}
        found = [_less(spending, before.get(spending_key(spending))) for spending in self.spendings]
        return tuple(spending for spending in found if spending.calls or spending.usage.total)


def total_of(usages: Iterable[Usage]) -> Usage:
    """Return the sum of usages."""
    rows = [astuple(usage) for usage in usages]
    return Usage(*(sum(column) for column in zip(*rows, strict=True))) if rows else Usage()


SpendingKey: TypeAlias = tuple[str, str, str, int, int]
"""Model, purpose, asked model, day and step of the prompt."""


def spending_key(spending: Spending) -> SpendingKey:
    """What is equal of all calls that are summed together."""
    return spending.model, spending.purpose, spending.asked, spending.day, spending.above


def _less(spending: Spending, before: Spending | None) -> Spending:
    if before is None:
        return spending
    usage = Usage(*(now - then for now, then in zip(astuple(spending.usage), astuple(before.usage), strict=True)))
    numbers = {name: getattr(spending, name) - getattr(before, name) for name in ("calls", "unmeasured", "estimated")}
    return replace(spending, usage=usage, **numbers)


RUNNING: Final = "running"


class ChildRecord(Value, frozen=True):
    """A sub-agent as the log of its parent knows it. `status` is `running` until its end is recorded.

    `usage`, dollars and `children_tokens` are those of its newest recorded end. `text` is its report until that end was stated to the
    model. `opened` and `ended` are the events of its newest start and end; `noticed` are those that stated that end, one on each branch.
    """

    session: str
    role: str = ""
    nickname: str = ""
    depth: int = 0
    status: str = RUNNING
    text: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    children_usd: float | None = 0.0
    children_tokens: int = 0
    opened: int | None = None
    ended: int | None = None
    noticed: tuple[int, ...] = ()

    @property
    def total_usd(self) -> float | None:
        """US dollars of its calls and of those below it; `None` if they are not known."""
        return None if self.cost_usd is None or self.children_usd is None else self.cost_usd + self.children_usd

    @property
    def recorded_usd(self) -> float | None:
        """US dollars of its calls and of those below it when its end was recorded; its file tells more.

        They are not known for an imported one, and for one whose end is not recorded. Nor is zero for tokens, which version 0.2 wrote
        where no price was known.
        """
        is_known = (self.cost_usd or not self.usage.total) and (self.children_usd or not self.children_tokens)
        return self.total_usd if is_known and self.ended is not None and self.depth > 0 else None
