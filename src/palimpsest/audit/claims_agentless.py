"""How an English line tells of a wish, leave, a ban or a decision without saying whose it is."""

import re
from typing import Final

# Words that tell of somebody's will wherever they stand as a participle: no program does this.
_WILLED = (
    "approved authori[sz]ed okayed ok'd ok’d ok'ed greenlit green-lit greenlighted green-lighted mandated sanctioned ratified vetoed "
    "consented waived blessed stipulated commissioned endorsed vouched pledged promised insisted overruled rubber-stamped agreed "
    "decided forbidden demanded requested instructed tasked wished desired wanted unwanted asked-for"
)
# Words that tell of it only if they are said of work: a program permits, rejects and requires as well.
_WEAK = (
    "allowed permitted accepted acceptable tolerated cleared rejected declined refused prohibited banned disallowed barred excluded "
    "required expected requested ordered prescribed fixed settled chosen picked selected preferred postponed deferred delayed shelved "
    "cancelled canceled called-off suspended dropped lifted relaxed welcome unwelcome optional mandatory compulsory obligatory "
    "negotiable non-negotiable sufficient enough fine okay ok alright good unnecessary undesired undesirable unacceptable "
    "intended planned scheduled agreed envisaged foreseen encouraged discouraged confirmed adopted withdrawn rescinded revoked "
    "extended exempt exempted excused dispensable"
)
_ANY_WILLED, _ANY_WEAK = "|".join(_WILLED.split()), "|".join(_WEAK.split())
# What people plan, do and rule over; said of these, a weak word is about somebody's will.
_WORK = (
    r"\w{2,}ing|(?:re)?moval|deletion|changes?|edits?|modifications?|corrections?|tweaks?|adjustments?|rewrites?|rewording|migrations?|"
    r"upgrades?|downgrades?|updates?|push(?:es)?|force-push(?:es)?|deploy(?:s|ments?)|releases?|roll-?outs?|roll-?backs?|merges?|"
    r"switch|move|replacement|introduction|addition|adoption|use|usage|support|downtime|outages?|dependenc(?:y|ies)|librar(?:y|ies)|"
    r"packages?|frameworks?|refactorings?|refactors?|clean-?ups?|reviews?|tests?|coverage|documentation|docs|translations?|comments?|"
    r"workarounds?|shortcuts?|hacks?|mocks?|breaking|licen[cs]es?|telemetry|tracking|experiments?|prototypes?|features?|redesigns?|"
    r"audits?|backups?|fix|fixes|patch(?:es)?|hotfix(?:es)?|renam\w+|squash\w*|rebas\w+|delays?|exceptions?|deviations?|compromises?|"
    r"export|import|purchase|costs?|overtime|formatting|abbreviations?|plan|approach|design|proposal|option|variant|investigation|"
    r"analysis|sketch|draft|algorithm|idea|mock-?ups?|colou?rs?|font|library|tool|vendor|provider|code|names?|naming|wording|texts?|"
    r"version|format|language|scope|deadline|schedule|budget|rule|policy"
)
_RULE = (
    r"(?:rules?|restrictions?|limits?|limitations?|bans?|requirements?|constraints?|conditions?|objections?|veto|freeze|moratorium|"
    r"embargo|polic(?:y|ies)|prohibitions?|obligations?|deadlines?|caps?|ceilings?|thresholds?|stipulations?|mandates?|instructions?|"
    r"demands?|guidelines?|reservations?)"
)
_UNRULED = (
    r"(?:lifted|withdrawn|dropped|relaxed|loosened|eased|softened|suspended|waived|rescinded|revoked|repealed|abolished|overturned|"
    r"cancel?led|removed|scrapped|void|obsolete|moot|extended|moved|pushed back|raised|lowered|tightened|retracted|taken back|"
    r"set aside|off the table|gone|history|no longer (?:\w+ )?(?:applies|apply|valid|in force|holds?|stands?|binding))"
)
_BE = r"(?:is|are|was|were|be|been|being|remains?|stays?|got|gets|becomes?|['’]s|['’]re)"
_SOFTLY = (
    r"(?:(?:not|now|also|still|only|never|always|\w+ly|no longer|just|even|again|all|both|at most|quite|very|perfectly|absolutely|"
    r"in principle|for now|since|already|most|much|by \w+|on \w+) )*"
)
# What can be done with a thing because of how it is made, and what can be seen of it, needs nobody's leave.
_OBSERVED = (
    r"(?:seen|found|related|caused|linked|reproduced|observed|verified|explained|traced|inferred|computed|derived|called|reached|"
    r"triggered|measured|parsed|accessed|configured|set|passed|imported|loaded|nested|chained|shared by|represented|expressed|"
    r"interrupted|blocked|null|reused|simulated|detected|attributed|avoided|compared|lost|delivered twice|cast|converted|shown that|"
    r"read|invoked|seen|toggled|resolved|applied twice|filtered|garbage|evicted|preempted|reordered|stuck|inlined|restarted|retried|"
    r"written concurrently)"
)
# What must be so for a program to work, and what should turn out so, is nobody's rule.
_NECESSARY = (
    r"(?:be \w+ing\b|be (?:\w+ly )?(?:equivalent|pinned|listed (?:before|after)|in an?|preceded|followed|related)|"
    r"be (?:\w+ly )?(?:called|invoked|built (?:with|from|against)|initiali[sz]ed|allocated|aligned|closed|opened|locked|unlocked|held|"
    r"acquired|released|avoided|joined|drained|freed|escaped|quoted|encoded|decoded|parsed|unique|non-?\w+|null|nil|none|set|unset|"
    r"even|odd|positive|negative|equal|divisible|an? (?:multiple|power|valid|string|list|integer|number|subset|prefix)|present|running|"
    r"restarted|rebuilt|regenerated|recompiled|flushed|synchroni[sz]ed|loaded|registered|mounted|awaited|passed|given|defined|declared|"
    r"filtered|wrapped|cast|reachable|valid|true|false|empty|exported|resolved|identical|within|between|greater|less|larger|smaller|"
    r"at least \d+ (?:bytes|bits)|possible|safe|visible|gone|ready|easy|straightforward|faster|slower|clean|green|enough|sufficient|"
    r"fine|ok|okay|done|idempotent|monotonic|sorted|\w+ed by the (?:caller|parser|server|kernel|worker|loader|client))\b|match|equal|"
    r"fit in|differ|exceed|precede|come (?:before|after|first)|point|hold|return|yield|print|pass\b|work\b|fix|help|suffice|"
    r"take (?:about|around|less|\d)|give|happen|succeed|fail|implement|contain|start with|end with|begin with|wait for|read|carry|"
    r"resolve|converge|agree|lie)"
)
_LABEL = (
    r"(?:constraints?|requirements?|decisions?|preferences?|rules?|instructions?|restrictions?|conditions?|bans?|prohibitions?|"
    r"approvals?|permissions?|wish(?:es)?|requests?|demands?|orders?|directives?|mandates?|guidelines?|polic(?:y|ies)|agreements?|"
    r"deadlines?|priorit(?:y|ies)|non-goals?|must-haves?|no-gos?|taboos?|red lines?|deal-?breakers?|expectations?|veto(?:es)?|"
    r"objections?|choices?|verdicts?|sign-?offs?|go-ahead|green light|reversals?|change of (?:plan|mind|course)|clarifications?|"
    r"confirmations?|stipulations?|exceptions?|exemptions?|hard limits?|budget|mandatory|obligatory|forbidden|prohibited|allowed|"
    r"permitted|off[- ]limits|cleared|rejected|declined|postponed|settled|agreed|decided|approved|wanted|unwanted|requested|required|"
    r"confirmed|desired|preferred|waived|banned|vetoed|authori[sz]ed|greenlit|okayed|out of scope|ruled out)"
)
_NOT_LABELS = r"(?!\W*(?:next|root|rate|size|file|time|memory|retry|current|known|open|possible|observed|actual|default|build|http|api)\b)"
_PEOPLE_VERBS = (
    r"(?:approved|consented|okayed|greenlit|signed off|vetoed|forbade|insisted|waived|blessed|demanded|pledged|promised|vouched|"
    r"assured|authori[sz]ed|sanctioned|endorsed|overruled|objected|conceded|urged|pleaded|agreed (?:to|that|on|with)|decided (?:to|"
    r"that|on|against|in)|opted|cleared (?:the|us|me|it|this)|gave (?:us|me|its|their|his|her|the|permission|consent|leave|clearance|"
    r"in)|has (?:no|nothing) (?:objections?|against)|lifted|loosened|backed down|changed (?:his|her|their) minds?|asked (?:for|us|me|"
    r"to|that)|told (?:us|me)|ordered (?:us|me|that)|put (?:his|her|their) foot)"
)
# A subject that is a program asks, refuses and agrees without meaning anything by it.
_MACHINES = (
    r"(?:bot|server|client|replicas?|nodes?|kernel|parser|compiler|checker|linter|module|driver|worker|process|thread|scheduler|"
    r"service|pod|peer|proxy|browser|app|agent|function|method|test|tests|suite|script|job|task|loader|handler|hook|action|workflow|"
    r"pipeline|runner|library|plugin|daemon|shell|cli|api|endpoint|gateway|router|resolver|planner|optimi[sz]er|allocator|ca|chain|"
    r"policy|form|page|dialog|prompt|device|sensor|board|chip|esp32|container|host|vm|daemon|consumer|producer|broker|leader|follower|"
    r"i|we|it|model|tool|command|git|npm|sudo|mypy|schema|engine|is|are|was|were|be|been|being|an|returns?)"
)
_PARTS: Final = (
    # `was okayed`, `has been agreed`, `no test is wanted`
    (
        rf"\b{_BE} {_SOFTLY}(?:{_ANY_WILLED})\b(?! by (?!(?:the |our |my |an? )?(?:\w+ )?@WHO@|you\b|them\b|hi[ms]\b|"
        r"her\b)|"
        rf" (?:\w+ )?(?:from|at the) (?:\w+ )?(?:server|api|cache|kernel|disk|pool))"
    ),
    # `ordered by the hospital board`, `tolerated by them`
    (
        rf"\b(?:{_ANY_WILLED}|{_ANY_WEAK}) (?:by|to|for|with) (?:the |our |my |an? )?(?:[\w-]+ )?(?:@WHO@|you|them|"
        r"him|her|us)\b(?!\s+@THINGS@)"
    ),
    # `dropping X is fine`, `any number of new dependencies is allowed`
    (
        rf"(?:^\W*|[,;:—–] ?|\b(?:and|but|that) )(?:[\w./()`'’-]+ ){{0,4}}?(?:{_WORK})\b(?: (?!which\b|that\b|"
        rf"because\b)[\w./()`'’-]+){{0,7}} (?:can |may |will |would |should |has |have |had )?{_BE} {_SOFTLY}(?:{_ANY_WEAK})\b"
        r"(?! (?:from|at|after|with an?|because|when|since|due|in this|in the|through|until the|on the|as the) )"
    ),
    # `must be kept`, `has to stay`, `is not to be touched`
    (
        r"(?<!\w-)\b(?:must(?!-)|shall|should|ought to|ha(?:s|ve) to|needs to|"
        rf"need to be)(?:n['’]t)? (?:\w+ly )?(?!(?:not )?{_NECESSARY}|"
        r"have been|(?:then|now|only) )\w"
    ),
    (
        r"\b(?:is|are|was|were) (?:not |never |only |now |still )*to (?:be|stay|remain|go|keep|use|live|land|have|look|read|work|"
        r"run)\b(?! \w+ by (?:exactly |only |at most )?(?:one|each|every|an?|the) (?!@WHO@))"
    ),
    (
        rf"\b(?:may|can|could|might) (?:not |now |also |only |simply |safely |freely |just |\w+ly |still |"
        rf"go )*(?:be (?:\w+ly )?(?!{_OBSERVED})\w+(?:ed|en|t|n|wn|ut|de|ne)\b|go\b|stay\b|remain\b|wait\b|skip\b)"
        r"(?! (?:by (?!@WHO@)|at any time|concurrently|with make|twice|while|when|via|using|if|from|as an?|in \w+\.))"
    ),
    (
        r"\b(?:we|i)(?: are| am|['’]re|['’]m)? (?:may|must not|must never|mustn['’]t|may not|need not|needn['’]t|are not to|shall|"
        r"shan['’]t|not supposed|allowed|free|entitled|expected|required|supposed|at liberty)\b"
    ),
    # `only X needs to be built`, `nothing may be deleted`
    (
        r"\b(?:no|nothing|none|only|any|every|all) (?:\S+ ){0,5}(?:may|must|shall|needs?|is to|are to|is (?:\w+ )?(?:wanted|needed|"
        r"allowed|permitted|required|acceptable))\b"
    ),
    # a label with what follows
    (
        rf"^\W*{_NOT_LABELS}(?:[\w'’/-]+ ){{0,4}}{_LABEL}(?: (?!is\b|are\b|was\b|were\b|has\b)[\w'’./-]+){{0,6}}\s*(?::\s|\s[—–-]+\s|"
        r"[—–]\s?)"
    ),
    rf"(?:\s[—–-]+\s|\(|, |: )(?:an? |the |as )?(?:hard |firm |strict |explicit |clear |final )?(?:{_LABEL})[.)!]?$",
    # what is left to oneself
    (
        r"\b(?:at|in|to|within) (?:our|my|the agent['’]s|its) (?:own |sole )?(?:discretion|judg[e]?ment|hands)\b|\b(?:is|are|was|were|"
        r"left) (?:entirely |all |fully )?up to (?:us|me|the agent)\b|\bwithout (?:any |further |prior |first |another )*(?:asking|"
        r"approval|permission|consent|sign-?off|confirmation|consultation|being asked|checking (?:back|with)|clearance|consulting)\b"
    ),
    (
        r"\bno (?:\w+ )?(?:confirmation|approval|permission|sign-?off|consent|clearance|go-ahead|review) (?:\w+ )?(?:is |"
        r"was )?(?:\w+ )?(?:needed|required|necessary|wanted)\b|\b(?:confirmation|approval|permission|sign-?off|consent) (?:is |"
        r"was )?(?:\w+ )?(?:needed|required|necessary|mandatory)\b"
    ),
    (
        r"\b(?:off[- ]limits|out of bounds|hands[- ]off|no-go|taboo|non-negotiable|not negotiable|out of the question|ruled out|"
        r"part of the (?:deal|agreement|contract|package|order|offer|bargain)|off the table|on the table|out of scope|"
        r"part of the (?:agreed|current) |a must\b|not an option|blanket|carte blanche|free (?:hand|rein)|with impunity|at will|"
        r"no strings|no hurry|no rush|not urgent|takes? precedence|top priority|(?:agreed|accepted|settled|chosen|approved) (?:choice|"
        r"option|solution|scope|plan|version|design|format|date|budget|tool|way|value|approach)|red line|deal-?breaker|declared (?:off|"
        r"acceptable|final|optional|done))"
    ),
    # `the ban on X was lifted`, `the rule no longer applies`
    rf"\b{_RULE}\b(?: [\w./()`'’-]+){{0,8}} {_SOFTLY}{_UNRULED}\b",
    (
        r"\b(?:lifted|withdr[ae]wn?|relaxed|relaxing|loosened|waived|waiving|rescinded|revoked|suspended|dropped|eased|retracted|"
        r"scrapped) "
        rf"(?:the |this |that |its |their |his |her |a |any )?(?:[\w-]+ ){{0,4}}{_RULE}\b"
    ),
    # a ban put as an order
    (
        r"^\W*(?:do not|don['’]t|never(?! (?:\w+ly )?\w+ed\b)|please|no more|under no circumstances|by no means|avoid|refrain|"
        r"make sure|be sure|always)\b"
    ),
    # words in quotation marks that tell somebody what to do
    (
        r"[\"“][^\"”]*\b(?:you (?:can|may|must|should|could|have)|don['’]t|do not|never|please|let['’]s|go ahead|just|must|feel free|"
        r"i want|i['’]d|we want|no need|should)\b[^\"”]*[\"”]"
    ),
    (
        r"\b(?:in line with|in accordance with|in keeping with|under|against|contrary to|in spite of|despite|pursuant to|by|"
        r"per) (?:the |an? |explicit |express |earlier |prior |clear |agreed |approved |this |that )*(?:agreement|instructions?|"
        r"orders?|mandate|decision|request|requirement|directive|arrangement|wish(?:es)?|demand|advice|ban|prohibition|approved|"
        r"agreed)\b(?! of magnitude)"
    ),
    (
        r"\b(?:is|are|was|were) (?:\w+ly )?(?:cleared|good|clear) to \w|\bha(?:d|s|ve) (?:us|me) \w|\b(?:is|are|was|were|"
        r"been) asked for(?=[.,;:]|$| by)|\b(?:no|not an?|hardly an?) (?:problems?|issues?|concerns?|obstacles?|priority) (?:for|with|"
        r"to) (?:the |our )?@WHO@\b"
    ),
    # how somebody feels about it, and what somebody has of it
    (
        rf"\b(?:is|are|was|were|be|been|seems?|felt|feels?) {_SOFTLY}(?:fine|happy|okay|ok|comfortable|cool|content|on board|satisfied|"
        r"relaxed|at ease|in favou?r|opposed|keen|all right|alright|d'accord|in agreement) (?:with|about|to|if|for|on|"
        r"of)\b(?! (?:the field|each|what the (?:spec|parser)))"
    ),
    (
        r"\b(?:has|have|had|having|got|enjoys?|lacks?) (?:\w+ ){0,2}?(?:backing|blessing|objections?|reservations?|no interest|"
        r"little interest|no wish|no intention|no appetite|no use|no desire|veto|final say|last word|say in|sympathy|sympathies|"
        r"consent|approval|go-ahead|no plans) (?:of|from|by|to|in|for|against|with|about|on)\b"
    ),
    (
        r"\b(?:said|says|wrote|writes|stated|insisted|confirmed|stressed|added|warned|demanded|assured|explained|claimed) (?:the |"
        r"our )?(?:@WHO@)\b"
    ),
    (
        r"\b(?:i|we) (?:have |had |already |also |\w+ly )*(?:promised|assured|told|owe|agreed with|negotiated with|cleared|"
        r"checked with|consulted|confirmed with|settled with|warned|informed|guaranteed) (?:it with |this with )?(?:the |"
        r"our )?(?:@WHO@|them|him|her|you)\b"
    ),
    (
        rf"\bit (?:is|was|has been|had been) {_SOFTLY}(?:arranged|agreed|settled|understood|established|laid down|made clear|resolved|"
        r"ruled|announced|communicated|requested|suggested|proposed|stressed|stipulated|specified|ordered|confirmed|vital|essential|"
        r"imperative|important) (?:that|to|for)\b"
    ),
    (
        r"(?:\b(?:is|are|was|were|remains?|stays?|becomes?)|['’]s) (?:not )?(?:an? |the |our |their |his |"
        r"her )(?:[\w-]+ ){0,2}(?:requirement|must|priority|wish|condition|constraint|decision|preference|no-go|taboo|expectation|"
        r"deal-?breaker|obligation|agreement|request|demand|must-have|precondition|stipulation|commitment)\b(?! (?:of|"
        r"for) the (?:\w+ )?(?:protocol|spec|parser|compiler|api|format|library|plugin))"
    ),
    (
        rf"\b(?:is|are|was|were|remains?) {_SOFTLY}(?:intended|tolerable|bearable|admissible|permissible|desirable|undesirable|welcome|"
        r"unwelcome|acceptable|unacceptable|negotiable|urgent|sacrosanct|untouchable|imperative|vital|commissioned|contracted|greenlit|"
        r"binding|out|in)(?=[.,;:]|$| (?:to|for) (?:the |our )?(?:@WHO@|us|them)\b)"
    ),
    (
        r"\b(?:budget|deadline|scope|quota|allowance|headcount|price|fees?|schedule|timeline)\b(?: [\w-]+){0,3} (?:was|were|has been|"
        r"is|got) (?:now |since |\w+ly )?(?:raised|lowered|cut|fixed|set|capped|increased|reduced|extended|doubled|halved|widened|"
        r"frozen|moved|shortened)\b"
    ),
    (
        r"^\W*(?:(?:up to|at most|at least|about|around) )?(?:\d+|one|two|three|four|five|six|ten|another|any|"
        r"\w+ing)\b[^.;:]{3,60} (?:is|are|would be) (?:\w+ly )?(?:okay|ok|fine|acceptable|enough|alright|all right|permissible|"
        r"sufficient)(?: too| as well| for now)?[.!]?$"
    ),
    (
        r"\bthere(?:['’]s|['’]re| is| are| was| were| has been) (?:\w+ ){0,2}?(?:consent|approval|agreement|permission|objections?|"
        r"understanding|consensus|ban|clearance|a wish|a rule that|a requirement|a decision|a promise|pressure|a demand|an order|"
        r"no need to|no hurry|no rush)\b"
    ),
    (
        r"^\W*\w+ing\b[^.;:]{3,60} (?:is|are) (?:only |not |no longer |hardly |not really |strictly )*(?:necessary|needed|required|"
        r"mandatory|expected)\b"
    ),
    (
        r"\bwhat (?:the |our )?@WHO@\b(?! @THINGS@)|\b(?:concern|interest|matter|business|liking|taste|satisfaction|wish|"
        r"priority) (?:of|to|for) (?:the |our )?@WHO@\b"
    ),
    (
        r"\bwhat (?:the |our )?@WHO@\b(?! @THINGS@)|\b(?:concern|interest|matter|business|liking|taste|satisfaction|wish|"
        r"priority) (?:of|to|for) (?:the |our )?@WHO@\b"
    ),
    # `was deemed acceptable`, `they would rather`, `comes first for the user`
    (
        r"\b(?:deemed|considered|regarded as|declared|judged|held to be|found) (?:\w+ly )?(?:acceptable|fine|okay|ok|unimportant|"
        r"necessary|unnecessary|optional|sufficient|good enough|appropriate|inappropriate|off limits|final)\b|\b(?:you|they|he|"
        r"she)(?:['’]d| would) (?:rather|prefer|like|love|sooner|want)\b"
    ),
    r"\b(?:first|best|enough|fine|important|vital|crucial|acceptable|clear)\b[^.;]{0,12} (?:for|to) (?:the |our )@WHO@\b(?! @THINGS@)",
    # `need not be logged`, `were ordered`
    r"\b(?:need not|needn['’]t|needs? (?:no|not)|no need (?:to|for))\b(?! (?:a|the) lock)",
    (
        r"\b(?:is|are|was|were|been) (?:\w+ly |also |not )*(?:ordered|accepted|adopted|commissioned|bought|budgeted|paid for|promised|"
        r"scrapped|called off|turned down|sent back)(?=[.,;:]|$| by (?:the |our )?@WHO@| for (?:the|next|this) (?:release|week|month|"
        r"year|quarter|festival|summer|winter))"
    ),
    r"\bpreferred (?:way|option|solution|choice|approach|variant|tool)\b",
    (
        r"\b(?:deadline|freeze|launch|go-live|delivery(?! (?:is|was) \w+ed)|hand-?over|milestone|kick-?off|"
        r"demo)\b(?: [\w-]+){0,4} (?:is|was|starts?|moved?|set|due|fixed|on|by|has|until)\b"
    ),
    (
        r"\b(?:wants|wanted|asked|expects?|expected|trusts?|trusted|allowed|forbade|ordered|urged|reminded|instructed|invited|"
        r"permitted|authori[sz]ed|cleared|begged|warned|advised|encouraged|empowered|entitled|counts on|relies on|leaves it to|"
        r"left it to) (?:us|me)\b"
    ),
    (
        r"\b(?:brief|ticket|contract|order|sla|tender|agreement|statement of work|roadmap) (?:calls for|demands|requires|says|"
        r"specifies|forbids|allows|rules out|mentions|foresees)\b|\b(?:on|upon|at) (?:\w+ )?(?:request|demand|insistence|"
        r"popular demand)(?=[.,;:]|$| of| from)"
    ),
    r"\b(?:change of (?:plan|heart|mind|course)|changed course|change in requirements?|the (?:final|last) word)\b",
)


_SOMEBODY_DID = re.compile(
    rf"^\W*((?:[\w'’.-]+ ){{1,6}}?)(?:has |have |had )?(?:also |already |since |then |both |all |\w+ly )*{_PEOPLE_VERBS}\b", re.IGNORECASE
)
_IS_MACHINE = re.compile(rf"\b{_MACHINES}\b", re.IGNORECASE)


def somebody_did(line: str) -> bool:
    """Whether a line begins with somebody, whoever it is but no program, who agreed, ordered or forbade."""
    found = _SOMEBODY_DID.match(line)
    return found is not None and _IS_MACHINE.search(found[1]) is None


def agentless(who: str, things: str) -> "re.Pattern[str]":
    """The pattern of these lines in small letters, given the words for people and for things that are named after them."""
    return re.compile("|".join(_PARTS).replace("@WHO@", who).replace("@THINGS@", things).replace("The )", "the )"))
