"""English words for people who may give orders, for what they do with words, for what they feel and for what they give."""

import re

from palimpsest.audit.people import PEOPLE

WHO = (
    r"(?:user|(?<=the )users|(?<=The )users|clients?|customers?|humans?|operators?|owners?|boss|chief|requesters?|stakeholders?|"
    r"maintainers?|"
    r"reviewers?|managers?|product (?:owners?|managers?)|developers?|engineers?|principals?|management|leadership|sponsors?|founders?|"
    r"supervisors?|directors?|administrators?|(?:team|tech|project|product|group) leads?|lead|team|ceo|cto|pm|contact|business|buyers?|"
    rf"persons?(?: in charge)?|people(?: in charge)?|{PEOPLE})"
)
# What can be taken back by whoever made it.
LIMITS = r"(?:restrictions?|limits?|bans?|rules?|requirements?|constraints?|conditions?|objections?|vetoe?s?|freeze)"
# What people do with words or in their heads, whoever they are.
SPEECH = (
    r"(?:ask|want|request|demand|requir|instruct|told|tell|order|insist|prefer|wish|hop(?:e|ed|ing)\b|expect|said|say|stat(?:e|ed|es|"
    r"ing)\b|mention|approv|agree|accept|allow|permit|authori[sz]|confirm|consent|sign(?:ed|s|ing)?[ -]off|"
    r"o\.?k\.?['’]?(?:a?y)?(?:e?d|s)\b|okay|green[- ]?li[gt]|bless|sanction|endors|decid|cho(?:os|se)|pick|opt(?:ed|s)?\b|select|"
    r"settl|forb[ia]d|prohibit|bann|refus|reject|den(?:y|ied)|declin|veto|object|rul(?:ed|es|ing) out|warn|remind|suggest|propos|"
    r"recommend|need|mean[ts]?\b|clarif|specif|emphasi|stress|direct(?:ed|s)\b|mandat|urg(?:e|ed|es)\b|desir|call(?:ed|"
    r"s)? for|g[ai]ve|grant|would like|['’]d like|vouch|ratif|concur|acknowledg|wav(?:ed|es) through|stipulat|rely|commit|impos|"
    r"find(?:s|ing)?\b|found\b|went (?:for|with|along|ahead)|c[ao]mes? (?:round|around|down|out|up)|sp(?:oke|eaks?)\b|"
    r"left .{1,40} (?:to|up to) (?:us|me)|"
    r"put it|paid\b|m(?:ade|akes?) \w|took\b|kn(?:ows?|ew)\b|could(?:n['’]t| not)|c(?:an|ould) live|wouldn['’]t|reserv|"
    r"dictat|command|beg|pleads?|press(?:ed|es) for|nod|clear(?:ed|s)\b|waiv|trust|likes?\b|liked\b|dislik|lov(?:e|es|ed)\b|hat(?:e|es|"
    r"ed)\b|"
    r"enjoy|mind(?:s|ed)?\b|complain|voic|worr|fear(?:s|ed)?\b|doubt|th(?:ink|ought)|believ|f(?:eels?|elt)\b|consider|regard|car(?:e|"
    r"es|ed)\b|"
    r"intend|plans? to|set\b|vot(?:e|es|ed)\b|favou?r|advis|advocat|promis|swor|let\b|lets us|entrust|empower|exempt|tolerat|overrul|"
    r"turn(?:ed|s) down|shot down|push(?:ed|es) (?:for|back)|put (?:off|a|an end|his|her|their)\b|left (?:it|the \w+) (?:to|up)|"
    r"ma(?:de|kes?) (?:it )?(?:clear|plain|known|a point|the call)|st(?:uck|ood)\b|wrote|explain|report(?:s|ed)\b|wonder|inquir|question|"
    r"draw|drew|h(?:eld|olds?) (?:off|that)|took the view|came (?:down|out)|agrees|welcom|appreciat|criticis|criticiz|praise|frown|"
    r"bars?\b|barred|"
    r"no (?:objections?|issues?|problems?|concerns?|reservations?)|raised (?:an?|no|the|his|her|their)|express|repl(?:y|ied)|answer|"
    r"respond|"
    r"remark|comment(?:s|ed)\b|not(?:es?|ed) (?:that|the|how|to)\b|point(?:s|ed) (?:out|to)|underlin|reiterat|repeat|signal|indicat|"
    r"hint|impl(?:y|ied)|assur|guarante|conced|announc|declar|pledg|reconsider|relent|budg(?:e|ed)\b|compromis|negotiat|lean|voted|"
    r"determin|"
    r"resolv(?:e|ed) (?:to|that)|delegat|hand(?:ed|s) over|enforc|la(?:id|ys) down|call(?:ed|s) off|cancel|postpon|defer|extended|"
    r"shorten|tighten|"
    r"relax|loosen|soften|withdr[ae]w|back(?:s|ed) (?:out|down|off)|chang(?:es|ed) (?:his|her|their|its) minds?|s[ai]gn(?:s|ed)\b)"
)
FEELINGS = (
    r"(?:happy|fine|ok(?:ay)?|glad|content|pleased|satisfied|adamant|clear|explicit|willing|unwilling|ready|keen|eager|on board|"
    r"comfortable|"
    r"uncomfortable|against|opposed|for it|in favou?r|worried|concerned|anxious|unhappy|dissatisfied|annoyed|frustrated|cool|good with|"
    r"open to|"
    r"all for|sold|convinced|certain|sure|reluctant|firm|strict|relaxed|indifferent|aware|insistent|curious|interested|fond|tired|sick|"
    r"unsure|"
    r"of the (?:opinion|view)|not a fan|a fan|set on|leaning|inclined|al(?:l )?right|delighted|enthusiastic|sceptical|skeptical|afraid|"
    r"with us|after)"
)
NOUNS = (
    r"(?:requests?|instructions?|wish(?:es)?|preferences?|approvals?|agreements?|permissions?|consent|authori[sz]ations?|orders?|"
    r"demands?|requirements?|decisions?|choices?|go[- ]ahead|green light|blessings?|sign[- ]?offs?|nod|mandates?|directives?|"
    r"say[- ]so|word|words|feedback|guidance|okay|thumbs[- ]up|clearance|behest|insistence|constraints?|asks?|suggestions?|proposals?|"
    r"ideas?|"
    r"opinions?|views?|rules?|advice|remarks?|concerns?|complaints?|worr(?:y|ies)|questions?|intent(?:ions?)?|taste|liking|"
    r"stance|verdict|ruling|veto|bans?|conditions?|stipulations?|expectations?|answers?|repl(?:y|ies)|responses?|account|deadlines?|"
    r"budget|behalf|leave|side|part|desires?|urging|prompting|call|endorsement|acceptance|"
    r"confirmation|invitation|appeal|will|objections?|disapproval|dislike|pleas?|commands?|recommendations?|priorit(?:y|ies)|red lines?)"
)
LEAVE = (
    r"(?:approvals?|permissions?|consent|authori[sz]ations?|go[- ]ahead|green light|blessings?|sign[- ]?offs?|clearance|thumbs[- ]up|nod|"
    r"licen[cs]e to|leave to|all-clear|endorsement|okay)"
)
DONE = (
    r"(?:approved|authori[sz]ed|requested|instructed|forbidden|prohibited|greenlit|green-lit|green-lighted|okayed|ok'd|agreed|mandated|"
    r"sanctioned|"
    r"ratified|vetoed|signed off|waved through|waived|nodded through|rubber-stamped|stipulated|blessed|ruled out|"
    r"turned down|insisted on|decided upon|agreed upon|consented to|objected to|demanded)"
)
# What those who use a program do with it; anything else that they did is said about their will.
USES = (
    r"(?:click|typ|log|enter|open|visit|press|scroll|submit|upload|download|encounter|experienc|past|creat|install|clos|start|"
    r"restart|navigat|interrupt|shar|attach|provid|us|delet|edit|look|tri|happen|refresh|connect|authenticat|sign|see|get|receiv|lose|"
    r"go|has|is|was|"
    r"does|make|hit|drag|drop|swip|tap|hover|register|exist|miss|fail|need|belong|match|load|return|expir|land|remain|stay|chang|"
    r"switch|toggl|retri|send|poll|call|wait|read|writ|cach|pars|stor)"
)
THINGS = (
    r"(?:account|setting|record|name|agent|session|role|permission|group|id|profile|input|table|row|event|detail|comment|data|preference|"
    r"credential|token|error|stor|page|list|form|typ|right|test|file|request|model|service|interface|menu|object|field|class|key|cache|"
    r"api|"
    r"endpoint|space|base|address|order|entit|librar|cert|view|portal|process|import|dialog|flow|count|guide|experience|dashboard|"
    r"avatar|schema|component|screen|module|facing|state|quer|side|code|app)"
)
# Words that claim, whatever form they have; what is claimed is what is left without them.
CLAIM_WORDS = re.compile(
    rf"(?<![\w/.])(?:(?:\b(?:the|our|my|this|an?)\s+)?\b{WHO}(?:['’]s?)?(?=\W|$)(?!\s+{THINGS})|"
    r"\b(?:ask|request|demand|requir|instruct|told|tell|insist|prefer|wish|hope|expect|said|say|stated?|mention|approv|agree|accept|"
    r"allow|permi|"
    r"authori[sz]|confirm|consent|okay|green[- ]?li|bless|sanction|endors|decid|decision|cho(?:os|se|ice)|pick|opt(?:ed|s)?\b|settl|"
    r"forb[ia]d|"
    r"prohibit|"
    r"bann|refus|reject|deni|declin|veto|object|warn|remind|suggest|propos|recommend|clarif|specif|emphasi|stress|direct(?:ed|s|ive)|"
    r"mandat|urg(?:e|ed|es)\b|desir|"
    r"g[ai]ven?\b|grant|vouch|ratif|concur|acknowledg|stipulat|dictat|command|begg?(?:ed|s)?\b|plead|waiv|trust|dislik|lov(?:e|es|"
    r"ed)\b|hat(?:e|es|ed)\b|likes?\b|"
    r"liked\b|mind(?:s|ed)?\b|complain|voic|worr|fear(?:s|ed)?\b|think|thought|believ|feels?\b|felt|consider|intend|plans?\b|vot(?:e|"
    r"es|ed)\b|favou?r|advis|"
    r"advocat|entrust|empower|tolerat|explain|report(?:s|ed)\b|wonder|inquir|question|express|repl(?:y|ied)|answer|respond|remark|"
    r"point(?:s|ed) (?:out|to)|"
    r"note[sd]?\b|underlin|reiterat|signal|indicat|clearance|opinion|view\b|concern|rule[sd]?\b|verdict|intention|instructions?|"
    r"preference|feedback|"
    r"guidance|according|happy|fine\b|glad\b|pleased|adamant|explicit|clear(?:ed|ly|s)?\b|willing|keen|eager|comfortable|unhappy|"
    r"unwanted|welcom|"
    r"obtain|receiv|discuss|arrang|agreement|free hand|carte|words?\b|thumbs|sign(?:ed|s)?[ -]?off|go[- ]ahead|light\b|follow(?:ing|"
    r"ed)|upon\b|"
    r"got\b|conditions?\b|off[- ]limits|reserv|advice|taken\b|deadline|went\b|spoke\b|finds?\b|offer|desired?|wants?\b|wanted|"
    r"needs?\b|needed|"
    r"called|insistence|behest|nod(?:s|ded)?\b|turned down|rais(?:ed|es) (?:an?|no|"
    r"the)\b|made it|appreciat|"
    r"express|whether|risk of|right\b|sure\b|strict(?:ly)?\b|anyone|somebody|objections?|permission|access to|push(?:ed|es) for|"
    r"appears?\b|constraint|restrict|requirement|reversal|regarding|concerning|judg[e]?ment|discretion|condition|prohibit|limitation|"
    r"permission|forbidden|mandatory|stipulat|deadline|tolerat|conced|insist|wanted|unwanted|prescrib|curious|puzzl|"
    r"explanation)\w*+)(?![/._]\w)",
    re.IGNORECASE,
)
