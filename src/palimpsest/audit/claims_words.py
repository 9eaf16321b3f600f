"""English words for people who may give orders, for what they do with words, for what they feel and for what they give."""

import re

from palimpsest.audit.people import PEOPLE

WHO = (
    r"(?:user|(?<=the )users|(?<=The )users|clients?|customers?|humans?|operators?|owners?|boss|chief|requesters?|stakeholders?|"
    r"maintainers?|reviewers?|managers?|product (?:owners?|managers?)|developers?|engineers?|principals?|management|leadership|"
    r"sponsors?|founders?|supervisors?|directors?|administrators?|(?:team|tech|project|product|group) leads?|lead|team|ceo|cto|pm|"
    r"contact|business|buyers?|"
    rf"persons?(?: in charge)?|people(?: in charge)?|{PEOPLE})"
)
# What can be taken back by whoever made it.
LIMITS = r"(?:restrictions?|limits?|bans?|rules?|requirements?|constraints?|conditions?|objections?|vetoe?s?|freeze)"
# What people do with words or in their heads, whoever they are.
SPEECH = (
    r"(?:ask|want|request|demand|requir|instruct|told|tell|order|insist|prefer|wish|hop(?:e|ed|ing)\b|expect|said|say|stat(?:e|ed|es|"
    r"ing)\b|mention|approv|agree|accept|allow|permit|authori[sz]|confirm|consent|sign(?:ed|s|ing)?[ -]off|o\.?k\.?['’]?(?:a?y)?(?:e?d|"
    r"s)\b|okay|green[- ]?li[gt]|bless|sanction|endors|decid|cho(?:os|se)|pick|opt(?:ed|s)?\b|select|settl|forb[ia]d|prohibit|bann|"
    r"refus|reject|den(?:y|ied)|declin|veto|object|rul(?:ed|es|ing) out|warn|remind|suggest|propos|recommend|need|mean[ts]?\b|clarif|"
    r"specif|emphasi|stress|direct(?:ed|s)\b|mandat|urg(?:e|ed|es)\b|desir|call(?:ed|s)? for|g[ai]ve|grant|would like|['’]d like|vouch|"
    r"ratif|concur|acknowledg|wav(?:ed|es) through|stipulat|rely|commit|impos|find(?:s|ing)?\b|found\b|went (?:for|with|along|ahead)|"
    r"c[ao]mes? (?:round|around|down|out|up)|sp(?:oke|eaks?)\b|left .{1,40} (?:to|up to) (?:us|me)|put it|paid\b|m(?:ade|akes?) \w|"
    r"took\b|kn(?:ows?|ew)\b|could(?:n['’]t| not)|c(?:an|ould) live|wouldn['’]t|reserv|dictat|command|beg|pleads?|press(?:ed|es) for|"
    r"nod|clear(?:ed|s)\b|waiv|trust|likes?\b|liked\b|dislik|lov(?:e|es|ed)\b|hat(?:e|es|ed)\b|enjoy|mind(?:s|ed)?\b|complain|voic|"
    r"worr|fear(?:s|ed)?\b|doubt|th(?:ink|ought)|believ|f(?:eels?|elt)\b|consider|regard|car(?:e|es|ed)\b|intend|plans? to|set\b|"
    r"vot(?:e|es|ed)\b|favou?r|advis|advocat|promis|swor|let\b|lets us|entrust|empower|exempt|tolerat|overrul|turn(?:ed|s) down|"
    r"shot down|push(?:ed|es) (?:for|back)|put (?:off|a|an end|his|her|their)\b|left (?:it|the \w+) (?:to|up)|ma(?:de|"
    r"kes?) (?:it )?(?:clear|plain|known|a point|the call)|st(?:uck|ood)\b|wrote|explain|report(?:s|ed)\b|wonder|inquir|question|draw|"
    r"drew|h(?:eld|olds?) (?:off|that)|took the view|came (?:down|out)|agrees|welcom|appreciat|criticis|criticiz|praise|frown|bars?\b|"
    r"barred|no (?:objections?|issues?|problems?|concerns?|reservations?)|raised (?:an?|no|the|his|her|their)|express|repl(?:y|ied)|"
    r"answer|respond|remark|comment(?:s|ed)\b|not(?:es?|ed) (?:that|the|how|to)\b|point(?:s|ed) (?:out|to)|underlin|reiterat|repeat|"
    r"signal|indicat|hint|impl(?:y|ied)|assur|guarante|conced|announc|declar|pledg|reconsider|relent|budg(?:e|ed)\b|compromis|negotiat|"
    r"lean|voted|determin|resolv(?:e|ed) (?:to|that)|delegat|hand(?:ed|s) over|enforc|la(?:id|ys) down|call(?:ed|s) off|cancel|postpon|"
    r"defer|extended|shorten|tighten|relax|loosen|soften|withdr[ae]w|back(?:s|ed) (?:out|down|off)|chang(?:es|ed) (?:his|her|their|"
    r"its) minds?|s[ai]gn(?:s|ed)\b)"
)
FEELINGS = (
    r"(?:happy|fine|ok(?:ay)?|glad|content|pleased|satisfied|adamant|clear|explicit|willing|unwilling|ready|keen|eager|on board|"
    r"comfortable|uncomfortable|against|opposed|for it|in favou?r|worried|concerned|anxious|unhappy|dissatisfied|annoyed|frustrated|"
    r"cool|good with|open to|all for|sold|convinced|certain|sure|reluctant|firm|strict|relaxed|indifferent|aware|insistent|curious|"
    r"interested|fond|tired|sick|unsure|of the (?:opinion|view)|not a fan|a fan|set on|leaning|inclined|al(?:l )?right|delighted|"
    r"enthusiastic|sceptical|skeptical|afraid|with us|after)"
)
NOUNS = (
    r"(?:picks?|favou?rites?|requests?|instructions?|wish(?:es)?|preferences?|approvals?|agreements?|permissions?|consent|"
    r"authori[sz]ations?|orders?|demands?|requirements?|decisions?|choices?|go[- ]ahead|green light|blessings?|sign[- ]?offs?|nod|"
    r"mandates?|directives?|say[- ]so|word|words|feedback|guidance|okay|thumbs[- ]up|clearance|behest|insistence|constraints?|asks?|"
    r"suggestions?|proposals?|ideas?|opinions?|views?|rules?|advice|remarks?|concerns?|complaints?|worr(?:y|ies)|questions?|"
    r"intent(?:ions?)?|taste|liking|stance|verdict|ruling|veto|bans?|conditions?|stipulations?|expectations?|answers?|repl(?:y|ies)|"
    r"responses?|account|deadlines?|budget|behalf|leave|side|part|desires?|urging|prompting|call|endorsement|acceptance|confirmation|"
    r"invitation|appeal|will|objections?|disapproval|dislike|pleas?|commands?|recommendations?|priorit(?:y|ies)|red lines?)"
)
LEAVE = (
    r"(?:approvals?|permissions?|consent|authori[sz]ations?|go[- ]ahead|green light|blessings?|sign[- ]?offs?|clearance|thumbs[- ]up|"
    r"nod|licen[cs]e to|leave to|all-clear|endorsement|okay)"
)
DONE = (
    r"(?:approved|authori[sz]ed|requested|instructed|forbidden|prohibited|greenlit|green-lit|green-lighted|okayed|ok'd|agreed|mandated|"
    r"sanctioned|ratified|vetoed|signed off|waved through|waived|nodded through|rubber-stamped|stipulated|blessed|ruled out|"
    r"turned down|insisted on|decided upon|agreed upon|consented to|objected to|demanded)"
)
# What those who use a program do with it; anything else that they did is said about their will.
USES = (
    r"(?:click|typ|log|enter|open|visit|press|scroll|submit|upload|download|encounter|experienc|past|creat|install|clos|start|restart|"
    r"navigat|interrupt|shar|attach|provid|us|delet|edit|look|tri|happen|refresh|connect|authenticat|sign|see|get|receiv|lose|go|has|"
    r"is|was|does|make|hit|drag|drop|swip|tap|hover|register|exist|miss|fail|need|belong|match|load|return|expir|land|remain|stay|"
    r"chang|switch|toggl|retri|crash|hang|freez|leak|exit|render|display|timeout|block|stall|reconnect|send|poll|call|wait|read|writ|"
    r"cach|pars|stor)"
)
THINGS = (
    r"(?:account|setting|record|name|agent|session|role|permission|group|id|profile|input|table|row|event|detail|comment|data|"
    r"preference|credential|token|error|stor|page|list|form|typ|right|test|file|request|model|service|interface|menu|object|field|"
    r"class|key|cache|api|endpoint|space|base|address|order|entit|librar|cert|view|portal|process|import|dialog|flow|count|guide|"
    r"experience|dashboard|avatar|schema|component|screen|module|facing|state|quer|side|code|app)"
)
# Words that claim, whatever form they have; what is claimed is what is left without them.
CLAIM_WORDS = re.compile(
    rf"(?<![\w/.])(?:(?:\b(?:the|our|my|this|an?)\s+)?\b{WHO}(?:['’]s?)?(?=\W|$)(?!\s+{THINGS})|"
    r"\b(?:ask(?:ed|ing|s)?(?: \w+)? first\b|"
    r"ask|request|demand|requir|instruct|told|tell|insist|prefer|wish|hope|expect|said|say|stated?|mention|approv|agree|accept|"
    r"allow|permi|authori[sz]|confirm|consent|okay|green[- ]?li|bless|sanction|endors|decid|decision|cho(?:os|se|ice)|pick|opt(?:ed|"
    r"s)?\b|settl|forb[ia]d|prohibit|bann|refus|reject|deni|declin|veto|object|warn|remind|suggest|propos|recommend|clarif|specif|"
    r"emphasi|stress|direct(?:ed|s|ive)|mandat|urg(?:e|ed|es)\b|desir|g[ai]ven?\b|grant|vouch|ratif|concur|acknowledg|stipulat|dictat|"
    r"command|begg?(?:ed|s)?\b|plead|waiv|trust|dislik|lov(?:e|es|ed)\b|hat(?:e|es|ed)\b|likes?\b|liked\b|mind(?:s|ed)?\b|complain|"
    r"voic|worr|fear(?:s|ed)?\b|think|thought|believ|feels?\b|felt|consider|intend|plans?\b|vot(?:e|es|ed)\b|favou?r|advis|advocat|"
    r"entrust|empower|tolerat|explain|report(?:s|ed)\b|wonder|inquir|question|express|repl(?:y|ied)|answer|respond|remark|point(?:s|"
    r"ed) (?:out|to)|note[sd]?\b|underlin|reiterat|signal|indicat|clearance|opinion|view\b|concern|rule[sd]?\b|verdict|intention|"
    r"instructions?|preference|feedback|guidance|according|happy|fine\b|glad\b|pleased|adamant|explicit|clear(?:ed|ly|s)?\b|willing|"
    r"keen|eager|comfortable|unhappy|unwanted|welcom|obtain|receiv|discuss|arrang|agreement|free hand|carte|words?\b|thumbs|sign(?:ed|"
    r"s)?[ -]?off|go[- ]ahead|light\b|follow(?:ing|ed)|upon\b|got\b|conditions?\b|off[- ]limits|reserv|advice|taken\b|deadline|went\b|"
    r"spoke\b|finds?\b|offer|desired?|wants?\b|wanted|needs?\b|needed|called|insistence|behest|nod(?:s|ded)?\b|turned down|rais(?:ed|"
    r"es) (?:an?|no|the)\b|made it|appreciat|express|whether|risk of|right\b|sure\b|strict(?:ly)?\b|anyone|somebody|objections?|"
    r"permission|access to|push(?:ed|es) for|appears?\b|constraint|restrict|requirement|reversal|regarding|concerning|judg[e]?ment|"
    r"discretion|condition|prohibit|limitation|permission|forbidden|mandatory|stipulat|deadline|tolerat|conced|insist|wanted|unwanted|"
    r"prescrib|curious|puzzl|explanation)\w*+)(?!/|[._]\w)",
    re.IGNORECASE,
)
