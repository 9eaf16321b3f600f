"""Whether an English sentence demands, forbids or decides, by how such sentences are built."""

import re
from typing import Literal, TypeAlias

from palimpsest.audit.binding_tells import names_a_rule, pleases, tells
from palimpsest.audit.binding_verbs import NO_VERBS, VERBS

Binding: TypeAlias = Literal["forbidden", "demanded", "decided"]


def _any(*patterns: str) -> re.Pattern[str]:
    """One pattern for many; those that begin with a word are tried only where one begins, which makes it twice as fast."""
    branches = [branch for pattern in patterns for branch in _branches(pattern)]
    words = [branch[2:] for branch in branches if branch.startswith(r"\b")]
    others = [branch for branch in branches if not branch.startswith(r"\b")]
    return re.compile("|".join([rf"\b(?:{'|'.join(words)})", *others]))


def _branches(pattern: str) -> list[str]:
    """The alternatives of a pattern that stand at its top."""
    found, depth, inside, start, place = [], 0, False, 0, 0
    while place < len(pattern):
        letter = pattern[place]
        if letter == "\\":
            place += 1
        elif inside:
            inside = letter != "]"
        elif letter == "[":
            inside = True
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "|" and not depth:
            found.append(pattern[start:place])
            start = place + 1
        place += 1
    return [*found, pattern[start:]]


_NEGATED = r"(?:do not|don'?t)"
# A clause begins here, so that what follows is said to somebody and not told of somebody.
_BEGINS = r"(?:^|[,.:;—–()-]\s*|\b(?:and|but|so|then|please|also|just|or|again|careful|you|we|it|they|that|to)\s+)"
_MODAL = r"(?:must|should|shall|may|ought|need|can|would|will)"
_PERSON = r"(?:i|we|they|he|she|(?:the |our |my )?(?:client|customer|team|boss|user|manager|lead|company|business|stakeholder)s?)"
_DETERMINER = (
    r"(?:(?:the|an?|all|any|every|each|it|them|this|that|these|those|my|our|your|its|his|her|their|both|only|some|everything|nothing|"
    r"me|us|yourself|what(?:ever)?|how|\d+)\b|[`\"'/@~]|[\w-]+[._/]\w)"
)

_FORBIDS = _any(
    r"\bnever\b(?! (?:mind|finishe[sd]|work(?:s|ed)|return(?:s|ed)|end(?:s|ed)|stop(?:s|ped)|gets|got|fire[sd]|happen(?:s|ed)|show(?:s|ed)|"
    r"load(?:s|ed)|comes|came|arrive[sd]|complete[sd]|terminate[sd]|reache[sd])\b)",
    rf"{_BEGINS}{_NEGATED}\b(?! (?:know|understand|think|remember|have|see|get|mind|care|believe|recall|exist|work|forget|hesitate)\b)",
    rf"\b(?:i|we|{_PERSON}) (?:really |also |still )?(?:{_NEGATED}|does not|doesn'?t) "
    r"(?:want|like|need|allow|accept|use|support|ship|wish|trust)\b",
    rf"\b{_MODAL} ?(?:not|n't)\b(?! (?:we|you|i|it|they|be (?:that|hard)|hurt)\b)|\b(?:mustnt|shouldnt)\b",
    r"\b(?:you|we|it|they|one) (?:can'?t|cannot)\b (?!find|see|seem|get past)",
    r"\b(?:can'?t|cannot) be (?!found|reached|opened|loaded|resolved|read\b|started|installed|reproduced|parsed|imported|establish|"
    r"verified|accessed|"
    r"seen|right|true|the|that|serious|sure)\w+",
    r"\b(?:avoid|refrain|forbid\w*|prohibit\w*|disallow\w*|ban(?:ned|s)?|veto\w*|unacceptable|taboo)\b",
    r"\b(?:off[- ]limits|hands off|steer clear|stay (?:away|out|off)|no[- ]gos?|deal[- ]?breakers?|off the \w+)\b",
    r"\bout of (?:the question|scope|bounds)\b|\bunder no \w+|\bat no (?:point|time)\b|\bby no means\b|\bon no account\b",
    r"(?:\bnot|n't) (?:be )?(?:allowed|permitted|acceptable|ok(?:ay)?|an option|supposed|in scope|welcome|tolerated|to be|up for)\b",
    r"\bno (?:longer|need)\b|\bneedn'?t\b|\b(?:not|un)necessary\b",
    # Without a verb: `no new dependencies`, `zero warnings`.
    r"(?:^|[,.:;—–-] ?|\b(?:and|with|absolutely|please|be|want|need|said|say|mean|meant) )(?:no|zero) "
    r"(?!worr|problem|idea|doubt|wonder|one\b|rush|matter|more than|less than|fewer|later|earlier|luck|,)[\"'`\w]",
    r"\b(?:better|best|prefer(?:ably)?|rather|try|sure|careful|asked|told|you|remember|wants?|it|want (?:you|it|this)) not (?:to )?\w+",
    r"\b(?:stop|quit|cease) (?:\w+ing|the|that|this|it|all|any)\b|\bwithout (?:ever )?(?:\w+ing|any|a|the|my|our)\b",
    r"\bleave .{1,60}?\b(?:alone|as[- ]is|as (?:it|they|he|she)|untouched|unchanged|intact|in place|be)\b",
    r"\bkeep .{1,50}?\b(?:out of|away from|off|untouched|unchanged|as[- ]is)\b",
    r"\b(?:none|neither|nothing|nowhere|nobody|no one|no \w+)\b.{0,40}\b(?:should|must|may|shall|can|is to|are to|gets?|goes|leaves)\b",
    r"\b(?:can|may)\b.*[,;] .*\b(?:can'?t|cannot|may not)[.!]?$",
    r"\bwe (?:won'?t|will not)\b|\bi can(?:'t|not) (?:accept|have|allow|tolerate|live)\b|\b(?:i|we) (?:refuse|object to|won'?t (?:accept|"
    r"allow|have|tolerate))\b",
    r"\b(?:skip|drop|scrap|ditch|abandon|forget(?: about)?|exclude|except|omit) (?:the|that|this|these|those|all|any|for|about|it|"
    r"them)\b",
    r"[,;] ?(?:and )?not (?!sure|bad|yet|really|so|surpris|always|quite|too|work|even|much|that (?:i|it|we)|because|me\b|him\b|us\b)\w|"
    r"\banything but\b|\bnor\b",
    r"\b(?:are|is|'re|'s) not to\b|\brul(?:ed|es?|ing) out\b|\b(?:hold|held) (?:off|back|your)\b|\bnothing (?:else|more|beyond)\b",
    r"\b(?:i'm|i am|we're|we are) (?:done|through|finished) with\b|\b(?:we|you|this|that|it|i) ain'?t\b|\band not\b|\bbut not\b|"
    r"\bnot (?:a|one) (?:single|more)\b",
    r"\b(?:i|we)(?:'d|'m|'re| am| are| would)? (?:really )?"
    r"(?:dislike|hate|against|opposed|not (?:comfortable|happy|keen|okay|fond|a fan))\b",
    r"^(?:please )?not (?:in|on|for|this|that|the|here|now|today|with|at)\b(?! (?:my|our|all)\b)(?: \S+){0,5}$",
    r"^(?:nobody|no one|none|neither)\b|\bhard[- ]deprecat",
)
_DECIDES = _any(
    r"\bi(?:'ll| will) (?:take|go|have|use|pick|choose|stick|keep)\b|\b(?:mine|ours|up) to (?:decide|choose|me|us)\b",
    r"\blet'?s\b|\blet us\b|\bwe'll\b(?! see)|\bwe will\b|\bi've (?:chosen|picked|settled|decided)\b",
    r"\bwe(?:'re| are) (?:now )?(?:going|moving|switching|dropping|keeping|sticking|using|archiv\w+|staying|doing|not)\b",
    r"\b(?:go(?:ing|es)?|proceed|continue|stay(?:ing)?|stick(?:ing)?|run(?:ning)?|start|roll) (?:ahead )?(?:with|for|to)\b|\bgo ahead\b",
    r"\b(?:settle[ds]?|agree[ds]?|decide[ds]?|land(?:ed)?) (?:on|for|to|that|against)\b|\bdeci(?:ded|sions?)\b|\bcho(?:se|sen|ice)\b",
    r"\b(?:i|we)(?: would|'d)? (?:choose|pick(?:ed)?|vote|opt(?:ed)?|select(?:ed)?|take|took)\b|\bopt(?:ed|ing)? (?:for|out|in)\b",
    r"\bprefer(?:ence|ences|ably|able)\b|(?:^|\b(?:i|we|they|would|'d|client|customer|team|boss|users?|please|and|but|just) (?:\w+ )?)"
    r"prefers?\b|\b(?:i|we) preferred\b|\b(?:'d|would) rather\b|\bin favou?r of\b|\blean(?:ing)? towards?\b|"
    r"\bmy (?:vote|pick|preference|call)\b",
    r"\binstead\b|\brather than\b|\bin place of\b|\bas opposed to\b|\bin lieu of\b|\breplac\w+ .{1,40} (?:with|by)\b",
    r"\b(?:use|take|keep|pick|choose|want|do|call|make) [^.?!]{1,60}?\bnot\b",
    r"^(?!.*\b(?:is|are|was|were|talks?|runs?|goes|comes?)\b).*\b\w+ over \w+[.,!]?$",
    r"\b(?:agreed|approved?|approving|confirmed|accepted|signed off|sounds (?:good|right)|looks good|lgtm|makes sense|works for me)\b",
    r"\b(?:good to go|fine (?:by|with) me|ship (?:it|them|this|that)|merge (?:it|them)|deal|green ?light\w*|thumbs up|all yours)\b",
    r"\b(?:option|choice|approach|plan|variant|proposal|alternative|direction|number|design) (?:\d+|[a-d])\b|\b(?:take|use|keep|ship|"
    r"want) version \d",
    r"\b(?:from (?:now|here) on|going forward|by default|for now|as of (?:now|today)|henceforth|in future|final answer)\b",
    r"\b(?:you|we) (?:may|can (?:always|now|just|safely|freely)|are (?:free|allowed|permitted|welcome) to)\b|\byou're (?:free|allowed|"
    r"permitted|welcome) to\b|\bfeel free\b",
    r"\b(?:that|it|this) can (?:just|simply)\b|\bthe answer is\b|\b(?:is|are|will be|would be|'s) (?:enough|sufficient|plenty)\b|"
    r"\b(?:an?|just|one|two|any|either) [\w ]{2,30} (?:is|are|would be) (?:fine|ok(?:ay)?)\b|\bi'd (?!be|like|love|appreciate|expect|say|"
    r"guess|think|imagine|never|been|have|gone|seen|\w+ed\b)\w+|"
    r"\bmy (?:suggestion|idea|proposal|wish|request|advice|take|thinking)(?::| is| would)|"
    r"\b(?:will|would|'ll) (?:do|suffice)[.!]?$|\bit is[.!]?$(?<=, \w\w it is.)",
    rf"(?<!if )(?<!so )(?<!that )(?<!where )(?<!how )(?<!and )(?<!what )you (?:can|could|might)(?: \w+ly| also| now| then| just)? (?!see|"
    rf"find|tell|get|notice|imagine|look|hear|guess|read)[a-z]+ "
    rf"(?:{_DETERMINER}|\w+ing\b)|\bha(?:s|ve) no (?:business|place)\b|^(?:\w+ ){{0,3}}(?:the )?(?:same|likewise|ditto)(?: thing)"
    rf"? (?:for|with|on|in|goes)\b|"
    r"^(?:it'?s |high )?time to\b",
    r"\b(?:i|we)(?:'m|'re| am| are) (?:fine|ok(?:ay)?|happy|good|cool) (?:with|if)\b",
    r"\b(?:it'?s|it is|that'?s|is) (?:fine|ok(?:ay)?|safe|allowed|permitted) (?:to|for|if)\b",
    r"^(?:yes|yep|yeah|yup|sure|ok(?:ay)?|fine|correct|exactly|perfect|do it|nope?)\b[,.! ]*"
    r"(?:$|please|do\b|go\b|use\b|keep\b|make\b|with\b)",
    r"^(?:\d{1,2}|[a-d])[.!]?$|^(?:(?:yes|yeah|ok(?:ay)?|no|sure|right),? )?(?:the )?(?:first|second|third|last|latter|former|other)"
    r" (?:one|option)\b",
    r"\b(?:switch|change|move|migrate|revert|go back|rename|convert|port) (?:\S+ ){0,4}(?:back )?to\b",
    r"\bthat'?s (?:settled|decided|final|fixed)\b|\bchanged my mind\b|(?:^|, )i meant\b|^you can (?:\w+ )?(?:stop|start|begin|go|"
    r"continue|proceed|merge|push|close|skip)\b|\bit (?:your|my|this|that) way\b|^you asked\b|\bas far as i'm concerned\b|"
    r"\bthe (?:outcome|conclusion|verdict|upshot|bottom line|consensus) (?:is|was)\b|^(?:no[,.]? )?not (?:that|this|the|those|these|in|"
    r"on|here) .*,|^(?:no[,.]? )?wrong \w+[,;:—-]|\byour (?:next )?(?:step|task|job|turn)\b|"
    r"\b(?:set in stone|made up (?:my|our) mind|end of discussion|case closed)\b",
)
_DEMANDS = _any(
    r"\b(?:must|shall|should|ought to|gotta|requires?|required|requirements?|mandatory|compulsory|obligatory)\b",
    r"\b(?:have|has|having) (?:got )?to\b|\bneeds?\b|\b(?:is|are) to be\b",
    rf"\b{_PERSON}(?: would| really| also| still| just|'d|'ll)* "
    r"(?:want|wanna|expect|insist|ask|wish|hope|appreciate|demand|request)",
    rf"\b{_PERSON}(?: would|'d)(?: really| also| still| just)* (?:like|love)|\b(?:i|we) like (?:to|when|my|our|your)\b",
    r"\b(?:the|our|my) \w+(?: \w+)? (?:wants?|expects?|insists?|demands?)\b|\byou (?:might|may) want\b|\bi (?:said(?! (?:that|this|so|it)"
    r"\b)|asked|told you)\b",
    r"(?:^|\b(?:it'?s|it is|be|is) )(?:better|best|cleaner|nicer|safer|simpler|clearer) (?:to|if|when|not)\b|^any(?:thing|one|body)"
    r" (?:that|who|which|in|under|over|below|above)\b",
    r"^(?!i |we |you |they |he |she |it )[\w-]+(?: [\w-]+){0,3} gets? (?:an?|its|their|no|one|two|the)\b|^(?!i |we |they |you |the |"
    r"these |those )[\w -]{2,40}s go (?:in|into|to|under|below|above|after|before|at|on|through|inside|next)\b|\bcounts? as\b|"
    r"^the (?:name|title|path|key|port|size|colou?r|label|font)[\w ]{0,20}: \S|^(?!exit|error|status|code|line)[a-z][\w -]{2,30}: \d",
    r"\bi'm (?:asking|expecting|hoping|looking for)\b|\b(?:would|might|'d) be (?:\w+ )?\w+(?: idea)? (?:to|if|not)\b|\b(?:would|'d)"
    r" (?:help|be enough|do)\b|\b(?:how|what) about\b",
    r"\b(?:please|pls|plz|kindly|make sure|make certain|ensure|be sure|see to it|take care|mind \w+ing|remember to|don'?t forget)\b",
    r"(?<!is )(?<!are )(?<!was )(?<!were )\balways\b|\b(?:only|exclusively|solely|strictly|at (?:most|least|all times)|every time|"
    r"whenever|all \w+ (?:get|go|use)|up to \d+)\b",
    r"\bno (?:more|less|fewer|later|earlier) than\b|\b(?:limit(?:ed)?|cap(?:ped)?|restrict(?:ed)?) (?:\w+ ){0,3}(?:to|at)\b",
    r"\b(?:grateful|thankful|obliged) (?:for|if)\b|\bbelongs?\b|\bgets? to\b|\bwhoever\b|\bwill do[.!]?$",
    r"(?<!is )(?<!was )(?<!are )\b(?:under|below|within|above|over|max(?:\.|imum)?(?: of)?|min(?:imum)?(?: of)?) \d",
    r"\b(?:essential|imperative|crucial|critical|vital|important|non[- ]negotiable|supposed to|expected to|bear in mind|keep in mind)\b",
    r"^(?:all|every|each|any)\b(?! ?\w+(?: \w+)? (?:has|have|had|ships?|comes?|contains?|consists?|took|takes?|reports?|appears?)\b)"
    r"(?!.*\b(?:pass(?:es|ed)?|fail(?:s|ed)?|works?|worked|was|were|green|fine|good|same)[.!]?$)|\b(?:comes?|"
    r"goes|go) (?:first|last|before)\b|\b(?:wins?|takes? precedence|ha(?:s|ve) priority)\b",
    r"^the (?:less|fewer|more|shorter|smaller|simpler|sooner|faster)\b.*\bthe (?:better|\w+er)\b",
    r"\bunless\b|^ideally\b|\bgoes (?:top|bottom|left|right|first|last|here|there|in the (?:top|upper|lower|bottom|left|right))\b|"
    r"\b(?:what|that|which) (?:matters|counts)\b|\bin case of\b|\b(?:if|when) in doubt\b|\b(?:max(?:imum)?|min(?:imum)?) [\w ]{2,25} \d",
    r"(?<!issue )(?<!problem )(?<!bug )(?<!error )\b(?:stay|remain|(?:stay|remain)s(?! (?:on|off|up|down|open|closed|red|green|the same|"
    r"stuck|empty|blank|black|white|broken|busy|idle)\b))\b|\bpermission\b(?! denied)|\bauthori[sz]ed\b",
    r"\b(?:final|frozen|sacred|untouchable|immutable|law)[.!]?$",
    r"\b(?:upper|lower) (?:bound|limit)\b|\babsolute (?:maximum|minimum|limit)\b",
    r"\b(?:budget|limit|deadline|cap|target|minimum|maximum|threshold|quota|ceiling|rule|convention|standard|default)s? (?:\w+ )?(?:is|"
    r"are|of)\b",
    r"\b(?:had|'d|you) better\b|\bi need\b|\bi want\b|\bsee that\b|\btodo\b|\bgoal is\b|\bthe (?:task|point|aim|idea) is to\b",
)
# Where something is told, only what says it plainly binds.
_SURE = _any(
    r"\b(?:must|should|shall|ought to|needs? to|ha(?:ve|s) to|please|pls|kindly|make sure|let'?s|instead of|from now on|no longer|"
    r"no need|i (?:said(?! (?:that|this|so|it)\b)|asked|told you|meant)|changed my mind|(?:better|cleaner|nicer|safer|simpler|clearer)"
    r" (?:to|if|when|not)|won'?t support)\b",
    r"\b(?:i|we)(?:'d| would)? (?:want|prefer|insist|need|expect|like you|like to|like the|rather|wish|hope)\b|\bi'd (?:like|love|hate|"
    r"say|go|rather)\b|\bi would\b",
    r"\b(?:i can(?:'t|not) (?:accept|have|allow|tolerate)|not allowed|forbidden|off[- ]limits|may not|banned|hands off|unacceptable|"
    r"supposed to|under no)\b|\bwe(?:'re| are) (?:going|sticking|not)\b",
    r"\b(?:decided|agreed|settled|chosen|chose|ruled|approved|signed off|picked)\b|(?:^|[,;:.] ?)(?:never (?!seen|heard|had|been|\w+ed\b)"
    r"|do not |don'?t |stop |avoid )",
)
_POLITE = _any(
    r"\b(?:can|could|cld|would|will|might) (?:you|we|u|someone)\b(?! (?:see|hear|access|reproduce|believe|imagine|feel|still)\b)",
    r"\bplease\b|\bpls\b|\bkindly\b|\bmind \w+ing\b|\b(?:is|would) it (?:be )?possible (?:to|for)\b|^can (?:the|it|this|that|these)"
    r" .*\b(?:default|be (?:\w+ed|\w+er))\b|\b(?:can|could|may) i (?:please )?(?:have|get|see)\b",
    r"\bwhy (?:not|don'?t (?:we|you))\b|\b(?:how|what) about\b|\bany chance (?:you|we|of|to|for)\b|^could (?:the|it|this|that|these|"
    r"those|all|each|every) (?!.*\b(?:be|have|cause|explain|affect|mean|come|handle)\b)",
)
_TURN = re.compile(
    r"[:;—–]\s+|,\s+(?:(?:and|but|so|therefore|hence|thus|then)\s+)?|(?<!'s)(?<! is)(?<! was)(?<! are)\s(?:but|so|therefore|hence)\s+|"
    r"\sand\s+(?=(?:i|we|the)\b)"
)
_GUESSED = re.compile(r"\b(?:must|should|could|would|might|may)(?: not|n't)? have (?:been|had|got|done|\w+(?:ed|en|wn|ught|nt))\b")
_OWN = _any(
    r"\b(?:must|never|do not|i(?: really)? (?:want|need|insist)|i'?d rather|i(?: actually)? prefer|in favou?r of|let'?s|no way)\b",
    r"\bwhat (?:matters|counts)\b|\bwhat (?:i|you|we)(?:'d| would)?(?: really| actually)? (?:want|need|should|must|ought|like|love|"
    r"prefer)\b",
)
_ASKS = re.compile(
    r"^(?!should [^?]*,[^?]*$)(?:(?:ok(?:ay)?|so|and|but|hmm+|wait|also|then|well|now|ah+|um+|huh|wtf)[,! ]+)*"
    r"(?:why|what(?! about)|whats|what's|how(?! about)|where|who|whose|which|when (?:is|are|does|did|will|was)|is|are|was|were|am|does|did|"
    r"(?:do|have|should|shall|has|can|could) (?:we|you|i|they)\b(?! please)|(?:should|shall|has|can|could) (?:it|the)\b|any (?:ideas?|"
    r"reason)|(?:is|are|does|did|was)n'?t)\b",
)
_LEADS = (
    r"(?:(?:ok(?:ay)?|so|then|also|and|now|just|first(?:ly)?|second(?:ly)?|third|next|finally|lastly|actually|again|yes|yeah|no|"
    r"ple?a?se?|pls|plz|"
    r"well|"
    r"hmm+|uh+|huh|wow|cool|great|good|right|alright|fine|hey|hi|btw|afterwards?|meanwhile|otherwise|instead|alternatively|in that case|"
    r"after that|either|better|on second thoughts?|ideally|preferably|if possible|for the moment|in the meantime|(?:this|next) time|"
    r"by the way|one more thing|also please|plus|oh|ah|nah|nope|thanks|thank you|sorry|careful|seriously|quick one|real quick)[,:!.]?\s+|"
    r"(?:when|if|once|before|after|while|for|in|on|with|as|until|unless|whenever|where|wherever|should|had|were)\b[^,]{1,80},\s+){0,4}"
)
_PERHAPS = re.compile(rf"(?:perhaps|maybe),? (?:(?:we|you) (?:could|should|can|just) )?(?:{'|'.join(VERBS.split())})\b")
# Words that name a thing as often as a deed: with a verb after it, it is the thing.
_THING = (
    r"(?!(?:re-?)?(?:commit|test|build|log|cache|display|import|export|report|search|link|list|release|update|query|record|request|store|"
    r"track|cover|tag|patch|plan|design|process|access|output|view|work|change|name|version|process|support)s? "
    r"(?!the\b|an?\b|all\b|it\b|them\b|every|each|this|that|these|those|my|our|your)[\w ]{0,60}\b(?:is|are|was|were|has|have|takes?|"
    r"comes?)\b)"
)
_NAMED = re.compile(
    rf"(?:^|[:;—–] )\(?{_LEADS}(?:be \w+|have (?:the|it|them|a|an|all|every)\b|do (?:me|us|yourself|some|a|an|the|it|this|that|all)\b|"
    rf"(?:(?:\w+ly|"
    rf"always|only|do|re-?|double-?|deep|temp) ?)?{_THING}"
    rf"(?:{'|'.join(VERBS.split())})\b)"
    r"(?!'s|\s+(?:is|are|was|were|has|had|does|did|failed|fails|works?|seems?|of|errors?)\b|:\s|/)",
)
_BUILT = re.compile(
    rf"^{_LEADS}(?:(?:\w+ly|always|only) )?(?!(?:{'|'.join(NO_VERBS.split())})\b)(?!\w+(?:ed|ing|ness|tion|ly|[^s]s)\b)"
    rf"[a-z]{{2,}}(?:-\w+)?\s+(?:(?:up|out|off|down|back|away|over|in|on|through)\s+)?(?!\d){_DETERMINER}",
)
_THEN = re.compile(
    rf"(?:[,;:—–]|[,;—–] ?(?:and|but|so|then|therefore|hence|thus)|\b(?:but|so|therefore))\s+{_LEADS}(?:you )?(?:(?:just|please|rather|"
    rf"simply|then|also) )*"
    rf"(?:{'|'.join(VERBS.split())}|do)\s+(?:(?:up|out|off|down|back|away|over|in|on|through)\s+)?(?:{_DETERMINER}|(?:to|with|from|into|"
    rf"for)\b)|"
    r"\b(?:so|but|then|,) (?!make|is|was|does|did)[a-z]{3,} (?:it|them|that) (?:up|out|off|down|back|away|over|in|on|to|into|with|as)\b|"
    r", (?:so |but |then |please )?(?!is|was|does|did|like|love|believe|get|got|see|saw|about|with|for|from|after|before|as|and|or)"
    r"[a-z]{3,} (?:it|them)[.!]?$|"
    rf"^(?:if|when|once|unless|as soon as)\b.{{3,60}} (?:just|then|please|simply|always) (?:{'|'.join(VERBS.split())})\b"
)
_WONDERS = re.compile(
    r"(?:so |and |but |ok(?:ay)?,? )?(?:what(?! about)|which|how(?! about)|where|when|who|why(?! (?:not|don'?t)))\b(?!.*\b(?:please|pls)"
    r"\b).*\?$"
)


def english(sentence: str) -> Binding | None:
    """What a sentence does to whoever works; a question does nothing unless it is a polite way to demand."""
    # What must, should or could have been is guessed or regretted.
    sentence = _GUESSED.sub(" ", sentence.lower().replace("’", "'"))
    if pleases(sentence):
        return None
    polite = _PERHAPS.match(sentence) is not None or (_POLITE.search(sentence) is not None and _WONDERS.match(sentence) is None)
    question = sentence.endswith("?")
    asks = question or _ASKS.match(sentence) is not None
    if asks and not polite and (_OWN.search(sentence) is None or (question and _ASKS.match(sentence) is not None)):
        return None
    if tells(sentence) and _SURE.search(sentence) is None:
        return _after(sentence)
    found = _plain(sentence)
    if found is not None:
        return "demanded" if found == "decided" and polite and asks else found
    if polite or _BUILT.match(sentence) is not None or (not asks and (_THEN.search(sentence) is not None or names_a_rule(sentence))):
        return "demanded"
    return None


def _plain(sentence: str) -> Binding | None:
    """What the words of a sentence say that it does, whatever its form."""
    if _FORBIDS.search(sentence) is not None:
        return "forbidden"
    if _DECIDES.search(sentence) is not None:
        return "decided"
    return "demanded" if _DEMANDS.search(sentence) is not None or _NAMED.search(sentence) is not None else None


def _after(sentence: str) -> Binding | None:
    """What the rest of a sentence does that begins as a story: `it was slow, so never do that again`."""
    turn = _TURN.search(sentence)
    while turn is not None:
        rest = sentence[turn.end() :]
        if pleases(rest):
            return None
        if not tells(rest):
            return _plain(rest) or ("demanded" if _THEN.search(sentence) is not None else None)
        turn = _TURN.search(sentence, turn.end())
    return None
