"""What a narrative says of the user's will must match something that the user said, or it goes."""

import re
from collections.abc import Sequence
from typing import Final

from palimpsest.audit.claims import announces_claims, is_claim, is_heading, without_claiming
from palimpsest.audit.content import Meaning, meaning_of, together
from palimpsest.audit.deeds import IMPLIED, OPPOSITE, keeps, says_the_opposite
from palimpsest.audit.polarity import clauses_of
from palimpsest.audit.said import Passage, Said

MOST_CHINESE: Final = 0.5
_ASKED = re.compile(r"\b(?:ask(?:ed|s|ing)?|wonder\w*|inquir\w*|question\w*|wanted to know|curious)\b|问|想知道", re.IGNORECASE)
_TELLS = re.compile(
    r"\b(?:complain|worr|concern|said|says?|mention|report|note[ds]?\b|observ|explain|point|dislik|annoy|unhappy|critici|words|opinion|"
    r"think|thought|"
    r"feel|felt|found|finds|believ|consider|frustrat|according)|抱怨|担心|担忧|说|提到|反映|反馈|指出|觉得|认为|不满|嫌|吐槽|表示|说明|"
    r"看法",
    re.IGNORECASE,
)
_PRAISES = re.compile(
    r"\b(?:right|good|best|great|perfect|correct|ideal|better|excellent|nice|fan of)\b|正确|最好|很好|不错|合适|满意", re.IGNORECASE
)
_APPROVES = re.compile(
    r"(?:yes|yep|yeah|sure|ok(?:ay)?|fine|go ahead|do it|lgtm|agreed|approved|perfect|sounds good|looks good|ship it|great|please do)\b|"
    r"(?:that['’]?s |it['’]?s )?(?:fine|ok(?:ay)?|good) (?:by|with|for) me|works for me|"
    r"(?:好|可以|行|同意|没问题|批准|就这样|对|是的|嗯|执行)",
    re.IGNORECASE,
)
_APPROVAL = re.compile(
    r"\b(?:approv|agree|accept|confirm|consent|sign(?:ed|s)?[ -]off|ok(?:ay)?e?d?\b|green|go[- ]ahead|bless|happy|fine|allow|permi|"
    r"authori|"
    r"object|grant|clear(?:ed|ance)|free|mind|let\b|waiv|may\b|can\b|trust|licen[cs]e)|"
    r"同意|批准|认可|确认|通过|拍板|首肯|许可|授权|允许|准许|点头|可以|不反对|不介意|没意见|放行|没有意见",
    re.IGNORECASE,
)
_GENERIC = (
    "plan",
    "approach",
    "propos",
    "chang",
    "design",
    "implement",
    "idea",
    "solution",
    "work",
    "next",
    "step",
    "proceed",
    "it",
    "this",
)
_GENERIC_CHINESE = re.compile(r"[方案计划提议做法思路设计改动修改建议这个该此]*")


def supported(line: str, user_texts: Sequence[str]) -> bool:
    """Whether a line that says what the user wanted matches what the user said; one that makes no such claim needs no support."""
    return not is_claim(line) or _is_said(line, Said(user_texts))


def clean(narrative: str, user_texts: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """A narrative without the lines that claim a wish, an approval, a decision or a ban that nobody expressed; and these lines.

    What stands under a heading that announces the user's will is claimed as well.
    """
    said = Said(user_texts)
    kept: list[str] = []
    removed: list[str] = []
    announced = False
    for line in narrative.split("\n"):
        heading = is_heading(line)
        announces = heading and announces_claims(line)
        # A heading that says more than that something follows is a line like any other.
        claims = (is_claim(line) and not announces) if heading else bool(line.strip()) and (announced or is_claim(line))
        if claims and not _is_said(line, said):
            removed.append(line)
            # What follows a heading that goes stands under the one before it.
            continue
        kept.append(line)
        if heading:
            announced = announces
    return "\n".join(kept), tuple(removed)


def _is_said(line: str, said: Said) -> bool:
    """Whether what a line is for and what it is against were said, together or each of its clauses by itself."""
    line = _plain(line)
    parts = [_claim_of(part) for part in clauses_of(line)]
    parts = [part for part in parts if part.says]
    if _approves_nothing_particular(line, parts) and any(_APPROVES.match(text.strip()) for text in said.texts):
        return True
    sides = [together(side) for side in ([part for part in parts if not part.negative], [part for part in parts if part.negative]) if side]
    if not sides:
        return False
    return all(_found(side, line, said) for side in sides) or (len(parts) > len(sides) and all(_found(part, line, said) for part in parts))


def _claim_of(clause: str) -> Meaning:
    return meaning_of(without_claiming(clause), claimed=clause)


def _plain(line: str) -> str:
    return re.sub(r"^\s*(?:[-*•>]+\s+|\d{1,3}[.)、]\s*)*|\(\d+\.\d+\)|\[\d+\.\d+\]", "", line)


def _approves_nothing_particular(line: str, parts: Sequence[Meaning]) -> bool:
    """`The user approved the plan` names nothing that could be false but the approval itself."""
    said = together(list(parts))
    generic = all(word.startswith(_GENERIC) for word in said.words) and all(_GENERIC_CHINESE.fullmatch(gram) for gram in said.grams)
    return generic and _APPROVAL.search(line) is not None and not (said.exact or said.deeds - {"change"} or said.negative)


def _found(claim: Meaning, line: str, said: Said) -> bool:
    """Whether some passage of what the user said says a claim."""
    # Little that is said must be said together: not one half here and the other there.
    wide = claim.size > 3 or bool(claim.exact)
    asked, tells = _ASKED.search(line) is not None, _TELLS.search(line) is not None and _PRAISES.search(line) is None
    return any(_matches(claim, line, passage, asked=asked, tells=tells) for passage in said.passages(claim, _most(claim), wide=wide))


def _matches(claim: Meaning, line: str, passage: Passage, *, asked: bool, tells: bool) -> bool:
    """Same numbers, paths and names in clauses that are as negative, most of the words there, and no other deed."""
    fitting = [clause for clause in passage.clauses if _is_meant_alike(claim, clause, tells=tells) and (asked or not clause.asks)]
    # Who finds a thing bad and says what to do about it means that thing.
    if any(claim.covered_by(clause) > 0 for clause in fitting) and not claim.negative:
        fitting += [clause for clause in passage.clauses if clause.bad and not clause.negative and clause not in fitting]
    if not claim.words | claim.grams | claim.exact:
        fitting = [clause for clause in fitting if clause.size <= 2]
    if not fitting:
        return False
    alike, whole = together(fitting), together(passage.clauses)
    # What is told may name a thing in one clause and tell of it in the next; and so may who gives it another name.
    near = whole if tells or (len(claim.exact) > 1 and claim.exact & alike.exact) else alike
    if not claim.exact <= near.exact or any(not _has(alike, name) for name in claim.proper):
        return False
    if claim.covered_by(alike) < (0.5 if claim.size > 5 or (claim.negative and claim.size == 2) else 0.6) or claim.covered_by(
        whole
    ) < _most(claim):
        return False
    if says_the_opposite(line, passage.text) or (keeps(line) and not claim.negative and "remove" in alike.deeds - claim.deeds):
        return False
    if keeps(passage.text) and "change" in claim.deeds - alike.deeds:
        return False
    return _does_alike(claim, passage.clauses if claim.negative or claim.exact or claim.proper else fitting) and not (
        _APPROVAL.search(line) is not None and not claim.negative and _is_wider(claim, fitting)
    )


def _is_meant_alike(claim: Meaning, clause: Meaning, *, tells: bool) -> bool:
    if claim.negative or claim.bad:
        return clause.negative or clause.bad or (tells and not claim.negative)
    return not clause.negative and (tells or not clause.bad)


def _has(said: Meaning, name: str) -> bool:
    return said.has_word(name) or any(name in exact for exact in said.exact)


def _does_alike(claim: Meaning, clauses: Sequence[Meaning]) -> bool:
    """Whether every deed of a claim was said, and said of the same numbers, paths and names where it was said of any."""
    for deed in claim.deeds:
        doing = [clause for clause in clauses if deed in clause.deeds]
        if not doing:
            others = frozenset().union(*(clause.deeds for clause in clauses))
            if deed not in IMPLIED or others & OPPOSITE[deed]:
                return False
        elif claim.exact and not any(not clause.exact or claim.exact & clause.exact for clause in doing):
            return False
    return True


def _is_wider(claim: Meaning, clauses: Sequence[Meaning]) -> bool:
    """Whether an approval leaves out under what condition it was given, or is for all where it was for some."""
    best = max(clauses, key=claim.covered_by)
    if claim.wide and not any(clause.wide for clause in clauses):
        return True
    return best.narrow and best.covered_by(claim) < 0.6


def _most(claim: Meaning) -> float:
    """How much of a claim must have been said: the less it says, the more of it."""
    if claim.chinese:
        return 0.66 if claim.size <= 4 else MOST_CHINESE
    return 1.0 if claim.size <= 3 else 0.75 if claim.size <= 6 else 0.7
