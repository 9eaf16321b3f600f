"""Finds secrets in texts that leave the log, class by class, and replaces them."""

import re
from collections.abc import Iterator
from typing import AnyStr, Final

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


_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_REDACT_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# A key whose end was cut off: what looks like its lines.
_LINES: Final = re.compile(r"(?:(?:\s|\\[nr]){0,4}[A-Za-z0-9+/=]{40,})+(?:(?:\s|\\[nr]){0,4}[A-Za-z0-9+/]{0,78}={0,2}(?=\s*(?:$|\n)))?")
_LONGEST_KEY: Final = 20_000
# The starts of each class as bytes; none where one is not ASCII.
_STARTS: Final = tuple(
    (each, tuple(start.encode() for start in each.starts) if all(start.isascii() for start in each.starts) else ()) for each in CLASSES
)
# One look for the starts of all classes whose secrets are long words: most texts have none of them.
_ANY_RUN: Final = re.compile(b"|".join(re.escape(start) for each, starts in _STARTS if each.run for start in starts))
# The same for the others, in small letters; only short texts are worth this look, for long ones have some of them.
_ANY_OTHER: Final = re.compile(b"|".join(re.escape(start.lower()) for each, starts in _STARTS if not each.run for start in starts))
_SHORT: Final = 4096
_WORD: Final = bytes(ord("a") if chr(byte) in WORD else ord(" ") for byte in range(256))
_LONG: Final = b"a" * LONG
_BEFORE: Final = 8


class Secret(Value, frozen=True):
    """A secret in a text: its class, where it starts and where it ends."""

    kind: str
    start: int
    end: int


def find_secrets(text: str) -> tuple[Secret, ...]:
    """All secrets in order; where two overlap they are one, of the class that is looked for first."""
    # One byte for each character, so that every place stays where it was; bytes are searched fast, and fold ASCII letters only.
    plain = text.encode("ascii", "replace")
    folded, words = plain.lower(), _long_words(plain)
    words = words if _ANY_RUN.search(words) else b""
    # The dashes before a private key are a start too.
    if not words and len(text) <= _SHORT and text.isascii() and not _ANY_OTHER.search(folded):
        return ()
    found = [(start, end, -1, "private_key") for start, end in _private_keys(text)]
    for rank, (secret_class, starts) in enumerate(_STARTS):
        if not starts:
            if not any(start[0] in text for start in secret_class.starts):
                continue
            spans = _spans(secret_class, text, text, secret_class.starts)
        elif not secret_class.run or (words and any(start in words for start in starts)):
            spans = _spans(secret_class, text, folded if secret_class.folded else plain, starts)
        else:
            continue
        found += [(start, end, rank, secret_class.kind) for start, end in spans]
    return tuple(_merged(sorted(found)))


def _long_words(plain: bytes) -> bytes:
    """All long words with a little of what stands before them: most secrets can only be there, and that is little of a text."""
    marked = plain.translate(_WORD)
    # The same ids and paths occur again and again.
    words: set[bytes] = set()
    start = marked.find(_LONG)
    while start >= 0:
        end = marked.find(b" ", start + len(_LONG))
        if end < 0:
            end = len(marked)
        words.add(plain[max(0, start - _BEFORE) : end])
        start = marked.find(_LONG, end)
    return b" ".join(words)


def _spans(secret_class: SecretClass, text: str, searched: AnyStr, starts: tuple[AnyStr, ...]) -> Iterator[tuple[int, int]]:
    pattern = secret_class.pattern
    group = min(1, pattern.groups)
    for opening in starts:
        place = searched.find(opening)
        while place >= 0:
            match = pattern.match(text, place)
            if match:
                yield match.span(group)
            place = searched.find(opening, match.end() if match else place + 1)


def redact(text: str) -> str:
    """The text with each secret replaced by `[REDACTED:<class>]`; redacting again changes nothing."""
    while found := find_secrets(text):
        # What stood beside a secret may be one itself once that is gone, so look again; each time fewer letters are left.
        parts: list[str] = []
        place = 0
        for secret in found:
            parts += [text[place : secret.start], f"[REDACTED:{secret.kind}]"]
            place = secret.end
        text = "".join((*parts, text[place:]))
    return text


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
    begin = _BEGIN.search(text) if "-----BEGIN " in text else None
    while begin:
        after = _BEGIN.search(text, begin.end())
        stop = min(begin.end() + _LONGEST_KEY, after.start() if after else len(text))
        rest = _REDACT_END.search(text, begin.end(), stop) or _LINES.match(text, begin.end(), stop)
        if rest:
            yield begin.start(), rest.end()
        begin = after


def _merged(found: list[tuple[int, int, int, str]]) -> Iterator[Secret]:
    """Overlapping finds as one, from the first start to the last end."""
    if not found:
        return
    start, end, rank, kind = found[0]
    for other_start, other_end, other_rank, other_kind in found[1:]:
        if other_start >= end:
            yield Secret(kind, start, end)
            start, end, rank, kind = other_start, other_end, other_rank, other_kind
        else:
            end = max(end, other_end)
            if other_rank < rank:
                rank, kind = other_rank, other_kind
    yield Secret(kind, start, end)
