"""Cache rules of the providers: which tokens of a request are read from the cache, written to it, or billed as plain input."""

from collections.abc import Sequence
from typing import Literal, Self, TypeAlias

from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Usage
from palimpsest.core.items import Value, shared_prefix_length
from palimpsest.core.situation import Card, CardPrices
from palimpsest.wire.models.cards import Prices
from palimpsest.wire.request import MAX_BREAKPOINTS

FIVE_MINUTES_MS = 300_000
HOUR_MS = 3_600_000
# Automatic caches evict entries after 5 to 10 idle minutes.
IDLE_MS = 600_000
LOOK_BACK_BLOCKS = 20
STEP_TOKENS = 128
# Prompts that an automatic cache is simulated for; a prompt that extends another replaces it.
MOST_PROMPTS = 8

Block: TypeAlias = tuple[str, int]
"""The identity of a block, which stands for its bytes, and its tokens."""


class CacheRules(Value, frozen=True):
    """Rules of a prompt cache: `minimum` and `step` in tokens, `idle` in milliseconds.

    A breakpoint finds entries up to `look_back` blocks back, its own block included.
    """

    kind: Literal["none", "breakpoints", "automatic"]
    minimum: int = 1_024
    look_back: int = LOOK_BACK_BLOCKS
    step: int = STEP_TOKENS
    idle: int = IDLE_MS


class Breakpoint(Value, frozen=True):
    """A cache breakpoint at the end of a block, for five minutes or, if `long`, for an hour."""

    at: int
    long: bool = False


class Prompt(Value, frozen=True):
    """The prompt of a request: per block a hash of everything up to its end, and the tokens up to there."""

    blocks: tuple[Block, ...] = ()
    links: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()

    @classmethod
    def of(cls, blocks: Sequence[Block], previous: Self | None = None) -> Self:
        """The prompt of these blocks; hashes and sums of the prefix shared with `previous` are reused."""
        blocks = tuple(blocks)
        links: list[int] = []
        sums: list[int] = []
        if previous is not None:
            extends_previous = blocks[: len(previous.blocks)] == previous.blocks
            shared_prefix = len(previous.blocks) if extends_previous else shared_prefix_length(previous.blocks, blocks)
            links, sums = list(previous.links[:shared_prefix]), list(previous.sums[:shared_prefix])
        link, total = (links[-1], sums[-1]) if links else (0, 0)
        for block in blocks[len(links) :]:
            link = hash((link, block[0]))
            total += block[1]
            links.append(link)
            sums.append(total)
        return cls(blocks, tuple(links), tuple(sums))

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt."""
        return self.sums[-1] if self.sums else 0


class CacheEntry(Value, frozen=True):
    """A cached prefix: its last block, hash and tokens, the time of its last use and its lifetime, both in milliseconds."""

    at_block: int
    link: int
    tokens: int
    used: int
    ttl: int


class CacheContents(Value, frozen=True):
    """The contents of a cache: entries made by breakpoints, or whole prompts with the time of their last use."""

    entries: tuple[CacheEntry, ...] = ()
    prompts: tuple[tuple[tuple[int, ...], int], ...] = ()


EMPTY_CACHE = CacheContents()


class Bill(Value, frozen=True):
    """The billed tokens of a request, and the cache contents after it."""

    usage: Usage
    contents: CacheContents = EMPTY_CACHE


def cache_rules(card: Card) -> CacheRules:
    """The cache rules of a model."""
    return CacheRules(card.cache, card.cache_minimum)


def prices_of(prices: CardPrices) -> Prices:
    """The prices of a card as `Prices` of the wire."""
    if isinstance(prices, Prices):
        return prices
    return Prices(prices.input, prices.output, prices.cache_read, prices.cache_write, prices.cache_write_long)


def bill(prompt: Prompt, contents: CacheContents, now: int, rules: CacheRules, breakpoints: Sequence[Breakpoint] = ()) -> Bill:
    """Bill one request at time `now`, in milliseconds. Raises `BadInput` if it has more than 4 breakpoints."""
    match rules.kind:
        case "none":
            return Bill(Usage(input=prompt.tokens), contents)
        case "breakpoints":
            return _by_breakpoints(prompt, contents, now, rules, breakpoints)
        case "automatic":
            return _by_automatic_cache(prompt, contents, now, rules)


def _by_breakpoints(prompt: Prompt, contents: CacheContents, now: int, rules: CacheRules, breakpoints: Sequence[Breakpoint]) -> Bill:
    if len(breakpoints) > MAX_BREAKPOINTS:
        raise BadInput(f"a request has at most {MAX_BREAKPOINTS} breakpoints, not {len(breakpoints)}")
    sums, links = prompt.sums, prompt.links
    count = len(sums)
    # Entries of other prefixes stay in the cache, but do not match this request.
    matching = {
        entry.at_block: entry
        for entry in contents.entries
        if now - entry.used < entry.ttl and entry.at_block < count and links[entry.at_block] == entry.link
    }
    others = [entry for entry in contents.entries if now - entry.used < entry.ttl and matching.get(entry.at_block) is not entry]
    valid = [point for point in breakpoints if 0 <= point.at < count and sums[point.at] >= rules.minimum]
    # The newest cached block that a breakpoint finds, its own first.
    found = (place for point in valid for place in range(point.at, max(-1, point.at - rules.look_back), -1) if place in matching)
    hit = max(found, default=-1)
    read = sums[hit] if hit >= 0 else 0
    reach = max((sums[point.at] for point in valid), default=0)
    reach_long = max((sums[point.at] for point in valid if point.long), default=0)
    long = max(0, reach_long - read)
    written = max(0, reach - max(read, reach_long))
    # Reading a prefix refreshes every shorter prefix of it.
    entries = [replace(entry, used=now) if at <= hit else entry for at, entry in matching.items()]
    refreshed_blocks = {entry.at_block for entry in entries if entry.at_block <= hit}
    new_entries = {
        point.at: CacheEntry(point.at, links[point.at], sums[point.at], now, HOUR_MS if point.long else FIVE_MINUTES_MS)
        for point in valid
        if point.at not in refreshed_blocks
    }
    entries = [entry for entry in entries if entry.at_block not in new_entries]
    usage = Usage(prompt.tokens - read - written - long, read, written, long)
    return Bill(usage, CacheContents((*others, *entries, *new_entries.values())))


def _by_automatic_cache(prompt: Prompt, contents: CacheContents, now: int, rules: CacheRules) -> Bill:
    """Bill a request to an automatic cache, which matches whole steps; tokens that enter the cache count as written."""
    live = [(links, used) for links, used in contents.prompts if now - used < rules.idle]
    shared = [shared_blocks(links, prompt.links) for links, _ in live]
    longest = max(shared, default=0)
    read = prompt.sums[longest - 1] // rules.step * rules.step if longest else 0
    read = read if read >= rules.minimum else 0
    whole_steps = prompt.tokens // rules.step * rules.step
    written = max(0, whole_steps - read) if whole_steps >= rules.minimum else 0
    others = [(links, used) for (links, used), common in zip(live, shared, strict=True) if common < len(links)]
    prompts = (*others, (prompt.links, now))[-MOST_PROMPTS:] if whole_steps >= rules.minimum else tuple(live)
    return Bill(Usage(prompt.tokens - read - written, read, written), CacheContents(prompts=prompts))


def shared_blocks(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """The number of leading blocks that two prompts share; equal hashes mean that everything before them is equal."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[middle - 1] == other[middle - 1] else (low, middle - 1)
    return low
