"""Facts about models: window, reply, senses, cache, prices."""

from typing import Literal, TypeAlias

from palimpsest.core.items import Value

WireName: TypeAlias = Literal["anthropic", "responses", "chat"]


class Prices(Value, frozen=True, gc=False):
    """Dollars per million tokens; a `None` cache price means that part is billed as input."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_long: float | None = None


class ModelCard(Value, frozen=True):
    """What must be known of a model to talk to it, to fit its window and to price it."""

    name: str
    wire: WireName
    provider: str
    window: int
    reply: int
    family: str = ""
    api_name: str = ""
    input_limit: int | None = None
    images: bool = True
    documents: bool = False
    audio: bool = False
    thinking: bool = False
    cache: Literal["none", "marks", "automatic"] = "none"
    cache_minimum: int = 1024
    cache_edits: bool = False
    prices: Prices = Prices()
    call_ids: Literal["any", "claude", "mistral"] = "any"
