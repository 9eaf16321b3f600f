"""What counts as a summary in a model's reply: words about the work, and no tool call or refusal."""

import re
from typing import Final

from palimpsest.core.errors import BadInput, WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text, ToolCall, text_of

# Whoever refuses in plain words says so at once and at no length; a summary of any use has more to tell.
_LONGEST: Final = 800
_OPENINGS: Final = (
    r"i['’]?m (?:very |so |really |afraid )?sorry",
    r"i am (?:very |so )?sorry",
    r"(?:sorry|my apologies|apologies|i apologi[sz]e|unfortunately|regrettably)\b",
    r"i(?:['’]m| am) (?:afraid|unable|not able|not permitted|not allowed|not comfortable)",
    r"i (?:really )?(?:can['’]?t|cannot|can not|won['’]t|will not|refuse|decline|must|have to|need to|do not|don['’]t)\b",
    r"i['’]d (?:rather|prefer) not",
    r"as an? (?:ai|language model)\b",
    r"no[,.;:]? (?:sorry|i)\b",
    r"that(?:['’]s| is) not something i",
    r"this (?:request|conversation) (?:violates|goes against)",
    r"(?:非常|很|实在|真)?(?:抱歉|对不起|不好意思|遗憾)",
    r"我(?:暂时|目前|恐怕|实在)?(?:不能|无法|没法|没办法|不便|不会|拒绝)",
    r"无法|恕",
    r"作为(?:一个|一名)?(?:AI|人工智能|语言模型)",
)
_UNABLE: Final = (
    r"\b(?:can['’]?t|cannot|can not|won['’]t|will not|unable|not able|not allowed|not permitted|not comfortable)\b",
    r"\b(?:refuse|declin|rather not|prefer not|not something i|violates|against)",
    r"不能|无法|没法|没办法|不便|不会|拒绝|恕",
)
_OPENS: Final = re.compile("|".join(_OPENINGS), re.IGNORECASE)
_FAILS: Final = re.compile("|".join(_UNABLE), re.IGNORECASE)


def summary_in(reply: ModelReplied) -> str:
    """The text of a summary; one that calls a tool, says nothing or refuses in plain words is none."""
    if any(isinstance(part, ToolCall) for part in reply.parts):
        raise WireError("the summary is a tool call")
    text = "\n".join(text_of(part) for part in reply.parts if isinstance(part, Text)).strip()
    if not text:
        raise BadInput("the summary is empty")
    if refuses(text):
        raise BadInput("the model refused to summarise")
    return text


def refuses(text: str) -> bool:
    """Whether a reply says in plain words that there will be no summary."""
    said = text.strip()
    return len(said) <= _LONGEST and _OPENS.match(said) is not None and _FAILS.search(said) is not None
