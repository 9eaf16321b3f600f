"""What a request costs under the rules of a prompt cache: what is read, written and fresh, and what the cache holds after it."""

from collections.abc import Sequence
from typing import Literal, Self, TypeAlias

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Usage
from palimpsest.core.items import Value, shared_prefix_length
from palimpsest.core.situation import Card, CardPrices
from palimpsest.wire.models.cards import Prices
from palimpsest.wire.request import MAX_BREAKPOINTS

FIVE_MINUTES = 300_000
HOUR = 3_600_000
# An automatic cache keeps what nobody used for five to ten minutes.
IDLE = 600_000
LOOK_BACK = 20
STEP = 128
# How many different prompts an automatic cache is followed for; those that only grow count once.
MOST_PROMPTS = 8

Block: TypeAlias = tuple[str, int]
"""What stands for the bytes of a block, and its tokens."""


class Rules(Value, frozen=True):
    """How a provider's cache works. Breakpoints look back over `look_back` blocks, their own included; times are in milliseconds."""

    kind: Literal["none", "breakpoints", "automatic"]
    minimum: int = 1_024
    look_back: int = LOOK_BACK
    step: int = STEP
    idle: int = IDLE


class Breakpoint(Value, frozen=True):
    """A block whose end is to be kept, for five minutes or for an hour."""

    at: int
    long: bool = False


class Prompt(Value, frozen=True):
    """A request: for each block a link that stands for everything up to its end, and the tokens up to there."""

    blocks: tuple[Block, ...] = ()
    links: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()

    @classmethod
    def of(cls, blocks: Sequence[Block], known: Self | None = None) -> Self:
        """The prompt of some blocks; what it shares with a `known` prompt from the start is taken over from there."""
        blocks = tuple(blocks)
        links: list[int] = []
        sums: list[int] = []
        if known is not None:
            goes_on = blocks[: len(known.blocks)] == known.blocks
            same = len(known.blocks) if goes_on else shared_prefix_length(known.blocks, blocks)
            links, sums = list(known.links[:same]), list(known.sums[:same])
        link, total = (links[-1], sums[-1]) if links else (0, 0)
        for block in blocks[len(links) :]:
            link = hash((link, block[0]))
            total += block[1]
            links.append(link)
            sums.append(total)
        return cls(blocks, tuple(links), tuple(sums))

    @property
    def tokens(self) -> int:
        """All of it."""
        return self.sums[-1] if self.sums else 0


class Entry(Value, frozen=True):
    """A prefix that is kept: the block it ends with, its link and tokens, when it was last used, and for how long that lasts."""

    at_block: int
    link: int
    tokens: int
    used: int
    ttl: int


class Kept(Value, frozen=True):
    """What a cache holds: entries that breakpoints made, or whole prompts with the time of their last use."""

    entries: tuple[Entry, ...] = ()
    prompts: tuple[tuple[tuple[int, ...], int], ...] = ()


EMPTY = Kept()


class Billed(Value, frozen=True):
    """The tokens of a request as they are billed, and what the cache holds after it."""

    usage: Usage
    kept: Kept = EMPTY


def rules_of(card: Card) -> Rules:
    """The rules of a model's cache."""
    return Rules(card.cache, card.cache_minimum)


def prices_of(prices: CardPrices) -> Prices:
    """The prices of a card as the wire knows them."""
    if isinstance(prices, Prices):
        return prices
    return Prices(prices.input, prices.output, prices.cache_read, prices.cache_write, prices.cache_write_long)


def bill(prompt: Prompt, kept: Kept, now: int, rules: Rules, breakpoints: Sequence[Breakpoint] = ()) -> Billed:
    """What one request reads from the cache, writes to it and sends afresh at a time."""
    match rules.kind:
        case "none":
            return Billed(Usage(input=prompt.tokens), kept)
        case "breakpoints":
            return _by_breakpoints(prompt, kept, now, rules, breakpoints)
        case "automatic":
            return _by_itself(prompt, kept, now, rules)


def _by_breakpoints(prompt: Prompt, kept: Kept, now: int, rules: Rules, breakpoints: Sequence[Breakpoint]) -> Billed:
    if len(breakpoints) > MAX_BREAKPOINTS:
        raise BadInput(f"a request has at most {MAX_BREAKPOINTS} breakpoints, not {len(breakpoints)}")
    sums, links = prompt.sums, prompt.links
    count = len(sums)
    # What another prefix holds stays there, and is of no use to this request.
    mine = {
        entry.at_block: entry
        for entry in kept.entries
        if now - entry.used < entry.ttl and entry.at_block < count and links[entry.at_block] == entry.link
    }
    others = [entry for entry in kept.entries if now - entry.used < entry.ttl and mine.get(entry.at_block) is not entry]
    good = [each for each in breakpoints if 0 <= each.at < count and sums[each.at] >= rules.minimum]
    hit = max((_hit(mine, each.at, rules.look_back) for each in good), default=-1)
    read = sums[hit] if hit >= 0 else 0
    reach = max((sums[each.at] for each in good), default=0)
    reach_long = max((sums[each.at] for each in good if each.long), default=0)
    long = max(0, reach_long - read)
    written = max(0, reach - max(read, reach_long))
    # Reading a prefix uses every shorter one that it contains.
    entries = [_used(entry, now) if at <= hit else entry for at, entry in mine.items()]
    held = {entry.at_block for entry in entries if entry.at_block <= hit}
    made = {each.at: _entry(prompt, each, now) for each in good if each.at not in held}
    entries = [entry for entry in entries if entry.at_block not in made]
    usage = Usage(prompt.tokens - read - written - long, read, written, long)
    return Billed(usage, Kept((*others, *entries, *made.values())))


def _hit(mine: dict[int, Entry], at: int, look_back: int) -> int:
    """The newest kept block that a breakpoint finds; its own is the first it looks at."""
    return next((place for place in range(at, max(-1, at - look_back), -1) if place in mine), -1)


def _used(entry: Entry, now: int) -> Entry:
    return Entry(entry.at_block, entry.link, entry.tokens, now, entry.ttl)


def _entry(prompt: Prompt, breakpoint_: Breakpoint, now: int) -> Entry:
    return Entry(breakpoint_.at, prompt.links[breakpoint_.at], prompt.sums[breakpoint_.at], now, HOUR if breakpoint_.long else FIVE_MINUTES)


def _by_itself(prompt: Prompt, kept: Kept, now: int, rules: Rules) -> Billed:
    """Prefixes are found in whole steps. What the cache takes in is billed as written, which costs what the card says, or as input."""
    alive = [(links, used) for links, used in kept.prompts if now - used < rules.idle]
    shared = [_shared(links, prompt.links) for links, _ in alive]
    longest = max(shared, default=0)
    read = prompt.sums[longest - 1] // rules.step * rules.step if longest else 0
    read = read if read >= rules.minimum else 0
    whole = prompt.tokens // rules.step * rules.step
    written = max(0, whole - read) if whole >= rules.minimum else 0
    others = [each for each, common in zip(alive, shared, strict=True) if common < len(each[0])]
    prompts = (*others, (prompt.links, now))[-MOST_PROMPTS:] if whole >= rules.minimum else tuple(alive)
    return Billed(Usage(prompt.tokens - read - written, read, written), Kept(prompts=prompts))


def _shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many blocks two prompts have in common from the start; links tell by one comparison whether all before them agree."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[middle - 1] == other[middle - 1] else (low, middle - 1)
    return low
