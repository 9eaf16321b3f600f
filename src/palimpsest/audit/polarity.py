"""Whether a clause is meant for or against what it names, and where one clause ends and the next begins."""

import re
from collections.abc import Iterable, Iterator

_AGAINST = re.compile(
    r"\b(?:not|never|no|none|nothing|neither|nor|nobody|without|cannot|avoid\w*|forb[ia]d\w*|prohibit\w*|refus\w*|reject\w*|declin\w*|"
    r"den(?:y|ied|ies)|veto\w*|disallow\w*|bann?(?:ed|s)?|stop(?:ped|s|ping)?|exclud\w*|untouched|unchanged|unwanted|undesired|"
    r"unwelcome|off[- ]limits|object(?:ed|s|ing)?|objections?|waiv\w*|(?:is|was|are|be|out|am|vot\w+|decid\w+|advis\w+|is|were|"
    r"stands?)(?: \w+ly)? against|oppos\w+|sen[dt] back|turn(?:ed|s)? down|shot down|shoot\w* down|bounced|resist\w*|discourag\w+|"
    r"taboo|rul(?:e|ed|es|ing) out|(?:leave|left) .{1,40}?(?:alone|as|be)|dont|hands off|(?:keep|keeps|kept) (?:away|clear|out)|"
    r"hold off|let(?:s|ting)? go of|g[ai]ve(?:n|s)? up|gave in|except(?:ing)?|apart from|"
    r"back(?:ed|s) (?:off|down|away)|withdr[ae]w\w*|relent\w*|soften\w*|"
    r"lift(?:ed|s) the|waits? until|too (?:early|late|soon|risky)|dispens\w+ with)\b|n['’]t\b|\boffline\b|"
    r"\bneeds? (?:\w+ )?(?:approval|permission|consent|sign-?off|okay)\b|^(?:instead of|rather than|over|than)\b",
    re.IGNORECASE,
)
# Amounts, and what is said of what one has nothing against.
_NOT_AGAINST = re.compile(
    r"(?:\b(?:not|never|no|nothing)\b|n['’]t\b)[^.;]*?\bwithout\b(?! (?:\w+['’]?\w* ){0,3}(?:word|approval|asking|permission|consent|"
    r"okay|ok|sign-?off|go-ahead|asked|leave)\b)|\b(?:no|not) (?:more|less|fewer|later|earlier|longer) than\b|\b(?:not|never|don['’]t|"
    r"mustn['’]t|may not) (?:to )?(?:exceed|go (?:over|above|beyond)|surpass)\b|\bnot only\b|\bwhy not\b|\bno doubt\b|\bno(?:t|body|"
    r" one)? (?:\w+ ){0,3}(?:objections?|problems?|issues?|concerns?|reservations?|complaints?|object(?:ed|s)?|oppos\w+)(?: (?:to|"
    r"against|with))?\b|\b(?:do|does|did|would|has|had)(?:n['’]t| not) (?:mind|object|oppose|have (?:any )?(?:objection|problem|issue|"
    r"concern)\w*)(?: to| against)?\b|\bnothing against\b|\bwithout (?:objections?|complaints?)\b|[不别][^，。；\d]{0,8}?(?:超过|超出|"
    r"超|多于|少于|低于|高于|大于|小于)|没什?么?有?(?:任何)?(?:意见|问题|异议)|无(?:人)?(?:异议|意见|反对)|[不没](?:有?人)?(?:反对|"
    r"介意|排斥)|([会能要可是行有该])不\1|不错|不跑|(?:不用|不必|无需|无须)再?等[^，。；]{0,8}|不仅|不但|不过|不管|不论|不同(?!意)|不然|不稳定|不足|不够|不兼容",
    re.IGNORECASE,
)
_AGAINST_CHINESE = re.compile(
    r"[不甭勿毋莫](?![用]户)|唔好|(?<![分特区级类识个判性差告辨])别(?![的人处名])|禁|没(?!问题|意见)|无需|无须|拒|反对|避免|停[止掉下]|杜绝|"
    r"除外|否决|否定|后再|^比|驳回|被否|否了|否掉|打回|退回|毙掉|枪毙|叫停|而非|作罢|免了|排除|免去|要(?:先|经)?(?:我|他|她|您|"
    r"用户)?(?:批准|同意|点头)|等.{1,8}(?:再|才|之?后|以后)|等到?(?:周|星期|下|明|月)"
)
_BAD = re.compile(
    r"\b(?:overkill|unnecessary|pointless|useless|ugly|awful|terribl\w+|horribl\w+|annoy\w+|hat(?:e|es|ed|ing)|dislik\w*|disgust\w+|"
    r"bad|worse|worst|wrong|dumb|stupid|silly|nonsense|mess|messy|clunky|bloated|too (?:\w+ )?\w+|not a fan|can['’]?t stand|"
    r"out of the question|waste|unhappy|displeas\w+|dissatisf\w+|fed up|sick of|complain\w*|unsatisf\w+)\b|太.{1,6}了|"
    r"太[重慢大高低小多少贵复丑难长短乱吵麻繁]|头[疼大痛]|受不了|难受|恶心|过于|难看|难用|讨厌|多余|没用|没必要|嫌|不满|不好|糟糕|垃圾|"
    r"鸡肋|反感|吐槽|抱怨",
    re.IGNORECASE,
)
_PART = re.compile(
    r"[,;:，；：。！？]\s*|[.!?]\s+|(?<!more)(?<!less)(?<!other)(?<!rather)(?<!fewer)(?<!later)\s+(?=than (?:an?|the|to|[A-Z]\w*)\b)|"
    r"\s+(?=(?:instead of|rather than|except|excluding|apart from|other than)\b|"
    r"(?:over|not) [A-Z`\d])|(?=比[^，。；]{1,10}(?:好|强|快|重要|合适|清楚|优|稳))|(?=而不[是用选要]|而非|"
    r"(?<!是)不是|代替)|\s+(and|&)\s+|\s+(?:but|while|whereas|although|though|yet|unless)\s+|\s+[—–-]+\s+|\s*[)）]\s*|(?:但是?|而且|"
    r"并且|同时|然而|不过|另外)"
)
_MORE_OF_IT = re.compile(
    r"(?!(?:not?|never|nothing|only|then|so|use|instead|but|please)\b|.*n['’]t\b|.*\b(?:only|instead|please|first)[.!]?$)(?:(?:between|"
    r"during|within|until|from)\b[^,;]{1,40}$|(?:(?:the|any|all|our|its|an?|other|every|each|some) )?\S+(?: \S+)?[.!?]?$)",
    re.IGNORECASE,
)
_CONTRAST = re.compile(r"(?:instead of|rather than|over|than)\b", re.IGNORECASE)
# What is to be there without something is to be there.
_WITHOUT = re.compile(r"(?<=\w) (?=without\b)|(?<=\w)(?=不(?:[带含附]|包[含括])\s*\w)", re.IGNORECASE)
_PREFERS = re.compile(r"\b(?:prefer|favou?r|cho(?:se|ose|ice)|pick)", re.IGNORECASE)
_OVER = re.compile(r"\bover\b", re.IGNORECASE)
_BUT = re.compile(r"除了?([^，。；]{1,20}?)(?:以外|之外|外)?[，,]?(?=其他|其余|其它|别的|所有|全部|全都|都|一律)")
_AFTER_CONTRAST = re.compile(r"\s+(?=(?:for|in|on|at|when|if|under|because|so|to|from)\b)")


AGAINST = re.compile(f"{_AGAINST.pattern}|{_AGAINST_CHINESE.pattern}|{_BAD.pattern}", re.IGNORECASE)


def is_against(text: str) -> bool:
    """Whether a clause says no, asks for less or puts off."""
    said = _NOT_AGAINST.sub(" ", text)
    return _AGAINST.search(said) is not None or _AGAINST_CHINESE.search(said) is not None


def finds_bad(text: str) -> bool:
    """Whether a clause finds something bad without forbidding it."""
    return _BAD.search(_NOT_AGAINST.sub(" ", text)) is not None


def clauses_of(text: str) -> list[str]:
    """The clauses of a sentence; a thing more in a list belongs to the clause before."""
    if _PREFERS.search(text) is not None:
        text = _OVER.sub("rather than", text)
    if "除" in text:
        text = _BUT.sub(r"不含\1，", text)
    return list(_joined(_pieces(text)))


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    place, listed = 0, False
    for found in _PART.finditer(text):
        yield from _contrasted(text[place : found.start()].strip(), listed=listed)
        place, listed = found.end(), found[1] is not None or found[0].strip() == ","
    yield from _contrasted(text[place:].strip(), listed=listed)


def _contrasted(piece: str, *, listed: bool) -> Iterator[tuple[str, bool]]:
    """What follows `instead of` is meant only up to the next preposition."""
    if _CONTRAST.match(piece) is not None:
        first, *rest = _AFTER_CONTRAST.split(piece, maxsplit=1)
        yield first, listed
        yield from ((part, False) for part in rest)
    elif piece:
        found = _WITHOUT.search(piece)
        if found is None or is_against(piece[: found.start()]):
            yield piece, listed
        else:
            yield piece[: found.start()], listed
            yield piece[found.end() :], False


def _joined(pieces: Iterable[tuple[str, bool]]) -> Iterator[str]:
    held = ""
    for piece, listed in pieces:
        if held and listed and _MORE_OF_IT.match(piece) is not None:
            held = f"{held} and {piece}"
            continue
        if held:
            yield held
        held = piece
    if held:
        yield held
