"""Words that may tell of somebody's will, and words that tell of a fact instead."""

import re
from typing import Final

HINT: Final = re.compile(
    r"\b(?:can|(?-i:may)|could|shall|should|must|need(?:s|ed)?|needn['’]t|unnecessary|necessary|required|optional|mandatory|"
    r"urgent(?:ly)?|priority|enough|fine|okay|ok|acceptable|ordered|rejected|declined|cleared|chosen|selected|picked|signed|granted|"
    r"accepted|kept|wanted|planned|agreed|waived|lifted|dropped|postponed|stays?|remains?|replaces?|instead|rather|until|no longer|"
    r"at any time|as well|too|in mind|concern|welcome|free|start|stop|use|drop|keep|please)\b|可以|能(?!耗|力|量)|不用|不必|不需|不做|"
    r"不要|不许|不准|不再|不得|优先|往后|先|放宽|收紧|改[成为用]|换成|即可|就行|就好|保留|取消|免|允许|禁止|必须|须|要|同意|批准|继续|"
    r"直接|逐|统一|一律|全部|暂|停|延|提前|追加|上线|都行|也行|随",
    re.IGNORECASE,
)
FACT: Final = re.compile(
    r"^\W*(?:i|we)\b|\b(?:took|takes|measured|fails?|failed|crash\w*|because|due to|on average|currently|at the moment|so far|yet|now|"
    r"already|implemented|added|fixed|refactored|passes|passed|returns?|throws?|exit code|ms|kb|mb|commit [0-9a-f]{6,}|next step|todo|"
    r"if|when|while|which|after|covers?|tested|reproduc\w+|shows?|logs?|contains?)\b|已|了(?=[，。；,;]|$)|目前|平均|耗时|毫秒|报错|"
    r"失败|因为|原因|导致|会|正在|发现|显示|共|占|位于|用的是|默认|下一步|接下来|否则|当|如果",
    re.IGNORECASE,
)
