"""Whether a line of a narrative says what the user asked, wanted, approved, decided or forbade, in English and Chinese."""

import re

_WHO = (
    r"(?:user|(?<=the )users|(?<=The )users|"
    r"clients?|customers?|humans?|operators?|owners?|boss|requesters?|stakeholders?|maintainers?|"
    r"reviewers?|managers?|product owners?|developers?|engineers?|principals?|management|leadership|"
    r"supervisors?|directors?|administrators?|lead|team|"
    r"persons?(?: in charge)?|people(?: in charge)?)"
)
# A determiner, a conjunction or the beginning of a line, so that `the API client rejects a token` is about nobody's will.
_THE = r"(?:^\W*|\b(?:the|our|my|this|that|an?|one|and|but|while|because|since|after|before|as|so|by|from|per)\s+|[,;:(]\s*)"
_BETWEEN = (
    r"(?:(?:has|have|had|is|was|were|are|been|being|also|then|now|just|already|\w+ly|since|later|again|once|would|"
    r"will|did|does|not|never|n't|further|first|himself|herself|themselves)\s+)*"
)
# What people do with words, whoever they are.
_SPEECH = (
    r"(?:ask|want|request|demand|requir|instruct|told|tell|order|insist|prefer|wish|hop(?:e|ed|ing)\b|expect|said|say|stat(?:e|ed|es|"
    r"ing)\b|mention|approv|agree|accept|allow|permit|authori[sz]|confirm|consent|sign(?:ed|s|ing)?[ -]off|"
    r"o\.?k\.?['’]?(?:a?y)?(?:e?d|s)\b|okay|green[- ]?li[gt]|bless|sanction|endors|decid|cho(?:os|se)|pick|opt(?:ed|s)?\b|select|"
    r"settl|forb[ia]d|prohibit|bann|refus|reject|den(?:y|ied)|declin|veto|object|rul(?:ed|es|ing) out|warn|remind|suggest|propos|"
    r"recommend|need|mean[ts]?\b|clarif|specif|emphasi|stress|direct(?:ed|s)\b|mandat|urg(?:e|ed|es)\b|desir|request|call(?:ed|"
    r"s)? for|g[ai]ve|grant|would like|['’]d like|vouch|ratif|concur|acknowledg|wav(?:ed|es) through|stipulat|rely|commit|impos|"
    r"dictat|command|beg|pleads?|press(?:ed|es) for|happy with|fine with|on board|comfortable|keen|against|for it|nod|clear(?:ed|s)\b|"
    r"no (?:objections?|issues?|problems?|concerns?|reservations?))"
)
_NOUN = (
    r"(?:requests?|instructions?|wish(?:es)?|preferences?|approvals?|agreements?|permissions?|consent|authori[sz]ations?|orders?|"
    r"demands?|requirements?|decisions?|choices?|go[- ]ahead|green light|blessings?|sign[- ]?offs?|nod|mandates?|directives?|"
    r"say[- ]so|word|feedback|guidance|okay|thumbs[- ]up|clearance|behest|insistence|constraints?|asks?)"
)
_LEAVE = (
    r"(?:approvals?|permissions?|consent|authori[sz]ations?|go[- ]ahead|green light|blessings?|sign[- ]?offs?|clearance|thumbs[- ]up|nod)"
)
_DONE = (
    r"(?:approved|authori[sz]ed|requested|instructed|told|forbidden|prohibited|greenlit|green-lit|okayed|agreed|mandated|sanctioned|ratified|"
    r"vetoed|signed off|(?:asked|allowed|permitted|cleared|ordered|directed) to)"
)
# What those who use a program do with it; anything else that they did is said about their will.
_USES = (
    r"(?:click|typ|log|enter|open|visit|press|scroll|submit|upload|download|report|encounter|experienc|notic|observ|past|creat|install|clos|start|"
    r"restart|navigat|interrupt|shar|attach|provid|us|delet|edit|look|tri|happen|need|refresh|connect|authenticat|sign)"
)
_ENGLISH = re.compile(
    "|".join(
        (
            rf"{_THE}{_WHO}\s+{_BETWEEN}{_SPEECH}\w*",
            rf"\b(?:the|our|my)\s+{_WHO}\s+(?:\w+ly\s+|has\s+|have\s+|had\s+)*(?!{_USES}{{1,2}}\w?ed\b)\w+ed\b",
            rf"{_THE}{_WHO}['’]s?\s+(?:\w+\s+){{0,2}}{_NOUN}\b",
            rf"\b(?:you|they|he|she)(?:['’]ve|['’]d)?\s+{_BETWEEN}{_SPEECH}\w*",
            rf"\b(?:your|their|his|her)\s+(?:\w+\s+)?{_NOUN}\b",
            rf"\b(?:as|like)\s+(?:\w+ly\s+)?(?:{_DONE}|asked|ordered|directed|discussed|specified|you|they|per)\b",
            rf"\bper\s+(?:the\s+|an?\s+|earlier\s+|explicit\s+|{_WHO}['’]?s?\s+)*{_NOUN}\b|\bper\s+(?:the\s+)?{_WHO}\b",
            rf"\b(?:at|upon|on|by|with|following|after|under|given)\s+(?:\w+\s+){{0,3}}{_NOUN}\s+(?:of|from|by)\b",
            rf"\b(?:is|was|were|are|been|being|got|we['’]re|i['’]m|am)\s+(?:\w+ly\s+|also\s+|now\s+|not\s+|never\s+)*{_DONE}\b",
            rf"\b{_LEAVE}\s+(?:\w+\s+){{0,5}}(?:was|were|is|are|has|had|given|granted|received|obtained|in hand)\b(?! denied)",
            rf"\b(?:have|has|had|got|received|obtained|with|secured|given|gave)\s+(?:\w+\s+){{0,3}}{_LEAVE}\b",
            rf"\b(?:by|from|according to)\s+(?:the\s+|our\s+|this\s+){_WHO}\b|\baccording to {_WHO}\b",
            rf"\b(?:fine|ok(?:ay)?|alright|good|acceptable|cool|all right)\s+(?:with|by|for)\s+(?:the\s+|our\s+)?{_WHO}\b",
            rf"\b(?:cleared|agreed|settled|discussed|arranged|checked|aligned|coordinated)\s+with\s+(?:the\s+|our\s+)?{_WHO}\b",
            rf"^\W*(?:approved|authori[sz]ed|agreed|requested)\b|^\W*{_WHO}\s*:",
        )
    ),
    re.IGNORECASE,
)
_CHINESE_WHO = r"(?:用户|客户|顾客|您|你|对方|甲方|老板|领导|业主|需求方|主人|上级|负责人|产品经理|项目方|委托人|他们?|她们?|使用者|本人)"
_CHINESE_SPEECH = (
    r"(?:要求|希望|想|同意|批准|授权|允许|许可|答应|应允|确认|决定|选择|选定|选了|指示|吩咐|说|表示|提到|提出|提议|建议|禁止|反对|拒绝|不让|不许|不准|不要|"
    r"不想|强调|需要|偏好|喜欢|认可|认同|通过|点头|拍板|签字|放行|默许|默认|嘱咐|交代|请求|让|叫|准许|首肯|赞成|接受|坚持|明确|指定|规定|期望|期待|主张|敲定|"
    r"下令|命令|委托|拜托|告诉|告知|回复|反馈|赞同|采纳|打算|愿意|不愿|不同意|声明|催|盼|中意|倾向|定了|定下|开了绿灯|松口|没意见|授意|示意|叮嘱|关照)"
)
_CHINESE_BETWEEN = (
    r"(?:也|都|又|还|已经?|曾经?|之?前|后来|明确|一再|多次|刚才?|最终|最后|"
    r"现在|本来|原本|口头|书面|正式|特别|再三|当时|早就|一直|的?意思|就|并|非常|很)*"
)
_CHINESE = re.compile(
    "|".join(
        (
            rf"{_CHINESE_WHO}{_CHINESE_BETWEEN}{_CHINESE_SPEECH}",
            r"(?:按照?|依照|遵照|根据|应|照|依|遵循|基于|鉴于).{0,8}(?:要求|指示|意愿|意思|吩咐|需求|请求|决定|偏好|授权|命令|规定|嘱咐|约定|反馈|意见)",
            r"(?:获得?|得到|取得|拿到|征得|经过?|已经?|有).{0,8}(?:批准|同意|授权|许可|允许|首肯|认可|准许|确认)",
            r"奉.{0,6}[命令]|[遵依].{0,6}[嘱命]|[依照按].{1,6}之意",
            r"(?:被|遭).{0,6}(?:批准|授权|允许|禁止|拒绝|要求|否决)|(?:需求|要求|指示|约束|决定)(?:是|为|如下|包括|有)",
            rf"{_CHINESE_WHO}的(?:\S{{0,4}})?(?:要求|指示|意愿|意思|吩咐|需求|请求|决定|偏好|授权|命令|选择|许可|期望|想法|规定)",
        )
    )
)
# How a program treats those who use it is no claim about anybody's will.
_SUPPOSED = re.compile(
    rf"\b(?:when|whenever|if|once|until|unless|while|so that|where|lets?|letting|allow(?:s|ing)?|enabl(?:es|ing)|each time|every time)\s+"
    rf"(?:the\s+|an?\s+|each\s+|every\s+|our\s+)?{_WHO}\b[^,.;]*|(?:当|如果|若|一旦|每当)(?:用户|客户|使用者)[^，。；]*",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^\s*(?:#{1,6}\s+.*|\*\*[^*]+\*\*\s*:?\s*|[^.。!?！？]{1,80}[:：]\s*)$")
_CLAIMING_HEADING = re.compile(
    rf"\b{_WHO}\b.*\b(?:{_NOUN}|said|asked|wants?|messages?)\b|\b{_NOUN}\b|\b(?:approved|agreed|requested|forbidden|decided)\b|"
    r"用户|客户|要求|约束|决定|批准|同意|禁止|需求|指示|偏好|授权",
    re.IGNORECASE,
)


def is_claim(line: str) -> bool:
    """Whether a line says that somebody who may give orders wished, allowed, chose or forbade something."""
    line = _SUPPOSED.sub(" ", line)
    return _ENGLISH.search(line) is not None or _CHINESE.search(line) is not None


def is_heading(line: str) -> bool:
    """Whether a line only announces what follows."""
    return _HEADING.match(line) is not None


def announces_claims(line: str) -> bool:
    """Whether what follows a heading is said to be the user's will."""
    return is_heading(line) and _CLAIMING_HEADING.search(line) is not None


def without_claiming(text: str) -> str:
    """What is claimed, without the words that claim it."""
    return _CHINESE.sub(" ", _ENGLISH.sub(" ", text))
