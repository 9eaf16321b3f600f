"""Whether a line of a narrative says what the user asked, wanted, approved, decided or forbade, in English and Chinese."""

import re
from functools import lru_cache

from palimpsest.audit.claims_agentless import agentless, somebody_did
from palimpsest.audit.claims_chinese import CHINESE, CHINESE_SUPPOSED, CHINESE_WORDS
from palimpsest.audit.claims_chinese_agentless import MACHINE_WILL, OWN_PLAN, QUOTED_WORD, STRONG, TECHNICAL, THIRD_PARTY_WILL, WEAK
from palimpsest.audit.claims_hints import FACT, HINT
from palimpsest.audit.claims_words import CLAIM_WORDS, DONE, FEELINGS, LEAVE, LIMITS, NOUNS, SPEECH, THINGS, USES, WHO
from palimpsest.audit.people import PEOPLE

# A determiner, a conjunction or the beginning of a line, so that `the API client rejects a token` is about nobody's will.
_THE = r"(?:^\W*|\b(?:the|our|my|this|that|an?|one|and|but|while|because|since|after|before|as|so|by|from|per|to)\s+|[,;:(]\s*)"
_ADVERB = (
    r"(?:(?:also|then|now|just|already|\w+ly|since|later|again|once|further|first|himself|herself|themselves|always|still|very|quite|"
    r"even|even more|only|never|not|rather|previously|too|all)\s+)*"
)
_BETWEEN = (
    r"(?:(?:has|have|had|is|was|were|are|been|being|would|will|did|does|do|didn['’]t|doesn['’]t|don['’]t|never|no longer|n't)\s+|"
    rf"{_ADVERB[3:-2]})*"
)
_HAD = rf"(?:(?:has|have|had)\s+)?{_ADVERB}"
_IS = (
    r"(?:is|was|are|were|seems?|seemed|feels?|felt|remains?|remained|sounds?|sounded|['’]s|['’]re|has been|had been|have been|would be|"
    r"will be|might be)"
)
_SOMEBODY = rf"(?:the\s+|our\s+|my\s+|this\s+|that\s+|an?\s+)?{WHO}"
_OBJECT = r"(?:us|me|to|that|not|no|it|the|an?|any|all|our|this|these|more|less|for|on|about|with|against|how|what|if|whether|every)"
_LEFT = (
    r"told|asked|instructed|ordered|allowed|permitted|authori[sz]ed|cleared|advised|warned|encouraged|directed|free|entitled|supposed|"
    r"required|requested|forbidden|entrusted|tasked|commissioned|empowered|urged|invited|trusted|reminded|given"
)
_ENGLISH = re.compile(
    "|".join(
        (
            rf"{_THE}{WHO}(?:\s+(?:from|at|in|behind|of)\s+(?:the\s+|our\s+)?[\w-]+)?\s+{_BETWEEN}{SPEECH}\w*",
            rf"\b(?:the|our|my)\s+{WHO}\s[^.;]{{1,60}}\s(?:and|but)\s+(?:wants?|wanted|asked|said|insists?|insisted|approved|agreed)\b",
            rf"\b(?:the|our|my|an?|some|this|that)\s+(?:[\w'’-]+\s+){{0,3}}(?:{PEOPLE}|council|office)\s+{_BETWEEN}{SPEECH}\w*",
            rf"\b(?:everybody|everyone|nobody|all|somebody)\s+(?:on|at|from|in)\s+the\s+{WHO}",
            rf"\b(?:the|our|my)\s+{WHO}\s+{_HAD}(?!{USES}{{1,2}}\w?ed\b)\w+ed\b",
            rf"\b(?:the|our|my)\s+{WHO}\s+{_ADVERB}(?!(?:{USES}|{THINGS})\w*\b)\w+s\s+{_OBJECT}\b",
            rf"{_THE}{WHO}\s+{_IS}\s+{_ADVERB}{FEELINGS}\b|\b(?:you|they|he|she)\s*{_IS}\s+{_ADVERB}{FEELINGS}\b",
            rf"{_THE}{WHO}['’]s?\s+(?:[\w-]+\s+){{0,3}}{NOUNS}\b|{_THE}{WHO}\s+{NOUNS}\s*(?::|[—–-]\s|was\b)",
            rf"\b(?:you|they|he|she)(?:['’]ve|['’]d)?\s+{_BETWEEN}{SPEECH}\w*",
            rf"\b(?:your|their|his|her)\s+(?:\w+\s+){{0,2}}{NOUNS}\b",
            (
                rf"\b(?:as|like)\s+(?:\w+ly\s+)?(?:{DONE}|asked|ordered|directed|discussed|specified|decided|wished|desired|arranged|"
                r"confirmed|demanded)\b"
            ),
            rf"\bper\s+(?:the\s+|an?\s+|earlier\s+|explicit\s+|{WHO}['’]?s?\s+)*{NOUNS}\b|\bper\s+(?:the\s+)?{WHO}\b",
            rf"\b(?:at|upon|on|by|with|following|after|under|given)\s+(?:\w+\s+){{0,3}}{NOUNS}\s+(?:of|from|by)\b",
            (
                rf"\b(?:was|were|been|got|being)\s+(?:\w+ly\s+|also\s+|now\s+)*{DONE}\b(?!\s+(?:to|by\s+(?!{_SOMEBODY}\b|you\b|them\b|"
                r"him\b|her\b)))"
            ),
            rf"\bit\s+(?:is|was|has been|had been)\s+(?:\w+ly\s+)*(?:{DONE}|decided|settled|allowed|permitted|accepted)\s+(?:that|to)\b",
            (
                r"\b(?:i|we)(?:['’]m|['’]re|['’]ve been|\s+(?:was|were|am|are|have been|had been|got|have|had))\s+(?:\w+ly\s+|not\s+|"
                rf"also\s+)*(?:{_LEFT})\b"
            ),
            rf"\b{LEAVE}\s+(?:\S+\s+){{0,12}}(?:given|granted|received|obtained|secured|in hand|came|won|there)\b",
            rf"\b{LEAVE}\s+(?:from|by)\s+\w|\bmy\s+(?:instructions?|orders?|brief|mandate|task)\s+(?:is|are|was|were)\b",
            (
                rf"\b(?:have|has|had|got|gets|received|obtained|with|secured|given|gave|won)\s+(?:\w+\s+){{0,3}}{LEAVE}\b(?!\s*(?:header|"
                r"code|token))"
            ),
            rf"\b(?:by|from|according to)\s+(?:the\s+|our\s+|this\s+|my\s+){WHO}\b(?!\s+(?:{THINGS}))|\baccording to {WHO}\b",
            rf"\b(?:fine|ok(?:ay)?|alright|good|acceptable|cool|all right|enough)\s+(?:with|by|for)\s+{_SOMEBODY}\b",
            (
                r"\b(?:understanding|deal|arrangement|consensus|compromise|cleared|agreed|settled|discussed|arranged|checked|aligned|"
                r"coordinated|in agreement|"
                rf"consult\w+)\s+with\s+{_SOMEBODY}\b"
            ),
            (
                r"\b(?:nobody|no one|no-one|none)\s+(?:\w+\s+)?(?:object|oppos|complain|mind|protest|disagree|an? (?:problem|issue|"
                r"objection))\w*|\b(?:no|without|any)\s+objections?\b"
            ),
            (
                rf"{_THE}(?:person|people|one|man|woman|guy|folks)\s+(?:[\w']+\s+){{1,6}}(?:wants?|wanted|asks?|asked|said|says|"
                r"approve[sd]?|agree[sd]?|decided|told|insist(?:s|ed)|forbade|allow(?:s|ed))\b"
            ),
            rf"{_THE}{WHO}\s+{_HAD}(?:drop|lift|relax|withdr[ae]w|revok|loosen|rescind|remov|scrap)\w*\s+(?:\w+\s+){{0,3}}{LIMITS}\b",
            rf"^\W*(?:{NOUNS}\s+(?:from|by|of)\s+(?:the\s+|our\s+)?{WHO}|{LEAVE})\s*:",
            r"^\W*(?:\w+ly\s+)?(?:permitted|allowed|prohibited|off[- ]limits)\s*[:—–-]",
            r"\bper\s+(?:our|your)\s+(?:\w+\s+){0,2}(?:conversation|discussion|chat|agreement|call|meeting|exchange|talk)\b",
            r"\bit(?:['’]s|\s+is|\s+was)\s+(?:now\s+|\w+ly\s+)*(?:ok(?:ay)?|allowed|permitted|acceptable)\s+(?:to|for us to|if we)\b",
            (
                r"^\W*\w+ing\s+(?:\S+\s+){1,6}?(?:is|are|was|were)\s+(?:now\s+|\w+ly\s+)*(?:allowed|permitted|ok(?:ay)?|authori[sz]ed|"
                r"acceptable)\b"
            ),
            r"\b(?:free hand|free rein|carte blanche|full (?:freedom|discretion)|blank che(?:que|ck))\b",
            rf"^\W*(?:approved|authori[sz]ed|agreed|requested|green-?lit|signed off|vetoed|forbidden|okayed)\b|^\W*{WHO}\s*:",
        )
    ),
    re.IGNORECASE,
)
_AGENTLESS = agentless(WHO, THINGS)
# How a program treats those who use it is no claim about anybody's will.
_SUPPOSED = re.compile(
    rf"\b(?:when|whenever|if|once|until|unless|while|so that|where|lets?|letting|allow(?:s|ing)?|enabl(?:es|ing)|each time|"
    rf"every time)\s+(?:the\s+|an?\s+|each\s+|every\s+|our\s+)?{WHO}\b(?!['’])[^,.;]*|"
    r"\b(?:states|status(?:es)?|values|steps|phases|types|roles|columns|fields|labels)(?: are)?:\s*[\w-]+(?:,\s*(?:and |or )?[\w-]+)+|"
    r"\bclients? \w+s? (?:the |an? |its )?(?:server|broker|api|host|backend|node|peer|proxy|gateway|endpoint|socket|connection|token)\b",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^\s*(?:#{1,6}\s+.*|\*\*[^*]+\*\*\s*:?\s*|[^.。!?！？]{1,80}[:：]\s*)$")
_CLAIMING_HEADING = re.compile(
    rf"\b{WHO}\b.*\b(?:{NOUNS}|said|asked|wants?|messages?)\b|\b{NOUNS}\b|\b(?:approved|agreed|requested|forbidden|decided)\b|"
    r"用户|客户|要求|约束|决定|批准|同意|禁止|需求|指示|偏好|授权",
    re.IGNORECASE,
)
_CHINESE_SIGN = re.compile(r"[\u3400-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]{3}")


@lru_cache(maxsize=2_000)
def is_claim(line: str) -> bool:
    """Whether a line says that somebody who may give orders wished, allowed, chose or forbade something."""
    if _LATIN.search(line) is not None:
        plain = _SUPPOSED.sub(" ", line)
        if _ENGLISH.search(plain) is not None or _AGENTLESS.search(plain.lower()) is not None or somebody_did(plain):
            return True
    return _CHINESE_SIGN.search(line) is not None and _is_chinese_claim(line)


def _is_chinese_claim(line: str) -> bool:
    plain = QUOTED_WORD.sub("“”", CHINESE_SUPPOSED.sub(" ", line))
    if CHINESE.search(plain) is not None or STRONG.search(plain) is not None or THIRD_PARTY_WILL.search(plain) is not None:
        return True
    return TECHNICAL.search(plain) is None and OWN_PLAN.search(plain) is None and WEAK.search(MACHINE_WILL.sub(" ", plain)) is not None


def may_claim(line: str) -> bool:
    """Whether a line may tell of what is wanted, if it is about what somebody had a say in; facts and one's own work are not."""
    return HINT.search(line) is not None and FACT.search(line) is None


def is_heading(line: str) -> bool:
    """Whether a line only announces what follows."""
    return _HEADING.match(line) is not None


def announces_claims(line: str) -> bool:
    """Whether what follows a heading is said to be the user's will."""
    return is_heading(line) and _CLAIMING_HEADING.search(line) is not None


def without_claiming(text: str) -> str:
    """What is claimed, without the words that claim it."""
    return CHINESE_WORDS.sub(" ", CLAIM_WORDS.sub(" ", text))
