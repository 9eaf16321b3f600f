"""Phrases of several words that mean what one word means."""

import re
from typing import Final

_PHRASES: Final = (
    (
        r"(?:get(?:ting)?|got) rid of|do away with|throw(?:n|ing)? (?:out|away)|tak(?:e|en|ing) out|rip(?:ped)? out|kick(?:ed)? out",
        "remove",
    ),
    (r"pull[- ]requests?", "pr"),
    (r"(?:leav(?:e|es|ing)|left) out(?: of)?", "omit from"),
    (r"(?:has to|have to|can|must|should|will) wait", "postpone"),
    (r"back(?:ed|ing|s)?[- ]up", "backup"),
    (r"(?:合并|拉取)请求", " PR "),
    (r"hold(?:ing)? off(?: on)?|held off(?: on)?|put(?:ting)? off", "not yet"),
    (r"(?:may|can|should|must|has to|have to|needs? to|will) go(?= ?[.,;]|$| away| now)|go(?:es)? away", "remove"),
    (r"in a row|in succession|(?<=times )running", "consecutive"),
    (r"(?:turn|switch|shut)(?:ed|ing|s)? (?:it )?off", "disable"),
    (r"(?:turn|switch)(?:ed|ing|s)? on", "enable"),
    (r"roll(?:ed|ing|s)? back", "revert"),
    (r"roll(?:ed|ing|s)?(?: (?:it|this|them))? out|rollout|go(?:es|ing)? live|went live", "deploy"),
    (r"look(?:ed|ing|s)? into|find(?:ing)? out|found out|track(?:ed|ing)? down|dig(?:ging)? into|get to the bottom of", "investigate"),
    (r"in advance|ahead of time", "ahead"),
    (r"around the clock|day and night|24/7", "nonstop"),
    (r"right away|at once|straight away", "immediately"),
    (r"from scratch", "rewrite"),
)
_PHRASE: Final = tuple(
    (re.compile(rf"\b(?:{words})\b" if words.isascii() else words, re.IGNORECASE), instead) for words, instead in _PHRASES
)
# None of these phrases is without one of these words.
_SPACED = re.compile(
    " (?:up|wait|of|off|out|away|on|back|live|into|down|row|succession|running|advance|time|clock|night|24/7|once|scratch|requests?|go)|"
    "goes|pull-r|请求"
)


def plainly(text: str) -> str:
    """A text with one word for each phrase that means the same."""
    if _SPACED.search(text) is not None:
        for phrase, instead in _PHRASE:
            text = phrase.sub(instead, text)
    return text
