"""In what manner a line or a clause speaks: that something was asked or told, taken back, left to somebody, or said by a third party."""

import re
from typing import Final, NamedTuple

from palimpsest.audit.claims_chinese_agentless import THIRD_PARTY, THIRD_PARTY_WILL
from palimpsest.audit.polarity import is_against

_ASKED = re.compile(
    r"\bask(?:ed|s|ing)? (?:\w+ ){0,3}?(?:whether|if|about|why|how|what|when|where|which|who)\b|\b(?:wonder\w*|inquir\w*|enquir\w*|"
    r"questions?|quer(?:y|ied)|want(?:s|ed)? to know|curious|unsure (?:whether|if)|ponder\w*|whether|left open|interested (?:in|to)|"
    r"weighing|toying|mulling|considering|(?<!be )asked)\b(?! (?:for|to|us|me|that)\b)|问(?!题)|打听|想知道|想了解|咨询|请教|好奇|是否|"
    r"考虑(?!到)|琢磨|犹豫",
    re.IGNORECASE,
)
# That nothing was decided is nothing that could have been said.
_UNDECIDED = re.compile(
    r"\b(?:no|nothing|not|never|only|merely|just)\b[^,;.]*\b(?:decided|decisions?|order(?:ed)?|committed|commitments?|a question|"
    r"questions?|agreed|demanded|requested|passed on)\b|\b(?:undecided|remains open|still open)\b|[未没尚无][^，。；]{0,8}(?:决定|定论|"
    r"结论|拍板|要求|主意|想好|确定|定下)|(?:只是|仅为|仅仅?是|只|随口)[^，。；]{0,4}(?:询问|提问|一?问|打听|了解|咨询)(?:一下)?$",
    re.IGNORECASE,
)
_TELLS = re.compile(
    r"\b(?:complain|worr|concern|mention|report(?:s|ed)?\b|noted\b|notes? that\b|"
    r"observ|explain|point|dislik|annoy|unhappy|critici|words|opinion|"
    r"think|thought|feel|felt|found|finds|believ|consider|frustrat|suspect|explanation|why\b|causes?\b|reasons?\b|investigat|find out|"
    r"found out)|抱怨|担心|担忧|提到|反映|反馈|指出|觉得|认为|不满|嫌|吐槽|看法|怀疑|原因|说法|查明|弄清|(?:解释|说明)(?:说|了|过|称|"
    r"[：:，,])",
    re.IGNORECASE,
)
_PRAISES = re.compile(
    r"\b(?:right|good|best|great|perfect|correct|ideal|better|excellent|nice|fan of)\b|正确|最好|很好|不错|合适|满意", re.IGNORECASE
)
_APPROVAL = re.compile(
    r"\b(?:approv|agree|accept|confirm|consent|sign(?:ed|s)?[ -]off|ok(?:ay)?e?d?\b|green|go[- ]ahead|bless|happy|fine|allow|permi|"
    r"authori|object|grant|clear(?:ed|ance)|free|mind|let\b|waiv|may\b|can\b|trust|licen[cs]e to|intended|signed)|同意|批准|认可|确认|"
    r"通过|拍板|首肯|许可|授权|允许|准许|点头|可以|不反对|不介意|没意见|放行|没有意见|接受|理解|满意",
    re.IGNORECASE,
)
_LIFTS = re.compile(
    r"\b(?:lift(?:s|ed|ing)?|waiv\w+|withdr[ae]w\w*|relax\w*|loosen\w*|rescind\w*|revok\w*|retract\w*|no longer (?:\w+ )?(?:need|"
    r"requir|insist|want|appl|mind|object|forbid|car|bind|valid|hold|stand)\w*|exempt\w*|let go of|came (?:a)?round|backed down|"
    r"conced\w+|gave in|soften\w*|suspend\w*|chang\w+ (?:\w+ )?(?:mind|course)|reversal|extended|drop(?:s|ped)? (?:the|this|that|his|"
    r"her|their) (?:\w+ )?(?:requirement|rule|ban|restriction|objection|condition|limit|veto)\w*)\b|解除|放宽|豁免|不再(?=要求|坚持|"
    r"限制|需要|强求|反对|禁止|有效)|松口|改主意|变卦|改口|撤销|撤回|收回|作废|松动|让步|延期|延长|顺延|(?:规定|限制|要求|门槛|约定|"
    r"禁令|这条)[^，。；]{0,8}取消|不管了|撤了|撤下",
    re.IGNORECASE,
)
_FIRST = re.compile(
    r"\bclear(?:ed)? (?:it |this )?with\b|\b(?:tell|inform|notify|warn|consult|ping) (?:me|us)\b(?=.{0,20}\b(?:before|first)\b)|"
    r"\bbe(?:ing)? (?:asked|consulted|informed|told|notified)\b|"
    r"\bask(?:s|ing)? (?:me|us|him|her|them|the \w+|first|before)\b|\b(?:check|clear|confirm|"
    r"run)(?:ing|ed|ning)? (?:\w+ )?(?:it |this )?(?:with|by|past) (?:me|the \w+)\b|\b(?:my|prior|explicit|his|her|their|"
    r"user['’]s) (?:approval|permission|consent|ok|okay|go-ahead|sign-?off)\b(?! to\b)|\b(?:needs?|require\w*|without|"
    r"pending) (?:\w+ ){0,3}(?:approval|permission|consent|sign-?off|question|asking|okay)\b|\bask(?:ing)?[- ]first\b|先.{0,6}(?:问|"
    r"说一声|打招呼|打个招呼|告诉|告知|通知|报备|请示|确认|同意|点头|批)|(?:经|要|等|须|需|得)(?:先)?(?:我|他|她|您|"
    r"用户)?.{0,4}(?:批准|同意|点头|首肯)|[没未](?:问过|经)|没(?:有)?(?:我|他|她|您|用户)(?:的)?(?:同意|点头|批准|允许|发话)|擅自|私自|"
    r"征求.{0,4}意见|征得|前(?:要|须|需|得|应|都)?先?(?:告知|告诉|通知|问|请示|报备|跟|说)|(?:跟|和|与|向|问|找)(?:我|他|她|您|用户|"
    r"客户)(?:再)?(?:确认|说|商量|打招呼|请示|汇报|沟通)|事先|提前(?:说|问|告)|必须.{0,4}(?:告知|报备|请示)",
    re.IGNORECASE,
)
_UNASKED = re.compile(
    r"\b(?:discretion|own judg\w+|decide (?:\w+ )*(?:ourselves|yourself|on our own|freely)|up to (?:us|me|you|the agent)|free(?:ly)?|"
    r"your call|as (?:we|you) (?:like|please|see fit)|no (?:\w+ )?(?:approval|"
    r"confirmation|permission|sign-?off) (?:\w+ )?needed|blanket|carte blanche|at will)\b|自行|自己|自主|看着办|随便|随意|(?:无须|无需|"
    r"不用|不必)再?先?(?:问|报备|请示|确认|打招呼)|\b(?:not|need|never|n['’]t)(?: (?:want|need|have|like|to|be))* ask(?:ed|ing)?\b",
    re.IGNORECASE,
)
# Nothing may be done without asking, or something may: that depends on what else is said.
_WITHOUT = re.compile(
    r"\bwithout (?:[\w'’]+ ){0,3}?(?:asking|approval|confirm(?:ation|ing)|permission|consent|sign-?off|okay|go-ahead|being asked|"
    r"checking|consulting|consultation|clearance|word)\b|[未不没][有]?(?:事先|先)?(?:经过?|问过?|征得|得到|取得)(?:[我他她您]|用户)?(?:的)?(?:确认|"
    r"同意|批准|许可|允许)?|没有?(?:[我他她您]|用户)的?(?:确认|同意|点头|批准|允许|许可|发话)|擅自|私自",
    re.IGNORECASE,
)
_SOMEBODY_ELSE = (
    r"(?:legal|compliance|finance|accounting|security|ops|operations|devops|infra(?:structure)?|marketing|sales|design(?:ers?)?|qa|"
    r"support|procurement|hr|it|the board|auditors?|regulators?|vendors?|suppliers?|partners?|colleagues?|coworkers?|teammates?|"
    r"(?:the |both |all )?other teams?|operators|dbas?|architects?|lawyers?|translators?|the \w+ (?:board|department|committee|team|"
    r"office|vendor|association|council|agency|authority|union))"
)
_WILLS = (
    r"(?:has |have |had |also |already |since |explicitly |now |\w+ly )*(?:approved?|agree[sd]?|consent\w*|authori[sz]\w+|okay\w*|"
    r"ok['’]?d|cleared?|signed|waived?|allow\w*|permit\w*|ask(?:s|ed)|want(?:s|ed)|insist\w*|demand\w*|decid\w+|promis\w+|confirm\w*|"
    r"accept\w*|bless\w*|gave|order\w*|request\w*|vetoed|forbade|reject\w*|object\w*|favou?rs?|prefer\w*|lifted|assured|thinks?|"
    r"thought|sugges\w+|propos\w+|said|says|told|mention\w*)"
)
_THIRD = re.compile(
    rf"\b({_SOMEBODY_ELSE})(?: (?:in|at|from|of) \S+)? {_WILLS}\b|(?-i:\b([A-Z][a-z]{{2,}}) {_WILLS}\b)|\b\w+(?:ed|en|it|"
    rf"wn) by ({_SOMEBODY_ELSE})\b",
    re.IGNORECASE,
)
_NO_NAMES: Final = frozenset(
    [
        "user",
        "client",
        "customer",
        "requester",
        "owner",
        "boss",
        "the",
        "they",
        "she",
        "who",
        "management",
        "team",
        "stakeholder",
        "stakeholders",
        "sponsor",
        "nobody",
        "somebody",
        "everybody",
        "everyone",
        "maintainer",
        "maintainers",
        "reviewer",
        "manager",
        "product",
        "lead",
        "business",
        "people",
        "you",
        "leadership",
        "human",
        "principal",
        "operator",
    ]
)


class Manner(NamedTuple):
    """How a line speaks of the user's will."""

    asks: bool
    tells: bool
    lifts: bool
    first: bool
    third: str
    approves: bool
    free: bool


def manner_of(line: str) -> Manner:
    """In what manner a line claims something."""
    asks = _ASKED.search(line) is not None or is_undecided(line)
    tells = _TELLS.search(line) is not None and _PRAISES.search(line) is None
    return Manner(asks, tells, lifts(line), asks_first(line), third_party(line), approves(line), leaves_free(line))


def approves(text: str) -> bool:
    """Whether a text says that something was found good, or allowed."""
    return _APPROVAL.search(text) is not None


def is_undecided(text: str) -> bool:
    """Whether a text says that nothing was decided or ordered."""
    return _UNDECIDED.search(text) is not None


def lifts(text: str) -> bool:
    """Whether a text takes back what was demanded or forbidden."""
    return _LIFTS.search(text) is not None


def asks_first(text: str) -> bool:
    """Whether a text wants somebody to be asked before something is done."""
    return _FIRST.search(text) is not None and not leaves_free(text)


def leaves_free(text: str) -> bool:
    """Whether a text leaves something to somebody's own judgement."""
    if _UNASKED.search(text) is not None:
        return True
    return _WITHOUT.search(text) is not None and not is_against(_WITHOUT.sub(" ", text))


def third_party(text: str) -> str:
    """Who else than the user is said to have willed something, or nothing."""
    if THIRD_PARTY_WILL.search(text) is not None:
        found = THIRD_PARTY.search(text)
        return found[0] if found else ""
    found = _THIRD.search(text)
    name = (found[1] or found[2] or found[3] or "").lower() if found else ""
    return "" if name in _NO_NAMES else name
