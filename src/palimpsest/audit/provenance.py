"""What a narrative says of the user's will must match something that the user said, or it goes."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from palimpsest.audit.claims import announces_claims, is_claim, is_heading, without_claiming
from palimpsest.audit.constraints import binding_of
from palimpsest.audit.content import Meaning, clauses_of, meaning_of
from palimpsest.audit.sentences import sentences_of

MOST_CHINESE: Final = 0.5
_ASKED = re.compile(r"\b(?:ask(?:ed|s|ing)?|wonder\w*|inquir\w*|question\w*|wanted to know)\b|问|想知道|询问", re.IGNORECASE)
_APPROVES = re.compile(
    r"(?:yes|yep|yeah|sure|ok(?:ay)?|fine|go ahead|do it|lgtm|agreed|approved|perfect|sounds good|looks good|ship it|great|please do)\b|"
    r"(?:that['’]?s |it['’]?s )?(?:fine|ok(?:ay)?|good) (?:by|with|for) me|works for me|"
    r"(?:好|可以|行|同意|没问题|批准|就这样|对|是的|嗯|执行)",
    re.IGNORECASE,
)
_APPROVAL = re.compile(
    r"\b(?:approv|agree|accept|confirm|consent|sign(?:ed)?[ -]off|ok(?:ay)?e?d?\b|green|go[- ]ahead|bless|happy with|fine with)|"
    r"同意|批准|认可|确认|通过|拍板|首肯|许可|授权",
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


class _Message:
    """One message of the user, taken apart when somebody looks."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def whole(self) -> Meaning:
        return meaning_of(self.text)

    @cached_property
    def clauses(self) -> tuple[Meaning, ...]:
        """Every clause that says something; questions that are no requests are marked as such."""
        found: list[Meaning] = []
        for sentence in sentences_of(self.text):
            asks = sentence.endswith(("?", "？", "吗", "呢")) and binding_of(sentence) is None
            found += [meaning_of(clause, asks=asks) for clause in clauses_of(sentence)]
        return tuple(found) or (self.whole,)


def supported(line: str, user_texts: Sequence[str]) -> bool:
    """Whether a line that says what the user wanted matches what the user said; one that makes no such claim needs no support."""
    return not is_claim(line) or _is_said(line, [_Message(text) for text in user_texts])


def clean(narrative: str, user_texts: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """A narrative without the lines that claim a wish, an approval, a decision or a ban that nobody expressed; and these lines.

    What stands under a heading that announces the user's will is claimed as well.
    """
    messages = [_Message(text) for text in user_texts]
    kept: list[str] = []
    removed: list[str] = []
    announced = False
    for line in narrative.split("\n"):
        heading = is_heading(line)
        announces = heading and announces_claims(line)
        # A heading that says more than that something follows is a line like any other.
        claims = (is_claim(line) and not announces) if heading else bool(line.strip()) and (announced or is_claim(line))
        if claims and not _is_said(line, messages):
            removed.append(line)
            # What follows a heading that goes stands under the one before it.
            continue
        kept.append(line)
        if heading:
            announced = announces
    return "\n".join(kept), tuple(removed)


def _is_said(line: str, messages: Iterable[_Message]) -> bool:
    """Whether one message says all of a line, or each of its clauses is said by some message."""
    messages = tuple(messages)
    about = _asked_about(line)
    whole = meaning_of(without_claiming(_plain(line)), negative_of=line)
    if any(_matches(whole, message, asked=about) for message in messages):
        return True
    if _approves_nothing_particular(line, whole) and any(_APPROVES.match(message.text.strip()) for message in messages):
        return True
    parts = [meaning_of(without_claiming(part), negative_of=part) for part in clauses_of(_plain(line))]
    parts = [part for part in parts if part.says]
    return len(parts) > 1 and all(any(_matches(part, message, asked=about) for message in messages) for part in parts)


def _plain(line: str) -> str:
    return re.sub(r"^\s*(?:[-*•>]+\s+|\d{1,3}[.)、]\s*)*|\(\d+\.\d+\)|\[\d+\.\d+\]", "", line)


def _asked_about(line: str) -> bool:
    return _ASKED.search(line) is not None


def _approves_nothing_particular(line: str, said: Meaning) -> bool:
    """`The user approved the plan` names nothing that could be false but the approval itself."""
    generic = all(word.startswith(_GENERIC) for word in said.words)
    return generic and _APPROVAL.search(line) is not None and not (said.exact or said.grams or said.deeds or said.negative)


def _matches(claim: Meaning, message: _Message, *, asked: bool) -> bool:
    """Same numbers, paths and names in one message, most of the words there, and the clause that fits best is as negative."""
    whole = message.whole
    if not claim.says or not claim.exact <= whole.exact:
        return False
    # Who wants a thing wants it added, unless it was to go.
    if not claim.deeds <= (whole.deeds if "remove" in whole.deeds else whole.deeds | {"add"}):
        return False
    if claim.covered_by(whole) < _most(claim):
        return False
    scores = [claim.covered_by(clause) for clause in message.clauses]
    best = max(scores)
    # Little that is said must be said together: not one half here and the other there.
    if claim.size <= 3 and best <= 0.5:
        return False
    fitting = [clause for clause, score in zip(message.clauses, scores, strict=True) if score >= best - 1e-9]
    return any(clause.negative == claim.negative and (asked or not clause.asks) for clause in fitting)


def _most(claim: Meaning) -> float:
    """How much of a claim must have been said: the less it says, the more of it."""
    if claim.chinese:
        return 0.75 if claim.size <= 4 else MOST_CHINESE
    return 1.0 if claim.size <= 3 else 0.75 if claim.size <= 6 else 0.7
