"""The shapes of secrets, class by class, in the order in which they are looked for."""

import re
from typing import Final

from palimpsest.core.items import Value

WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
LONG: Final = 15


class SecretClass(Value, frozen=True):
    """A class of secrets: its pattern is tried only where one of the `starts` occurs; group 1 is the secret, else the whole match.

    A pattern reads each character a bounded number of times: its runs are bounded, or nothing that could fail follows them.
    With `folded` the starts are compared without regard to the case of ASCII letters. With `run` a secret has fifteen letters, digits,
    dashes or underscores in a row, and its start begins in that row or at most eight characters before it.
    """

    kind: str
    starts: tuple[str, ...]
    pattern: re.Pattern[str]
    folded: bool = False
    run: bool = False


def _alone(kind: str, starts: str, pattern: str, *, folded: bool = False, run: bool = True) -> SecretClass:
    """A secret with no letter or digit directly before it."""
    return SecretClass(kind, tuple(starts.split()), re.compile(rf"(?<![A-Za-z0-9]){pattern}"), folded, run and not folded)


_END: Final = r"(?![A-Za-z0-9_-])"
_KEY_WORDS: Final = ("api", "access", "private", "secret", "account", "encryption", "auth")
_BEFORE_KEY: Final = "|".join(rf"(?<={word})|(?<={word}[_-])" for word in _KEY_WORDS)
# A reference to a secret is none ($NAME, <your token>, {{token}}), and what was redacted stays as it is.
_WORTH: Final = r"(?!\$[A-Z_{(]|<|\{\{|\[REDACTED:)"
# Nor is code that gets one, where no quote stands before it: a name that is called, looked up in or typed (config.get(…),
# environ[…], Promise<…>), or a path of names (config.db.password).
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]{0,60}"
_BARE: Final = (
    rf"(?!{_NAME}(?:(?:\??\.|::|->){_NAME}){{0,8}}!?(?:[(\[]|<[A-Za-z]))"
    rf"(?!{_NAME}(?:(?:\??\.|::|->){_NAME}){{1,8}}!?[,;)}}\]]{{0,4}}(?:[\s\"'`\\]|$))"
)
# An escaped quote ends a value.
_LETTER: Final = r"(?:[^\s\"'`\\]|\\(?![\"']))"
_VALUE: Final = rf"({_LETTER}{{8,}})"
# What is called a password may be short; a word of a type or a language there is none.
_NO_WORD: Final = (
    r"(?!(?:str|string|bool|boolean|int|integer|number|bytes|text|none|null|nil|undefined|true|false|self|this|optional|required|any|"
    r"object|unknown|never|void|hidden|empty|missing|wrong|invalid|incorrect|redacted|password|passwd|pass|pwd|secret|prompt|input)\b)"
)
_SHORT_VALUE: Final = rf"({_LETTER}{{4,}})"
_IS: Final = r"\\?[\"']?[ \t]{0,20}(?::=|=>|[:=：])\s{0,20}"
_QUOTED: Final = r"\\?[\"']"

_ASSIGNED: Final = SecretClass(
    "assignment",
    ("key", "token", "secret", "pass", "credential"),
    re.compile(
        rf"(?i:(?:{_BEFORE_KEY})key|token|secret|password|passwd|passphrase|credentials?)\b"
        rf"{_IS}(?:{_QUOTED}{_WORTH}|{_WORTH}{_BARE}){_VALUE}"
    ),
    folded=True,
)
# A name of a password and a value of four letters or more on the same line; bare ones have a digit or a sign in them, as words have not.
_PASSWORD: Final = SecretClass(
    "assignment",
    ("pass", "pwd"),
    re.compile(
        rf"(?i:password|passwd|passphrase|(?<![A-Za-z])pass|(?<![A-Za-z])pwd)\b\\?[\"']?[ \t]{{0,20}}(?::=|=>|[:=：])[ \t]{{0,20}}"
        rf"(?:{_QUOTED}(?![/~.*]){_WORTH}|(?![/~.*]){_WORTH}{_BARE}(?=[A-Za-z]{{0,40}}[0-9!#%&*?@^])){_NO_WORD}{_SHORT_VALUE}"
    ),
    folded=True,
)
_FLAG: Final = SecretClass(
    "assignment",
    ("--",),
    re.compile(
        r"--(?:[a-z]{1,20}-){0,3}(?:(?:api|access|secret|auth)-key|token|secret|password|passwd|passphrase)"
        rf"[ \t]{{1,8}}[\"']?(?!-){_WORTH}{_VALUE}"
    ),
)
# A name and a password for curl or wget, and the password that the clients of databases take glued to its letter.
_USER: Final = SecretClass(
    "assignment",
    (" -u", " --user", " --proxy-user"),
    re.compile(
        r" (?:-u[ \t]{0,4}|--(?:proxy-)?user[ \t=]{1,4})[\"']?[^\s:\"'`/$<]{1,100}:"
        rf"(?![/\\]|[0-9]{{1,6}}(?:\s|$)){_WORTH}([^\s\"'`]{{3,}})"
    ),
)
_GLUED: Final = SecretClass(
    "assignment",
    ("mysql", "mariadb", "sshpass"),
    re.compile(
        r"(?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump|sshpass)(?:[ \t]{1,4}[^\s|;&]{1,80}){0,12}?"
        rf"[ \t]{{1,4}}-p[\"']?{_WORTH}([^\s\"'`|;&]{{3,}})"
    ),
)
_SAYS: Final = r"[ \t]{0,8}(?:[:=：]|是|为|為)[ \t]{0,8}[\"'“『「]?+"
_SAID: Final = SecretClass(
    "assignment",
    ("密码", "密碼", "密钥", "密鑰", "口令", "令牌"),
    re.compile(rf"(?:密码|密碼|密钥|密鑰|口令|令牌){_SAYS}{_WORTH}{_BARE}{_VALUE}"),
)
_SAID_PASSWORD: Final = SecretClass(
    "assignment",
    ("密码", "密碼", "口令"),
    re.compile(rf"(?:密码|密碼|口令){_SAYS}{_WORTH}{_BARE}([!#-&(-\[\]-_a-~]{{4,}})"),
)
# A password may hold the sign that ends it: the last one before the path counts.
_URL: Final = SecretClass(
    "url_password", ("://",), re.compile(r"://[^\s:/@\"'`<>]{0,100}:(?!\[REDACTED:)([^\s/\"'`<>]{3,200})@(?=[A-Za-z0-9\[])")
)

CLASSES: Final[tuple[SecretClass, ...]] = (
    _alone("bearer", "bearer", r"(?i:Bearer)[ \t]{1,8}([A-Za-z0-9._~+/-]{16,}=*)", folded=True),
    _alone("basic", "authorization", r"(?i:Authorization[\"']?:[ \t]{0,8}[\"']?Basic)[ \t]{1,8}([A-Za-z0-9+/]{8,}={0,2})", folded=True),
    _alone(
        "token",
        "authorization",
        r"(?i:Authorization[\"']?:[ \t]{0,8}[\"']?(?:Token|ApiKey))[ \t]{1,8}([A-Za-z0-9._~+/=:-]{8,})",
        folded=True,
    ),
    _alone("anthropic", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{16,}"),
    _alone("openrouter", "sk-or-", r"sk-or-[A-Za-z0-9_-]{16,}"),
    _alone("openai", "sk-", r"sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{16,}|[A-Za-z0-9]{20,})"),
    _alone("stripe", "sk_live_ rk_live_ pk_live_ sk_test_ rk_test_ pk_test_", r"[srp]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _alone("stripe", "whsec_", r"whsec_[A-Za-z0-9+/]{24,}={0,2}", run=False),
    _alone("aws", "AKIA ASIA ABIA ACCA", r"A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
    _alone("github", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{20,}"),
    _alone("github", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,}"),
    _alone("gitlab", "glpat- gldt- glrt- glcbt- glptt-", r"gl(?:pat|dt|rt|cbt|ptt)-[A-Za-z0-9_-]{20,}"),
    _alone("slack", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _alone("slack", "xapp-", r"xapp-[0-9]-[A-Za-z0-9-]{20,}"),
    _alone("slack", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/_-]{20,})", run=False),
    _alone("google", "AIza", rf"AIza[A-Za-z0-9_-]{{35}}{_END}"),
    _alone("google", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    _alone("google", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,}"),
    _alone("jwt", "eyJ", r"(?<![_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}", run=False),
    _alone("npm", "npm_", r"npm_[A-Za-z0-9]{36,}"),
    _alone("pypi", "pypi-", r"pypi-[A-Za-z0-9_-]{50,}"),
    _alone("huggingface", "hf_", r"hf_[A-Za-z0-9]{30,}"),
    _alone("azure", "AccountKey= SharedAccessKey=", r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{40,}={0,2})", run=False),
    SecretClass("azure", ("&sig=", "?sig="), re.compile(r"[?&]sig=([A-Za-z0-9%+/]{30,}={0,2})")),
    _alone("sendgrid", "SG.", r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}"),
    _alone("twilio", "SK", rf"SK[0-9a-f]{{32}}{_END}"),
    _alone("digitalocean", "dop_v1_ doo_v1_ dor_v1_", rf"do[opr]_v1_[0-9a-f]{{64}}{_END}"),
    _alone("docker", "dckr_", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}"),
    _alone("databricks", "dapi", rf"dapi[0-9a-f]{{32}}(?:-[0-9])?{_END}"),
    _alone("shopify", "shpat_ shpca_ shppa_ shpss_", rf"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{{32}}{_END}"),
    SecretClass("telegram", (":AA",), re.compile(rf"(?<=[0-9]{{8}}):(AA[A-Za-z0-9_-]{{33}}){_END}"), run=True),
    _alone("discord", "discord", r"discord(?:app)?\.com/api/webhooks/[0-9]{6,20}/([A-Za-z0-9_-]{40,})", run=False),
    _alone("groq", "gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    _alone("xai", "xai-", r"xai-[A-Za-z0-9]{40,}"),
    _alone("replicate", "r8_", r"r8_[A-Za-z0-9]{30,}"),
    _alone("notion", "ntn_ secret_", r"(?:ntn|secret)_[A-Za-z0-9]{40,}"),
    _alone("linear", "lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{30,}"),
    _alone("vault", "hvs. hvb.", r"hv[sb]\.[A-Za-z0-9_-]{24,}"),
    _alone("atlassian", "ATATT3", r"ATATT3[A-Za-z0-9_=-]{40,}", run=False),
    _alone("age", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    _URL,
    _ASSIGNED,
    _PASSWORD,
    _FLAG,
    _USER,
    _GLUED,
    _SAID,
    _SAID_PASSWORD,
)
