"""Finds and redacts secrets in texts, by classes of patterns, and holds credentials so that no text contains them."""

import re
from collections.abc import Iterator
from functools import cache
from typing import AnyStr, Final, NoReturn

from palimpsest.core.items import Value
from palimpsest.core.tokens.patterns import lazy_pattern

WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
LONG: Final = 15


class Credential:
    """A text that its representations do not contain; only `reveal` returns it. Equal if the texts are equal."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, to send it and for nothing else."""
        return self._text

    def __repr__(self) -> str:
        return "Credential(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Credential) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> NoReturn:
        # A pickle would contain the text.
        raise TypeError("a credential is not serialised")


class SecretClass(Value, frozen=True):
    """A class of secrets. Its pattern is tried only where one of the `starts` occurs; the secret is group 1, or else the whole match.

    Patterns run in linear time: their repetitions are bounded, or nothing that could fail follows them. With `folded` the starts are
    compared case-insensitively (ASCII). With `run` a secret contains at least `LONG` word characters in a row, and its start begins
    within that run or at most eight characters before it.
    """

    kind: str
    starts: tuple[str, ...]
    pattern: str
    folded: bool = False
    run: bool = False


def _token(kind: str, starts: str, pattern: str, *, folded: bool = False, run: bool = True) -> SecretClass:
    """Return a class of tokens that are not preceded by a letter or digit."""
    return SecretClass(kind, tuple(starts.split()), rf"(?<![A-Za-z0-9]){pattern}", folded, run and not folded)


_END: Final = r"(?![A-Za-z0-9_-])"
_KEY_WORDS: Final = ("api", "access", "private", "secret", "account", "encryption", "auth")
_BEFORE_KEY: Final = "|".join(rf"(?<={word})|(?<={word}[_-])" for word in _KEY_WORDS)
# References to a secret ($NAME, <your token>, {{token}}) and redacted secrets are not matched.
_NOT_REFERENCE: Final = r"(?!\$[A-Z_{(]|<|\{\{|\[REDACTED:)"
# Unquoted code that obtains a secret is not matched: a call, subscript or generic type (config.get(…), environ[…], Promise<…>), or a
# dotted name (config.db.password).
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]{0,60}"
_BARE: Final = (
    rf"(?!{_NAME}(?:(?:\??\.|::|->){_NAME}){{0,8}}!?(?:[(\[]|<[A-Za-z]))"
    rf"(?!{_NAME}(?:(?:\??\.|::|->){_NAME}){{1,8}}!?[,;)}}\]]{{0,4}}(?:[\s\"'`\\]|$))"
)
# An escaped quote ends a value.
_LETTER: Final = r"(?:[^\s\"'`\\]|\\(?![\"']))"
_VALUE: Final = rf"({_LETTER}{{8,}})"
# Passwords may be short, but type names and keywords are not passwords.
_NOT_KEYWORD: Final = (
    r"(?!(?:str|string|bool|boolean|int|integer|number|bytes|text|none|null|nil|undefined|true|false|self|this|optional|required|any|"
    r"object|unknown|never|void|hidden|empty|missing|wrong|invalid|incorrect|redacted|password|passwd|pass|pwd|secret|prompt|input)\b)"
)
_SHORT_VALUE: Final = rf"({_LETTER}{{4,}})"
_IS: Final = r"\\?[\"']?[ \t]{0,20}(?::=|=>|[:=：])\s{0,20}"
_QUOTED: Final = r"\\?[\"']"

_CHINESE_IS: Final = r"[ \t]{0,8}(?:[:=：]|是|为|為)[ \t]{0,8}[\"'“『「]?+"


def _assignment(starts: tuple[str, ...], pattern: str, *, folded: bool = False) -> SecretClass:
    return SecretClass("assignment", starts, pattern, folded)


CLASSES: Final[tuple[SecretClass, ...]] = (
    _token("bearer", "bearer", r"(?i:Bearer)[ \t]{1,8}([A-Za-z0-9._~+/-]{16,}=*)", folded=True),
    _token("basic", "authorization", r"(?i:Authorization[\"']?:[ \t]{0,8}[\"']?Basic)[ \t]{1,8}([A-Za-z0-9+/]{8,}={0,2})", folded=True),
    _token(
        "token",
        "authorization",
        r"(?i:Authorization[\"']?:[ \t]{0,8}[\"']?(?:Token|ApiKey))[ \t]{1,8}([A-Za-z0-9._~+/=:-]{8,})",
        folded=True,
    ),
    _token("anthropic", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{16,}"),
    _token("openrouter", "sk-or-", r"sk-or-[A-Za-z0-9_-]{16,}"),
    _token("openai", "sk-", r"sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{16,}|[A-Za-z0-9]{20,})"),
    _token("stripe", "sk_live_ rk_live_ pk_live_ sk_test_ rk_test_ pk_test_", r"[srp]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _token("stripe", "whsec_", r"whsec_[A-Za-z0-9+/]{24,}={0,2}", run=False),
    _token("aws", "AKIA ASIA ABIA ACCA", r"A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
    _token("github", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{20,}"),
    _token("github", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,}"),
    _token("gitlab", "glpat- gldt- glrt- glcbt- glptt-", r"gl(?:pat|dt|rt|cbt|ptt)-[A-Za-z0-9_-]{20,}"),
    _token("slack", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _token("slack", "xapp-", r"xapp-[0-9]-[A-Za-z0-9-]{20,}"),
    _token("slack", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/_-]{20,})", run=False),
    _token("google", "AIza", rf"AIza[A-Za-z0-9_-]{{35}}{_END}"),
    _token("google", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    _token("google", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,}"),
    _token("jwt", "eyJ", r"(?<![_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}", run=False),
    _token("npm", "npm_", r"npm_[A-Za-z0-9]{36,}"),
    _token("pypi", "pypi-", r"pypi-[A-Za-z0-9_-]{50,}"),
    _token("huggingface", "hf_", r"hf_[A-Za-z0-9]{30,}"),
    _token("azure", "AccountKey= SharedAccessKey=", r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{40,}={0,2})", run=False),
    SecretClass("azure", ("&sig=", "?sig="), r"[?&]sig=([A-Za-z0-9%+/]{30,}={0,2})"),
    _token("sendgrid", "SG.", r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}"),
    _token("twilio", "SK", rf"SK[0-9a-f]{{32}}{_END}"),
    _token("digitalocean", "dop_v1_ doo_v1_ dor_v1_", rf"do[opr]_v1_[0-9a-f]{{64}}{_END}"),
    _token("docker", "dckr_", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}"),
    _token("databricks", "dapi", rf"dapi[0-9a-f]{{32}}(?:-[0-9])?{_END}"),
    _token("shopify", "shpat_ shpca_ shppa_ shpss_", rf"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{{32}}{_END}"),
    SecretClass("telegram", (":AA",), rf"(?<=[0-9]{{8}}):(AA[A-Za-z0-9_-]{{33}}){_END}", run=True),
    _token("discord", "discord", r"discord(?:app)?\.com/api/webhooks/[0-9]{6,20}/([A-Za-z0-9_-]{40,})", run=False),
    _token("groq", "gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    _token("xai", "xai-", r"xai-[A-Za-z0-9]{40,}"),
    _token("replicate", "r8_", r"r8_[A-Za-z0-9]{30,}"),
    _token("notion", "ntn_ secret_", r"(?:ntn|secret)_[A-Za-z0-9]{40,}"),
    _token("linear", "lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{30,}"),
    _token("vault", "hvs. hvb.", r"hv[sb]\.[A-Za-z0-9_-]{24,}"),
    _token("atlassian", "ATATT3", r"ATATT3[A-Za-z0-9_=-]{40,}", run=False),
    _token("age", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    # A password may contain `@`: the last one before the path ends it.
    SecretClass("url_password", ("://",), r"://[^\s:/@\"'`<>]{0,100}:(?!\[REDACTED:)([^\s/\"'`<>]{3,200})@(?=[A-Za-z0-9\[])"),
    _assignment(
        ("key", "token", "secret", "pass", "credential"),
        rf"(?i:(?:{_BEFORE_KEY})key|token|secret|password|passwd|passphrase|credentials?)\b"
        rf"{_IS}(?:{_QUOTED}{_NOT_REFERENCE}|{_NOT_REFERENCE}{_BARE}){_VALUE}",
        folded=True,
    ),
    # A password and a value of at least four characters on the same line; an unquoted value must contain a digit or symbol.
    _assignment(
        ("pass", "pwd"),
        rf"(?i:password|passwd|passphrase|(?<![A-Za-z])pass|(?<![A-Za-z])pwd)\b\\?[\"']?[ \t]{{0,20}}(?::=|=>|[:=：])[ \t]{{0,20}}"
        rf"(?:{_QUOTED}(?![/~.*]){_NOT_REFERENCE}|(?![/~.*]){_NOT_REFERENCE}{_BARE}(?=[A-Za-z]{{0,40}}[0-9!#%&*?@^])){_NOT_KEYWORD}{_SHORT_VALUE}",
        folded=True,
    ),
    _assignment(
        ("--",),
        r"--(?:[a-z]{1,20}-){0,3}(?:(?:api|access|secret|auth)-key|token|secret|password|passwd|passphrase)"
        rf"[ \t]{{1,8}}[\"']?(?!-){_NOT_REFERENCE}{_VALUE}",
    ),
    # `user:password` of curl and wget, and passwords that database clients take directly after `-p`.
    _assignment(
        (" -u", " --user", " --proxy-user"),
        r" (?:-u[ \t]{0,4}|--(?:proxy-)?user[ \t=]{1,4})[\"']?[^\s:\"'`/$<]{1,100}:"
        rf"(?![/\\]|[0-9]{{1,6}}(?:\s|$)){_NOT_REFERENCE}([^\s\"'`]{{3,}})",
    ),
    _assignment(
        ("mysql", "mariadb", "sshpass"),
        r"(?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump|sshpass)(?:[ \t]{1,4}[^\s|;&]{1,80}){0,12}?"
        rf"[ \t]{{1,4}}-p[\"']?{_NOT_REFERENCE}([^\s\"'`|;&]{{3,}})",
    ),
    _assignment(
        ("密码", "密碼", "密钥", "密鑰", "口令", "令牌"),
        rf"(?:密码|密碼|密钥|密鑰|口令|令牌){_CHINESE_IS}{_NOT_REFERENCE}{_BARE}{_VALUE}",
    ),
    _assignment(("密码", "密碼", "口令"), rf"(?:密码|密碼|口令){_CHINESE_IS}{_NOT_REFERENCE}{_BARE}([!#-&(-\[\]-_a-~]{{4,}})"),
)


_KEY_BEGIN: Final = lazy_pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END: Final = lazy_pattern(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# Matches the lines of a key whose end marker is missing.
_LINES: Final = lazy_pattern(r"(?:(?:\s|\\[nr]){0,4}[A-Za-z0-9+/=]{40,})+(?:(?:\s|\\[nr]){0,4}[A-Za-z0-9+/]{0,78}={0,2}(?=\s*(?:$|\n)))?")
_LONGEST_KEY: Final = 20_000
# The starts of each class as bytes; empty if one is not ASCII.
_STARTS: Final = tuple(
    (secret_class, tuple(start.encode() for start in secret_class.starts) if all(map(str.isascii, secret_class.starts)) else ())
    for secret_class in CLASSES
)
# One search for the starts of all classes with `run`: most texts have none of them.
_ANY_RUN: Final = lazy_pattern(b"|".join(re.escape(start) for each, starts in _STARTS if each.run for start in starts))
# The same for the other classes, in lower case; used only for short texts, because long ones usually contain some.
_ANY_OTHER: Final = lazy_pattern(b"|".join(re.escape(start.lower()) for each, starts in _STARTS if not each.run for start in starts))
# Compiled with their first use: most processes need none of them.
_compiled: Final = cache(re.compile)
_SHORT: Final = 4096
_WORD: Final = bytes(ord("a") if chr(byte) in WORD else ord(" ") for byte in range(256))
_LONG: Final = b"a" * LONG
_BEFORE: Final = 8


class Secret(Value, frozen=True):
    """A secret in a text: its class, and its start and end index."""

    kind: str
    start: int
    end: int


def find_secrets(text: str) -> tuple[Secret, ...]:
    """Return all secrets in order; overlapping ones are merged, with the class that comes first in `CLASSES`."""
    # One byte per character, so that indexes stay valid; searching bytes is fast, and `lower` changes only ASCII letters.
    plain = text.encode("ascii", "replace")
    folded, words = plain.lower(), _long_words(plain)
    words = words if _ANY_RUN.search(words) else b""
    # The dashes before a private key are in `_ANY_OTHER` too.
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
    """Return all long words with the characters before them, joined: most secrets can only be there, and that is a small part of a text."""
    marked = plain.translate(_WORD)
    # A set, because the same ids and paths occur again and again.
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
    pattern = _compiled(secret_class.pattern)
    group = min(1, pattern.groups)
    for opening in starts:
        place = searched.find(opening)
        while place >= 0:
            match = pattern.match(text, place)
            if match:
                yield match.span(group)
            place = searched.find(opening, match.end() if match else place + 1)


def redact(text: str) -> str:
    """Return the text with each secret replaced by `[REDACTED:<class>]`; redacting again changes nothing."""
    while found := find_secrets(text):
        # Without a secret, the text beside it may match another class, so search again until nothing is found.
        parts: list[str] = []
        place = 0
        for secret in found:
            parts += [text[place : secret.start], f"[REDACTED:{secret.kind}]"]
            place = secret.end
        text = "".join((*parts, text[place:]))
    return text


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
    begin = _KEY_BEGIN.search(text) if "-----BEGIN " in text else None
    while begin:
        after = _KEY_BEGIN.search(text, begin.end())
        stop = min(begin.end() + _LONGEST_KEY, after.start() if after else len(text))
        rest = _KEY_END.search(text, begin.end(), stop) or _LINES.match(text, begin.end(), stop)
        if rest:
            yield begin.start(), rest.end()
        begin = after


def _merged(found: list[tuple[int, int, int, str]]) -> Iterator[Secret]:
    """Yield the findings with overlapping ones merged."""
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
