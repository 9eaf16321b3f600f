"""Thinking that requests left out although the strict double would have accepted it beside the rest, by the records of the double."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from palimpsest.testing.strict.answers import StrictModel, StrictRecord, StrictRequest, ThinkingSeal, blocks_of, strict_model, thinking_seal
from palimpsest.testing.strict.binding import THINKING, Prefix, by_value, is_compaction
from palimpsest.testing.strict.openai import follow_item, input_prefix, plain_item
from palimpsest.testing.strict.provider import StrictProvider


class Gap(NamedTuple):
    """A place before a block of the model: what was sent before it, the thinking around it, and the block."""

    states: tuple[str, ...]
    before: str
    block: str
    after: ThinkingSeal | None = None


class MadeThinking(NamedTuple):
    """A thinking block of a reply, and the blocks of the model that came behind it there."""

    seal: ThinkingSeal
    behind: frozenset[str]


def needless(provider: StrictProvider) -> list[str]:
    """Which thinking was left out in vain: each as the number of its request and the path of what it could have stood before."""
    made: dict[str, MadeThinking] = {}
    found: list[str] = []
    for number, record in enumerate(provider.records):
        if record.refused or record.request.path.endswith(("/count_tokens", "/chat/completions")):
            continue
        found += [f"request {number}: thinking {name} fits" for name in _left_out(record.request, made)]
        made |= {each.seal.id: each for each in _made(record)}
    return found


def _left_out(request: StrictRequest, made: dict[str, MadeThinking]) -> Iterator[str]:
    model = strict_model(str(request.body.get("model")))
    if model is None or not model.binds:
        return
    prefix, gaps, sent = _gaps(request)
    by_block: dict[str, list[Gap]] = {}
    for gap in gaps:
        by_block.setdefault(gap.block, []).append(gap)
    for each in made.values():
        seal = each.seal
        if seal.id in sent or (seal.account, "") != (request.account, "") or not _reads(model, seal):
            continue
        binds = (maker := strict_model(seal.model)) is None or maker.binds
        if binds and (seal.system, seal.tools) != (prefix.system, prefix.tools):
            continue
        around = (gap for block in each.behind for gap in by_block.get(block, ()))
        if any(_fits(seal, gap, binds=binds) for gap in around):
            yield seal.id


def _fits(seal: ThinkingSeal, gap: Gap, *, binds: bool) -> bool:
    follows = not gap.before or seal.after == gap.before
    return follows and (gap.after is None or gap.after.after == seal.id) and (not binds or seal.prefix in gap.states)


def _reads(model: StrictModel, seal: ThinkingSeal) -> bool:
    return seal.model in model.reads


def _gaps(request: StrictRequest) -> tuple[Prefix, list[Gap], frozenset[str]]:
    """The places of a request before blocks of the model, and the ids of the thinking in it."""
    is_input = "input" in request.body
    prefix = input_prefix(request) if is_input else Prefix(request.body.get("system"), request.body.get("tools"))
    gaps: list[Gap] = []
    sent: list[ThinkingSeal] = []
    waiting = 0
    for role, block in _blocks(request.messages, prefix, is_input=is_input):
        seal = _seal(block)
        if seal is not None:
            gaps[waiting:] = [gap._replace(after=seal) for gap in gaps[waiting:]]
            waiting = len(gaps)
            sent.append(seal)
        elif role == "assistant":
            gaps.append(Gap(prefix.states, sent[-1].id if sent else "", _value(block, is_input=is_input)))
    return prefix, gaps, frozenset(seal.id for seal in sent)


def _blocks(messages: Sequence[Any], prefix: Prefix, *, is_input: bool) -> Iterator[tuple[str, Any]]:
    """The blocks of a list with their roles; the prefix is the one before each of them."""
    if is_input:
        for item in messages:
            yield _side(item), item
            if item.get("type") != "reasoning":
                follow_item(prefix, item)
        return
    for message in messages:
        prefix.open(message)
        for block in blocks_of(message.get("content")):
            yield str(message.get("role")) if not is_compaction(block) else "", block
            prefix.add(block)


def _side(item: Any) -> str:
    return "assistant" if item.get("role") == "assistant" or item.get("type") in {"function_call", "custom_tool_call"} else ""


def _value(block: Any, *, is_input: bool) -> str:
    if not is_input:
        return by_value(block)
    plain = plain_item(block)
    return by_value({key: value for key, value in plain.items() if key not in {"id", "phase"}})


def _seal(block: Any) -> ThinkingSeal | None:
    kind = block.get("type")
    secret = block.get("encrypted_content") if kind == "reasoning" else block.get("signature") or block.get("data")
    return thinking_seal(secret) if kind == "reasoning" or kind in THINKING else None


def _made(record: StrictRecord) -> Iterator[MadeThinking]:
    is_input = "output" in record.reply
    blocks = record.reply.get("output" if is_input else "content") or []
    for place, block in enumerate(blocks):
        if (seal := _seal(block)) is not None:
            behind = (each for each in blocks[place + 1 :] if _seal(each) is None)
            yield MadeThinking(seal, frozenset(_value(each, is_input=is_input) for each in behind))
