"""What counts as a summary in a model's reply: words about the work, and no tool call or refusal."""

import re
from typing import Final

from palimpsest.core.errors import BadInput, WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text, ToolCall, text_of

# Whoever refuses in plain words says so at once, of himself, and at no length; a summary of any use has more to tell.
_LONGEST: Final = 800
_SORRY: Final = (
    r"(?:i['’]?m |i am )?(?:very |so |really |afraid )?sorry\b",
    r"(?:my apologies|apologies|i apologi[sz]e|unfortunately|regrettably|no|nope|but)\b",
    r"as an? (?:ai|large language model|language model)\b(?: model| assistant)?",
    r"(?:非常|很|实在|真)?(?:抱歉|对不起|不好意思|遗憾)",
    r"作为(?:一个|一名)?(?:AI|人工智能|语言模型)(?:助手|模型)?",
)
_UNABLE: Final = (
    r"i(?:['’]m| am) (?:afraid i (?:can['’]?t|cannot)|unable|not able|not permitted|not allowed|not comfortable)\b",
    r"i (?:really |simply )?(?:can['’]?t|cannot|can not|won['’]t|will not|refuse|decline)\b",
    r"i (?:must (?:decline|refuse|not)|(?:have|need) to (?:decline|refuse))\b",
    r"i['’]d (?:rather|prefer) not|i['’](?:m|d) going to (?:decline|refuse)",
    r"(?:that|this|it)(?:['’]s| is) (?:not )?(?:something|a request) (?:that )?i (?:can['’]?t|cannot|can|will not|won['’]t|am)",
    r"this (?:request|conversation) (?:violates|goes against)",
    r"(?:这个请求|这|该请求)?[，,]?我(?:暂时|目前|恐怕|实在|们)?(?:不能|无法|没法|没办法|不便|不会|拒绝)",
    r"(?:这个|这样的|该)(?:请求|要求)?我?(?:不能|无法|没法|没办法)",
    r"恕(?:我)?(?:不能|无法|难以)",
)
_OPENS: Final = re.compile("|".join(_SORRY), re.IGNORECASE)
_REFUSES: Final = re.compile("|".join(_UNABLE), re.IGNORECASE)
_BETWEEN: Final = " \t\n,.;:!—-，。；：！"
# One who cannot do a thing of the work tells of the work.
_OF_THE_WORK: Final = re.compile(
    r"(?:yet |still |really |simply )?"
    r"(?:find|reproduce|run|build|compile|connect|see|tell|explain|get|start|fix|install|reach|open|access the|load)\b"
    r"|(?:找到|复现|运行|编译|连接|访问|确定|定位|安装|打开|加载|启动)",
    re.IGNORECASE,
)


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
    if len(said) > _LONGEST:
        return False
    while (opening := _OPENS.match(said)) is not None:
        said = said[opening.end() :].lstrip(_BETWEEN)
    found = _REFUSES.match(said)
    return found is not None and _OF_THE_WORK.match(said[found.end() :].lstrip()) is None
