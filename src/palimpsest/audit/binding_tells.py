"""English sentences in which somebody tells, reacts or greets, and those that state a rule without a verb."""

import re

from palimpsest.audit.binding_verbs import PAST

_LEAD = (
    r"^(?:(?:ok(?:ay)?|so|then|also|and|but|now|well|hm+|uh+|ah+|oh|huh|wow|cool|great|good|right|alright|fine|hey|hi|btw|yes|yeah|no|"
    r"haha+|"
    r"lol|actually|honestly|anyway|interesting|sorry|sadly|unfortunately|apparently|funny|strange|weird)[,.!]*\s+)*"
)
_PAST = (
    rf"(?:{'|'.join(PAST.split())}|(?!need|feed|embed|seed|speed|exceed|proceed|decid|agreed|pick|settl|opt|rul|approv|confirm|accept|"
    rf"prefer|want|expect|ask)[a-z]+ed)(?!')"
)
_MEANWHILE = r"(?:'ve| have| has| had| just| also| already| always| never| only| still| really| usually| once| actually| then| both| all)*"
_NARRATES = re.compile(
    rf"{_LEAD}(?:(?:i|we|he|she|they|it|you|that|this|there|every(?:thing|one|body)|nothing|some(?:one|body)|nobody|no one)"
    rf"{_MEANWHILE} {_PAST}\b|"
    rf"(?:i|we|he|she|they|it|you)(?:'ve| have| has)(?: \w+ly| never| always| been| just| only)* (?:{_PAST}|had|been|got)\b|"
    rf"(?:never|always|just|still|already|only|not|almost) (?:{_PAST}|\w+ing)\b|"
    r"(?:yesterday|last (?:night|week|month|year|time|autumn|summer|winter|spring|\w+day)|this (?:morning|afternoon|week)|usually|"
    r"sometimes|often|mostly|back (?:then|in)|in (?:my|our) (?:company|team|office|experience|opinion|case|lab)|(?:some|most|many|"
    r"several|few) (?!\w+ (?:should|must)))\b|"
    r"(?:makes|turns|looks|sounds|seems|feels|works|worked|happens|fails|crashes|depends|reminds|explains|thinking|wondering|guessing) |"
    r"i(?:'m| am) (?:an?|the|in|on|at|not sure|still|just|from|new|by|back|off|out|curious|surprised|confused|impressed|afraid)\b|"
    r"i (?:think|guess|suppose|believe|know|wonder|find|feel|understand|see|doubt|suspect|always|usually|live|work|compose|have (?!to)|"
    r"can(?:'t|not)? (?:reproduce|see|confirm|tell|imagine))|"
    rf"(?:the|my|our|his|her|their|a|an|its|your) (?:[\w-]+ ){{1,4}}{_PAST}\b(?! (?:to be|in|on|with|by|before|at)\b)|"
    r"(?:all|every|each|both|any) [\w-]+(?: [\w-]+)? (?:has|have|had|ships?|comes?|contains?|consists?|took|takes?|reports?|appears?)\b|"
    r"(?:nobody|no one|everybody|everyone) (?:knows|understands|remembers|cares|uses|likes|loves|hates)\b|"
    r"it (?:only |also |always |usually |just )?(?:happens|works|fails|crashes|takes|seems|looks|prints|says|shows|runs|sits|hangs)|"
    rf"(?!keep|leave|get|have|make|show|list|return|use|find|mark|log|print|treat|want|set|put|no|only|on|in|at|for|with|by|to|from|"
    rf"after|before|if|once)[\w-]+ (?!the|a|an|all|it|them|any)[\w-]+ {_PAST}\b(?! (?:by|in|with|to|at|on|as|from)\b)|"
    r"(?!nothing|anything|everything|during|using|regarding)[a-z]+ing (?:it|them|now|that|this|again|on)\b|there(?:'s| is| are) |"
    r"i'm (?:still )?\w+ing\b(?<!asking)(?<!expecting)(?<!hoping)(?<!looking))"
)
# What a program or a paper says is told, not demanded.
_QUOTES = re.compile(
    r"(?:the|this|that|my|an?|its?|our)? ?(?:\w+ )?(?:error|message|log|output|docs?|documentation|warning|console|compiler|linter|"
    r"page|test|traceback|"
    r"terminal|browser|popup|dialog|manual|readme)s? (?:says?|said|shows?|showed|tells?|told|prints?|printed|reads?|complains?|claims?|"
    r"states?)\b"
)
_PLEASED = re.compile(
    r"(?:ha(?:ha)+|lol|see you|no (?:problem|worries)|never mind|all good|good (?:job|work|one|morning|evening|night|question|point|catch)|"
    r"nice (?:one|work)|well done|fair (?:enough|point)|got it|i see|same here|my bad)\b[^,;:]*$"
)
# A rule needs no verb: `Commits in English.` What tells of something that is or was has one, or begins with what it tells of.
_TELLS = re.compile(
    r"^(?:all|every|each|the|an?|this|that|these|those|my|our|your|his|her|their|its?|i|we|you|he|she|they|there|here|hi|hello|hey|"
    r"thanks?|good|great|"
    r"nice|"
    r"interesting|cool|wow|sorry|oops|haha\w*|lol|see you|no (?:problem|worries|idea|clue|luck|output|error|change)s?|all good|welcome|"
    r"bye|cheers|congrat\w*)\b|\b(?:is|are|was|were|am|be|been|has|have|had|does|did|gets?|got|seems?|looks?|"
    r"\w+ed|\w+n't)\b|[\[\]{}=]|\w:\d|:$",
)
_RULE = re.compile(r"^(?!\d{3}\b)[^\s.!]+(?: [^\s.!]+){1,8}[.!]$")
_FEELS = re.compile(
    r"\b(?:strange|weird|odd|fair|lucky|plausible|interesting|funny|sad|bad|broken|sorry|thanks|sure|curious|confusing|annoying|crazy|"
    r"amazing|impressive|"
    r"cute|clever|silly|hm+|ah+|oh|wow|guess|suppose|idea|still|again|luck|pity|shame|true|indeed|exactly|surprising|lovely|awesome|"
    r"brilliant|"
    r"classic|ha|cool|neat|pretty|sweet|awful|terrible|ouch|phew|damn|oops|usually|often|sometimes|mostly|almost|typically|normally|"
    r"generally|rarely|seldom|nowadays|understand|understood|yesterday|today|ago|i|far)\b"
)


def pleases(sentence: str) -> bool:
    """Whether a sentence greets, thanks, reacts, or repeats what a program says."""
    return _QUOTES.match(sentence) is not None or _PLEASED.match(sentence) is not None


def tells(sentence: str) -> bool:
    """Whether a sentence tells of what was, of what usually is, or of what somebody thinks or feels."""
    return _NARRATES.match(sentence) is not None


def names_a_rule(sentence: str) -> bool:
    """Whether a short sentence states a rule without a verb."""
    return _RULE.match(sentence) is not None and _TELLS.search(sentence) is None and _FEELS.search(sentence) is None
