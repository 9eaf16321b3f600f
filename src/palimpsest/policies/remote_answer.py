"""What a provider's own compaction gave back, as groups of a fold: known messages are kept, not copied."""

from typing import Final

from msgspec.structs import replace

from palimpsest.core.edits import Keep, Put
from palimpsest.core.errors import WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.fragments import is_real_user_message
from palimpsest.core.items import Opaque, Text
from palimpsest.core.situation import Situation
from palimpsest.policies.handoff import KEPT_TOKENS as HANDOFF_TOKENS
from palimpsest.policies.handoff_layout import Ground, Group
from palimpsest.policies.handoff_proof import summary_text
from palimpsest.policies.kept_messages import Message, keep_texts, messages_of
from palimpsest.policies.prompt import prompt
from palimpsest.wire.args import type_of
from palimpsest.wire.lenient import Json, parse, tables_at, text

_COMPACTIONS: Final = frozenset({"compaction", "compaction_summary", "context_compaction"})


def compactions(reply: ModelReplied) -> tuple[Opaque, ...]:
    """The compaction items of a reply."""
    return tuple(part for part in reply.parts if isinstance(part, Opaque) and type_of(part) in _COMPACTIONS)


def put(situation: Situation, compaction: Opaque) -> Put:
    """A compaction at its place; other models read in its stead what the log proves."""
    return Put("summary", replace(compaction, twin=summary_text(situation, compaction.twin)))


def groups_of(situation: Situation, ground: Ground, reply: ModelReplied) -> tuple[Group, ...]:
    """Assistant messages, compactions, real messages of the user and summaries, in their order; all else is dropped.

    What the user asked for last stays, whether or not the provider gave it back; all that the user said if it gave nothing back.
    """
    messages = messages_of(ground.told)
    known: dict[str, list[Message]] = {}
    for message in messages:
        known.setdefault(message.text, []).append(message)
    summaries = {item.content.text: item for item in ground.told if item.kind == "summary" and isinstance(item.content, Text)}
    groups: list[Group] = []
    for part in reply.parts:
        if isinstance(part, Text):
            groups.append(Group((Put("assistant", part),), "other"))
        elif isinstance(part, Opaque) and type_of(part) in _COMPACTIONS:
            groups.append(Group((put(situation, part),), "compaction"))
        elif isinstance(part, Opaque) and type_of(part) == "message":
            said = _said(parse(part.data, part.provider))
            if said in summaries:
                groups.append(Group((Keep(summaries.pop(said).id),), "summary"))
            elif said.startswith(prompt("handoff_prefix")):
                groups.append(Group((Put("summary", Text(said)),), "summary"))
            elif known.get(said):
                groups.append(Group(tuple(Keep(item.id) for item, _ in known[said].pop(0).words)))
            elif said and is_real_user_message((said,)):
                groups.append(Group((Put("user", Text(said)),)))
    if all(group.what in {"user", "other"} for group in groups):
        raise WireError("the answer holds neither a compaction nor a summary", where=situation.card.provider)
    if messages and messages[-1] in known[messages[-1].text]:
        missing = messages[-1:] if any(group.what == "user" for group in groups) else messages
        groups += (Group(message) for message in keep_texts(missing, HANDOFF_TOKENS))
    # A compaction stands for everything before it, so that nothing of the past may stand behind it.
    return tuple(sorted(groups, key=lambda group: group.what == "compaction"))


def _said(message: Json) -> str:
    """The words of a message in the user's role; none of any other."""
    if text(message, "role") != "user":
        return ""
    return "\n".join(text(part, "text") for part in tables_at(message, "content") if text(part, "text"))
