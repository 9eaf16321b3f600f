"""English sentences in which somebody tells, reacts or greets, and those that state a rule without a verb."""

import re

from palimpsest.audit.binding_verbs import PAST, VERBS

_LEAD = (
    r"^(?:(?:ok(?:ay)?|so|then|also|and|but|now|well|hm+|uh+|ah+|oh|huh|wow|cool|great|good|right|alright|fine|hey|hi|btw|yes|yeah|no|"
    r"haha+|"
    r"lol|actually|honestly|anyway|interesting|sorry|sadly|unfortunately|apparently|funny|strange|weird)[,.!]*\s+)*"
)
_OPENING = re.compile(_LEAD)
_PAST = (
    rf"(?:{'|'.join(PAST.split())}|(?<!top )(?<!bottom )(?<!upper )(?<!lower )(?<!the )left|(?!need|feed|embed|seed|speed|exceed|proceed|"
    rf"decid|agreed|pick|settl|opt|rul|approv|confirm|accept|prefer|want|expect|ask)[a-z]{{2,}}ed)(?!')"
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
    rf"only (?:[\w-]+ ){{1,3}}{_PAST}\b|you may (?:remember|recall|know|have)\b|"
    r"i agree that\b|(?:he|she|they|we|someone|somebody) asked (?:me|us|about|whether|if|why|how|what)\b|"
    rf"(?:every(?:one|body|thing)|some(?:one|body)|nobody|no one|people|users?|customers?)(?: \w+){{0,4}} {_PAST}\b|"
    r"i said (?:that|this|so|it)\b|"
    r"no wonder\b|(?:makes|turns|looks|sounds|seems|feels|works|worked|happens|fails|crashes|depends|reminds|explains|thinking|wondering|"
    r"guessing) |"
    r"i(?:'m| am) (?:an?|the|in|on|at|not sure|still|just|from|new|by|back|off|out|curious|surprised|confused|impressed|afraid)\b|"
    r"i (?:think|guess|suppose|believe|know|wonder|find|feel|understand|see|doubt|suspect|always|usually|live|work|compose|have (?!to)|"
    r"can(?:'t|not)? (?:reproduce|see|confirm|tell|imagine))|"
    rf"(?:the|my|our|his|her|their|a|an|its|your) (?:[\w-]+ ){{1,4}}{_PAST}\b(?! (?:to be|in|on|with|by|before|at)\b)|"
    r"(?:all|every|each|both|any) [\w-]+(?: [\w-]+)? (?:has|have|had|ships?|comes?|contains?|consists?|took|takes?|reports?|appears?)\b|"
    r"(?:nobody|no one|everybody|everyone) (?:knows|understands|remembers|cares|uses|likes|loves|hates)\b|"
    r"it (?:only |also |always |usually |just )?(?:breaks|stops|dies|freezes|happens|works|fails|crashes|takes|seems|looks|prints|says|"
    r"shows|runs|sits|hangs)|"
    rf"(?!keep|leave|get|have|make|show|list|return|use|find|mark|log|print|treat|want|set|put|no|only|on|in|at|for|with|by|to|from|"
    rf"after|before|if|once)[\w-]+ (?!(?:the|an?|all|it|them|any|is|are|be|to|not|get|gets)\b)[\w-]+ {_PAST}\b(?! (?:by|in|with|to|at|on|"
    rf"as|from)\b)|"
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
    r"(?:ha(?:ha)+|lol|happy \w+(?:, by the way)?|merry|good luck|have a (?:nice|good|great)|see you|no (?:problem|worries)|"
    r"never mind(?:, (?:found|got|solved|fixed|figured)[^,;:]*)?|all good|good (?:job|work|one|morning|evening|night|question|point|"
    r"catch)|"
    r"nice (?:one|work)|well done|fair (?:enough|point)|got it|i see|same here|my bad|believe it or not)\b[^,;:]*$"
)
# A rule needs no verb: `Commits in English.` What tells of something that is or was has one, or begins with what it tells of.
_TELLS = re.compile(
    r"^(?:all|every|each|the|an?|this|that|these|those|my|our|your|his|her|their|its?|i|we|you|he|she|they|there|here|hi|hello|hey|"
    r"thanks?|good|great|"
    r"nice|"
    r"interesting|cool|wow|sorry|oops|haha\w*|lol|see you|no (?:problem|worries|idea|clue|luck|output|error|change)s?|all good|welcome|"
    r"bye|cheers|congrat\w*)\b|(?<!-)\b(?:is|are|was|were|am|be|been|has|have|had|does|did|gets?|got|seems?|looks?|"
    r"\w{2,}ed|\w+n't|\w+s (?:best|well|badly|better|worse|slowly)|(?:come|complain|meet|travel|speak|talk|enjoy|believe|notice|tend|"
    r"stand|sit|lie|live|cost|weigh|mean|happen|arrive|vary|sound|feel|appear|exist|depend|last|occur|peak|consist|contain)s?)"
    r"\b(?<!\bat last)|[\[\]{}=]|\w:\d|:$",
)
_RULE = re.compile(r"^(?!\d{3}\b)[^\s.!]+(?: [^\s.!]+){1,8}[.!]$")
_WAS = re.compile(rf"\b(?:{'|'.join(word for word in PAST.split() if word not in {'hit', 'held', 'kept', 'done'})})\b")
_FEELS = re.compile(
    r"\b(?:strange|weird|odd|fair|lucky|plausible|interesting|funny|sad|bad|broken|sorry|thanks|sure|curious|confusing|annoying|crazy|"
    r"amazing|impressive|"
    r"cute|clever|silly|hm+|ah+|oh|wow|guess|suppose|idea|still|again|luck|pity|shame|true|indeed|exactly|surprising|lovely|awesome|"
    r"brilliant|"
    r"classic|ha|cool|neat|pretty|sweet|awful|terrible|ouch|phew|damn|oops|usually|often|sometimes|mostly|almost|typically|normally|"
    r"generally|rarely|seldom|nowadays|rush|sadly|unfortunately|luckily|apparently|probably|presumably|obviously|maybe|perhaps|evidently|"
    r"understand|understood|yesterday|today|ago|i|far)\b"
)


# A verb stands between what it tells of and what that does: `waiters enter the orders`, `stations report at noon`.
_STATES = re.compile(
    r"^[^,;:]*\b(?!(?:in|on|at|of|for|from|to|with|by|as|if|when|while|and|or|but|then|than|not|only|just|all|both|plus|per|via|until|"
    r"unless|after|before|"
    r"about|into|over|under|above|below|between|across|during|through|against|within|without|inside|outside|around|behind|beside|next|"
    r"near|like|first|"
    r"max|min|exactly|except|besides|every|same)\b)[a-z][\w'-]+ (?:the|an?|me|us|it|them|its|their|our|my|your|his|her|this|that|these|"
    r"those|\d+)\b|"
    rf"^[^,;:]*\b[a-z]+[a-rt-z]s (?:\w+ly |all |both )?(?:{'|'.join(VERBS.split())})\b(?! (?:only|first|last|max)\b)|"
    rf"^[^,;:]*\b[a-z]+ (?:{'|'.join(VERBS.split())})e?s (?:from|at|when|if|after|before|during|to|into|by|through|over|via|with|every|"
    rf"each|all|some)\b"
)


def pleases(sentence: str) -> bool:
    """Whether a sentence greets, thanks, reacts, or repeats what a program says."""
    return _QUOTES.match(sentence) is not None or _PLEASED.match(sentence) is not None


def tells(sentence: str) -> bool:
    """Whether a sentence tells of what was, of what usually is, or of what somebody thinks or feels."""
    return _NARRATES.match(sentence) is not None


def names_a_rule(sentence: str) -> bool:
    """Whether a short sentence states a rule without a verb."""
    if _RULE.match(sentence) is None or _FEELS.search(sentence) is not None:
        return False
    bare = _OPENING.sub("", sentence)
    return _WAS.search(bare) is None and _TELLS.search(sentence) is None and _TELLS.search(bare) is None and _STATES.match(bare) is None
