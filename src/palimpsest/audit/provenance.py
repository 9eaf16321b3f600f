"""What a narrative says of the user's will must match something that the user said, or it goes."""

import re
from collections.abc import Sequence
from typing import Final

from palimpsest.audit.alternatives import choices_of, chooses_otherwise, without_choices
from palimpsest.audit.bounds import bounds_otherwise, limits_otherwise
from palimpsest.audit.claims import announces_claims, is_claim, is_heading, may_claim, without_claiming
from palimpsest.audit.content import Meaning, Stance, meaning_of, together
from palimpsest.audit.deeds import ENDING, IMPLIED, OPPOSITE, REVERSED, STAYING
from palimpsest.audit.endless import pieces_of
from palimpsest.audit.manner import Manner, approves, is_undecided, leaves_free, lifts, manner_of, third_party
from palimpsest.audit.phrases import plainly
from palimpsest.audit.polarity import clauses_of
from palimpsest.audit.said import Passage, Said
from palimpsest.audit.sequence import ordered_otherwise, waits_alike
from palimpsest.audit.swaps import swaps

MOST: Final = 0.6
MOST_ALLOWED: Final = 0.65
"""The shares of a longer claim that must have been said; a shorter one must have been said nearly whole."""
_MOST: Final = ((3, 1.0), (5, 0.75))
_MOST_CHINESE: Final = ((4, 0.67),)
OWN: Final = 0.5
ALIKE: Final = 0.66
"""The share of what was said at all of a claim that must have been said in clauses which are meant alike."""
_ALIKE: Final[dict[Stance, frozenset[Stance]]] = {
    "yes": frozenset({"yes", "alter", "stay"}),
    "alter": frozenset({"yes", "alter"}),
    "stay": frozenset({"stay", "ban", "yes"}),
    "end": frozenset({"end", "no", "bad"}),
    "no": frozenset({"no", "end", "ban", "bad"}),
    "ban": frozenset({"no", "ban", "stay", "end", "bad"}),
    "bad": frozenset({"bad", "no", "end", "ban"}),
}


_ABOUT: Final = 2
_NOTHING: Final[frozenset[str]] = frozenset()
_WANTED: Final = frozenset({"yes", "alter", "stay"})
_UNWANTED: Final = frozenset({"no", "ban", "bad"})
_AGAINST: Final = _UNWANTED | {"end"}
_APPROVES = re.compile(
    r"(?:yes|yep|yeah|sure|ok(?:ay)?|fine|go ahead|do it|lgtm|agreed|approved|perfect|sounds good|looks good|ship it|great|please do)\b|"
    r"(?:that['’]?s |it['’]?s )?(?:fine|ok(?:ay)?|good) (?:by|with|for) me|works for me|"
    r"(?:好|可以|行|同意|没问题|批准|就这样|对|是的|嗯|执行)",
    re.IGNORECASE,
)
# `Windows build: skipped` says of the build that it is skipped.
_LABELLED = re.compile(r"^([^:：—–,，;；]{1,60}?)\s*(?:[:：](?=\s|[\u3400-\u9fff])|\s?[—–]+|\s-)\s*")
_QUOTED = re.compile(r"[“\"「『`]([^”\"」』`]{1,12})[”\"」』`]")
_MORE = re.compile(r"\W*(?:including|incl\.|especially|in particular|包括|包含|含|尤其|特别是|连同|以及)", re.IGNORECASE)
_QUOTES = re.compile(r"[“\"「『]([^”\"」』]{4,})[”\"」』]")
_MARKS = ' \t*_"“”「」『』.…'
_SHORTEST_QUOTE = 10
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
    said = Said(user_texts)
    return all(not _claims(piece, said) or _is_said(piece, said) for piece in pieces_of(line))


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
        if any(_claims_falsely(piece, said, heading=heading, announces=announces, announced=announced) for piece in pieces_of(line)):
            removed.append(line)
            # What follows a heading that goes stands under the one before it.
            continue
        kept.append(line)
        if heading:
            announced = announces
    return "\n".join(kept), tuple(removed)


def _claims_falsely(line: str, said: Said, *, heading: bool, announces: bool, announced: bool) -> bool:
    claims = (is_claim(line) and not announces) if heading else bool(line.strip()) and (announced or _claims(line, said))
    return claims and not _is_said(line, said)


def _claims(line: str, said: Said) -> bool:
    """Whether a line claims a wish, or may do so and speaks of something about which the user said what is to be."""
    return is_claim(line) or (may_claim(line) and said.speaks_of(line))


def _is_said(line: str, said: Said) -> bool:
    """Whether what a line claims was said, in one place or each of its clauses in one."""
    if _is_quoted(line, said):
        return True
    line = plainly(_LABELLED.sub(r"\1 ", _plain(line)))
    clauses = _with_more(clauses_of(line))
    decided = [clause for clause in clauses if not is_undecided(clause)] or clauses
    parts = [part for part in map(_claim_of, decided) if part.says]
    if _approves_nothing_particular(line, parts) and any(_APPROVES.match(text.strip()) for text in said.texts):
        return True
    manner = manner_of(line)
    if not parts:
        return False
    if _found(parts, line, manner, said):
        return True
    groups = _apart(parts)
    return len(groups) > 1 and all(_found(group, " ".join(part.text for part in group), manner, said) for group in groups)


def _apart(parts: Sequence[Meaning]) -> list[list[Meaning]]:
    """The parts of a claim that may have been said in different places; a short no belongs to what stands before it."""
    groups: list[list[Meaning]] = []
    for part in parts:
        if groups and part.negative and part.size < _ABOUT and not part.exact:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _with_more(clauses: Sequence[str]) -> list[str]:
    """The clauses of a claim; one that only says what else is meant belongs to the one before."""
    found: list[str] = []
    for clause in clauses:
        if found and _MORE.match(clause) is not None:
            found[-1] = f"{found[-1]} {clause}"
        else:
            found.append(clause)
    return found


def _is_quoted(line: str, said: Said) -> bool:
    """Whether a line is for the most part what the user wrote, letter by letter."""
    plain = _plain(line).strip(_MARKS)
    quotes = [quote.strip(_MARKS) for quote in _QUOTES.findall(line)]
    for pieces in ([plain], quotes):
        length = sum(map(len, pieces))
        if length >= max(_SHORTEST_QUOTE, 0.6 * len(plain)) and all(" ".join(piece.casefold().split()) in said.whole for piece in pieces):
            return True
    return False


def _claim_of(clause: str) -> Meaning:
    return meaning_of(without_claiming(clause), claimed=clause)


def _plain(line: str) -> str:
    return re.sub(r"^\s*(?:[-*•>]+\s+|\d{1,3}[.)、]\s*)*|\(\d+\.\d+\)|\[\d+\.\d+\]", "", line)


def _approves_nothing_particular(line: str, parts: Sequence[Meaning]) -> bool:
    """`The user approved the plan` names nothing that could be false but the approval itself."""
    said = together(parts)
    generic = all(word.startswith(_GENERIC) for word in said.words) and all(_GENERIC_CHINESE.fullmatch(gram) for gram in said.grams)
    return generic and approves(line) and not (said.exact or said.deeds - {"change"} or said.negative)


def _found(parts: Sequence[Meaning], text: str, manner: Manner, said: Said) -> bool:
    """Whether some passage of what the user said says the parts of a claim."""
    claim = together(parts)
    # Little that is said must be said together: not one half here and the other there.
    wide = claim.size > 2 or bool(claim.exact)
    names = [name for name in claim.exact | claim.proper if len(name) > 2 and name[0].isalpha() and name.isascii() and " " not in name]
    return any(_matches(claim, parts, text, passage, manner) for passage in said.passages(claim.text, wide=wide, names=names))


def _matches(claim: Meaning, parts: Sequence[Meaning], text: str, passage: Passage, manner: Manner) -> bool:
    """Same numbers, paths and names, most of the words, and each part of the claim said in clauses that are meant alike."""
    clauses = [clause for clause in passage.clauses if manner.asks or not clause.asks]
    if not clauses:
        return False
    whole = together(clauses)
    if not claim.exact <= whole.exact or any(not _has(whole, name) for name in claim.proper) or _lies_elsewhere(claim, whole):
        return False
    covered = claim.covered_by(whole)
    if claim.negative and whole.keeps:
        # What is to stay as it is is not to be changed.
        covered += len((claim.deeds & STAYING) - whole.deeds) / claim.size
    if covered < _most(claim, manner) or any(name not in passage.text for name in _QUOTED.findall(text)):
        return False
    if (manner.lifts and not lifts(passage.text)) or (manner.third and third_party(passage.text) != manner.third):
        return False
    if chooses_otherwise(text, passage.text) or (claim.exact and bounds_otherwise(text, passage.text)):
        return False
    if (manner.free and not leaves_free(passage.text)) or any(_chooses_elsewhere(part, clauses) for part in parts):
        return False
    return (
        all(_is_meant(side, clauses, manner) for side in _sides(parts))
        and not ordered_otherwise(text, passage.text)
        and not limits_otherwise(text, passage.text)
        and (covered == 1 or not swaps(claim.text, passage.text))
    )


def _chooses_elsewhere(part: Meaning, clauses: Sequence[Meaning]) -> bool:
    """Whether a claim names one of several choices of a thing of which another was said, and that one of something else."""
    for kind, choices in choices_of(part.text).items():
        naming = [(choices <= named, clause) for clause in clauses if (named := choices_of(clause.text).get(kind)) is not None]
        others = [clause for fits, clause in naming if not fits and (clause.stance in _WANTED) == (part.stance in _WANTED)]
        if others:
            bare = meaning_of(without_choices(part.text))
            if any(map(bare.shared_with, others)) and not any(bare.shared_with(clause) for fits, clause in naming if fits):
                return True
    return False


def _lies_elsewhere(claim: Meaning, said: Meaning) -> bool:
    """Whether a claim names a file or folder of that name in another folder than was said."""
    for path in claim.paths:
        same = [each for each in said.paths if each.rpartition("/")[2] == path.rpartition("/")[2]]
        if same and not any(_is_end(path, each) or _is_end(each, path) for each in same):
            return True
    return False


def _is_end(path: str, longer: str) -> bool:
    return f"/{longer}".endswith(f"/{path.lstrip('./~')}")


def _sides(parts: Sequence[Meaning]) -> list[Meaning]:
    """What a claim is for, what it wants to end, and what it is against."""
    wanted = [part for part in parts if part.stance in _WANTED]
    ended = [part for part in parts if part.stance == "end"]
    unwanted = [part for part in parts if part.stance in _UNWANTED]
    return [together(side) for side in (wanted, ended, unwanted) if side]


def _is_meant(side: Meaning, clauses: Sequence[Meaning], manner: Manner) -> bool:
    """Whether a side of a claim is said by clauses that are meant alike, together with what they are about."""
    matched = side.shared_with(together(clauses))
    if not matched and side.size <= 2:
        return True
    alike: list[Meaning] = []
    topics: list[Meaning] = []
    before: list[Meaning] = []
    for clause in clauses:
        if _is_meant_alike(side, clause, manner):
            alike.append(clause)
            topics += [_topic(topic, clause, side) for topic in before]
        before.append(clause)
    if not alike:
        return False
    said, fitting = together(alike), together([*alike, *topics])
    own = side.shared_with(said)
    if (
        own < OWN
        or side.shared_with(fitting) < ALIKE * matched
        or (side.wide and not fitting.wide and (manner.approves or manner.first or side.negative))
    ):
        return False
    if not manner.tells and side.stance in _WANTED and _is_unwanted(side, [*alike, *topics], clauses):
        return False
    names = side.exact | side.proper
    if not manner.tells:
        if any(not _has(fitting, name) for name in names) or chooses_otherwise(side.text, said.text):
            return False
        # What was wanted was named where it was wanted.
        if names and side.stance in _WANTED and not any(_has(said, name) for name in names):
            return False
    return _does_alike(side, alike, clauses if side.negative or names else [*alike, *topics])


def _is_unwanted(side: Meaning, fitting: Sequence[Meaning], clauses: Sequence[Meaning]) -> bool:
    """Whether something that is said to be wanted was named only where it is not."""
    said = together(fitting)
    last = max((place for place, clause in enumerate(clauses) if any(clause is each for each in fitting)), default=0)
    # What was named before may be what the next clause is about, if more was said of it than no.
    against = together(
        [
            clause
            for place, clause in enumerate(clauses)
            if clause.stance in _AGAINST and clause not in fitting and (place > last or clause.size <= _ABOUT)
        ]
    )
    if any(against.has_word(word) and not said.has_word(word) for word in side.words):
        return True
    return any(
        len(run) > 1 and Meaning(runs=frozenset((run,))).covered_by(against) == 1 and not Meaning(runs=frozenset((run,))).shared_with(said)
        for run in side.runs
    )


def _topic(before: Meaning, clause: Meaning, side: Meaning) -> Meaning:
    """What a clause takes over from one before it: of one that is meant otherwise no more than the deed, if it names none itself."""
    if _contradicts(side, before) and not (clause.deeds & side.deeds and _is_about(clause, before, side)):
        return Meaning() if clause.deeds else Meaning(deeds=before.deeds)
    return before if clause.refers else before.topic


def _is_meant_alike(side: Meaning, clause: Meaning, manner: Manner) -> bool:
    if (manner.tells and not side.negative) or (manner.first and clause.first) or (manner.asks and clause.asks):
        return True
    if not side.negative and clause.negative and waits_alike(side.text, clause.text):
        return True
    if (leaves_free(clause.text) if manner.first else clause.first) or (
        clause.tells and not manner.asks and (manner.approves or side.deeds & clause.deeds)
    ):
        return False
    return clause.stance in _ALIKE[side.stance] and not _contradicts(side, clause)


def _contradicts(side: Meaning, clause: Meaning) -> bool:
    """Whether one of them wants a deed that the other forbids."""
    if side.negative != clause.negative:
        return bool(side.deeds & clause.deeds)
    return any((side.deeds - clause.deeds) & REVERSED.get(deed, _NOTHING) for deed in clause.deeds - side.deeds)


def _is_about(clause: Meaning, before: Meaning, side: Meaning) -> bool:
    """Whether a clause names what a claim is about rather than the clause before it does."""
    things = _things(side, clause)
    return things >= 1 and (things >= _things(side, before) or clause.shared_with(side) >= clause.size)


def _things(side: Meaning, clause: Meaning) -> float:
    """How many of the things that a claim is about a clause names."""
    return side.shared_with(clause) - len(side.deeds & clause.deeds)


def _has(said: Meaning, name: str) -> bool:
    return name in said.exact or said.has_word(name) or any(name in exact for exact in said.exact)


def _does_alike(side: Meaning, alike: Sequence[Meaning], clauses: Sequence[Meaning]) -> bool:
    """Whether every deed of a claim was said, of the same paths and names where it was said of any, and not forbidden if it is wanted."""
    names, wanted = _names(side), side.stance in _WANTED
    for deed in side.deeds:
        doing = [clause for clause in clauses if deed in clause.deeds]
        meant = [clause for clause in doing if not wanted or clause.stance not in _UNWANTED or any(clause is each for each in alike)]
        if meant:
            if names and not any(names & clause.exact or not _names(clause) for clause in meant):
                return False
        elif doing:
            return False
        elif deed in ENDING and any(clause.stance == "no" for clause in alike):
            continue
        elif deed not in IMPLIED or frozenset().union(*(clause.deeds for clause in clauses)) & OPPOSITE[deed]:
            return False
    return True


def _names(meaning: Meaning) -> frozenset[str]:
    """What is exact without being a number."""
    return frozenset(name for name in meaning.exact if not name[0].isdigit())


def _most(claim: Meaning, manner: Manner) -> float:
    """How much of a claim must have been said: the less it says, the more of it, and more of what is said to have been allowed."""
    for size, most in _MOST_CHINESE if claim.chinese else _MOST:
        if claim.size <= size:
            return most
    return MOST_ALLOWED if manner.approves else MOST
