"""Classes of secrets that their place names: headers, cookies, URLs, options of commands, and values next to the name of a key."""

from collections.abc import Iterator
from typing import Final

from palimpsest.core.redaction.classes import Candidate, Judge, SecretClass, generated, no_placeholder
from palimpsest.core.redaction.values import has_one_number, is_chosen, is_code, is_generated, is_login, is_placeholder
from palimpsest.core.tokens.patterns import lazy_pattern

# A quoted value ends before any quote, escaped or not, an unquoted one also before what ends a value in URLs, JSON, XML and connection strings.
_QUOTE: Final = r"(?P<quote>\\{0,3}[\"'`])"
_QUOTED_LETTER: Final = r"(?:[^\s\"'`\\]|\\(?![\"'`nrt\\]))"
_BARE_LETTER: Final = r"(?:[^\s\"'`\\<>;,&|]|&(?![a-z_]{1,30}=)|\\(?![\"'`nrt\\]))"
_CLOSED: Final = r"(?=\\{0,3}[\"'`]|$)"
_END_OF_BARE: Final = ".,:)]}"

# Words that end the name of a secret, and words that make a secret of the `key` after them.
_SECRET_NAME: Final = r"(?:token|secret|password|passwd|passphrase|passcode|pass|pwd|credentials?|key(?:[ _]?[0-9]{1,2}|[-_]?data)?|auth)"
_KEY_OF_SECRET: Final = lazy_pattern(
    r"(?i)(?:api|access|private|secret|account|encryption|auth|app|application|license|preshared|shared|signing|signature|master|admin|"
    r"unseal|hmac|aes|jwt|client|session|webhook|server|deploy|write|root|storage|role)[_ .-]?$"
)
_VARIABLE_KEY: Final = lazy_pattern(r"(?<![A-Za-z0-9_])[A-Z][A-Z0-9_]{1,60}_$")
_PUBLIC_KEY: Final = lazy_pattern(r"(?i)(?:public|cache|primary|foreign|partition|sort|idempotency|group|row|object)[_ .-]?$")
_QUERY: Final = lazy_pattern(r"[?&]$")
_PASSWORD: Final = lazy_pattern(r"(?i)pass|pwd")
# After the name: the end of a quoted name or subscript, then `:`, `=`, `=>`, `:=`, a type and `=`, `>` of XML, or the field `value`.
_IS: Final = (
    r"\\{0,3}[\"'`]?\]{0,2}"
    r"(?:[ \t]{0,20}(?::[ \t]{0,4}[&A-Za-z][A-Za-z_.]{0,30}[ \t]{0,4}=(?![=>])|:=|=>|:(?!:)|=(?![=~])|：)[ \t]{0,20}"
    r"|(?<=[A-Za-z0-9])>|[ \t]{1,4}(?:value=|\{\s{1,20}default[ \t]{0,4}=[ \t]{0,4})|,?\s{1,40}(?:-[ \t])?\\{0,3}[\"']?value\\{0,3}[\"']?[ \t]{0,4}[:=][ \t]{0,4})"
    r"(?:base64:)?"
)
_VALUE: Final = rf"(?:{_QUOTE}(?P<value>{_QUOTED_LETTER}{{6,256}}+)(?:{_CLOSED}|(?={_QUOTED_LETTER}))|(?P<bare>{_BARE_LETTER}{{6,256}}))"
_CHINESE_NAMES: Final = ("密码", "密碼", "密钥", "密鑰", "口令", "令牌")
_CHINESE_IS: Final = r"[ \t]{0,8}(?:[:=：]|是|为|為)[ \t]{0,8}[\"'“『「]?+"


def _assigned(candidate: Candidate) -> bool:
    """Return whether a value next to the name of a key looks like a secret, under the form that the name asks for."""
    value, name = candidate.value, candidate.name.lower()
    if is_placeholder(value) or not _names_secret(name, candidate.before):
        return False
    if name == "auth":
        return bool(candidate.quote or candidate.before.endswith("_")) and (is_login(value) or (is_generated(value) and candidate.before.endswith("_")))
    if is_generated(value):
        return bool(candidate.quote) or not is_code(value) or len(value) > 20
    if name.startswith("key") or not is_chosen(value):
        return False
    if has_one_number(value):
        return bool(candidate.quote) and _PASSWORD.match(name) is not None
    return bool(candidate.quote) or not is_code(value)


def _names_secret(name: str, before: str) -> bool:
    if name == "pass" or name == "pwd" or name == "auth":
        # `bypass` and `compass` are no passwords.
        return not before[-1:].isalpha() or before[-1:].isupper() != name.isupper()
    if not name.startswith("key"):
        return True
    if _PUBLIC_KEY.search(before):
        return False
    return any(pattern.search(before) for pattern in (_KEY_OF_SECRET, _VARIABLE_KEY, _QUERY)) or name.endswith("data")


def _password(candidate: Candidate) -> bool:
    """Return whether a value where only a password can stand is one: not a reference, and not a plain word."""
    value = candidate.value
    if is_placeholder(value) or len(value) < 4:
        return False
    return is_generated(value) or is_chosen(value, 6) or not (value.isalpha() or value.isdigit() or is_code(value))


def _header(candidate: Candidate) -> bool:
    """Return whether a value after a scheme of authorization is a token: words joined by signs are none unless they look generated."""
    value = candidate.value
    return is_generated(value) or is_chosen(value, 12) or (no_placeholder(candidate) and not set(value) & set("_-$"))


def _encoded_login(candidate: Candidate) -> bool:
    return is_login(candidate.value) or is_generated(candidate.value)


def _place(kind: str, starts: str, pattern: str, judge: Judge, rest: str = "", *, folded: bool = False) -> SecretClass:
    return SecretClass(kind, tuple(starts.split("|")), pattern, judge, rest, folded=folded, certain=False)


_AUTHORIZATION: Final = r"(?i:Authorization)\\{0,3}[\"']?[ \t]{0,4}[:=,][ \t]{0,8}\\{0,3}[\"'`]?"
_SHELL_VALUE: Final = r"(?P<quote>[\"']?)(?P<value>[^\s\"'`|;]{4,256})"
_OPTION_NAMES: Final = r"(?:(?:api|access|secret|auth|account|private)-key|token|secret|password|passwd|passphrase|pass)"

PLACE_CLASSES: Final[tuple[SecretClass, ...]] = (
    _place("bearer", "bearer", r"(?i:Bearer)[ \t]{1,8}(?P<value>[A-Za-z0-9._~+/-]{16,256}=*)", _header, r"[A-Za-z0-9._~+/-]*=*", folded=True),
    _place("basic", "authorization", rf"{_AUTHORIZATION}(?i:Basic)[ \t]{{1,8}}(?P<value>[A-Za-z0-9+/]{{8,256}}={{0,2}})", _encoded_login, folded=True),
    _place(
        "token",
        "authorization",
        rf"{_AUTHORIZATION}(?i:Token|ApiKey|Key|Api-Key)[ \t]{{1,8}}(?P<value>[A-Za-z0-9._~+/=:-]{{8,256}})",
        _header,
        folded=True,
    ),
    _place(
        "netrc",
        "machine |default ",
        r"(?:machine[ \t]{1,4}[^\s\"']{1,200}|default)\s{1,40}login\s{1,8}[^\s\"']{1,200}\s{1,40}password\s{1,8}(?P<value>[^\s\"'\\]{4,256})",
        _password,
    ),
    # A password may contain `@`: the last one before the path ends it.
    _place("url_password", "://", r"://[^\s:/@\"'`<>]{0,100}:(?P<value>[^\s/\"'`<>]{3,200})@(?=[A-Za-z0-9\[])", _password),
    _place("url_token", "://", r"://(?P<value>[A-Za-z0-9_-]{20,200})@(?=[A-Za-z0-9\[])", generated),
    _place("azure", "AccountKey=|SharedAccessKey=", r"(?:AccountKey|SharedAccessKey)=(?P<value>[A-Za-z0-9+/]{40,256}={0,2})", generated),
    _place("signature", "&sig=|?sig=|Signature=", r"(?:[?&]sig|Signature)=(?P<value>[A-Za-z0-9%+/]{30,256}={0,2})", generated),
    _place("assignment", "key|token|secret|pass|pwd|credential|auth", rf"(?P<name>(?i:{_SECRET_NAME}))(?![A-Za-z0-9_]){_IS}{_VALUE}", _assigned, folded=True),
    _place("option", "--", rf"--(?:[a-z]{{1,20}}-){{0,3}}{_OPTION_NAMES}[ \t]{{1,8}}(?!-){_SHELL_VALUE}", _password),
    # `user:password` of curl and wget, and passwords that clients take after `-p`, `-a` and `pass:`.
    _place("option", " -u| --user| --proxy-user", rf" (?:-u[ \t]{{0,4}}|--(?:proxy-)?user[ \t=]{{1,4}})[\"']?[^\s:\"'`/$<]{{1,100}}:(?![/\\]|[0-9]{{1,6}}(?:\s|$)){_SHELL_VALUE}", _password),
    _place("option", "mysql|mariadb", rf"(?:mysql|mariadb)[a-z-]{{0,10}}(?:[ \t]{{1,4}}[^\s|;&]{{1,80}}){{0,12}}?[ \t]{{1,4}}-p{_SHELL_VALUE}", _password),
    _place(
        "option",
        "sshpass|docker login|podman login|mongo|az login|redis-cli|htpasswd",
        r"(?:sshpass|(?:docker|podman) login|mongo[a-z]{0,10}|az login|redis-cli|htpasswd)(?:[ \t]{1,4}[^\s|;&]{1,80}){0,12}?"
        rf"[ \t]{{1,4}}-[pab][ \t]{{0,4}}{_SHELL_VALUE}",
        _password,
    ),
    _place("option", " pass:|=pass:", rf"[ =]pass:{_SHELL_VALUE}", _password),
    _place("pgpass", ":54|:64", r":[56]4[0-9]{2}:[^\s:]{1,60}:[^\s:]{1,60}:(?P<value>[^\s:\"'\\]{6,200})", _password),
    _place("assignment", "|".join(_CHINESE_NAMES), rf"(?:{'|'.join(_CHINESE_NAMES)}){_CHINESE_IS}(?P<value>[!#-&(-\[\]-_a-~]{{6,256}})", _password),
)


_COOKIE_STARTS: Final = (b"cookie", b" -b ")
_COOKIE_HEADER: Final = lazy_pattern(r"(?i:cookie)\\{0,3}[\"']?(?:[ \t]{0,4}[:,][ \t]{0,4}|[ \t]{1,4})\\{0,3}[\"']?| -b[ \t]{1,4}\\{0,3}[\"']?")
_COOKIE: Final = lazy_pattern(r"[A-Za-z0-9_.%!#$&*+^-]{1,100}=([^\s;,\"'\\]{0,4096})(?:;[ \t]{0,4})?")


def find_cookies(text: str, folded: bytes) -> Iterator[tuple[int, int]]:
    """Yield the spans of generated values in the cookies of headers and of `curl -b`; `folded` is the text in small letters, one byte each."""
    for start in _COOKIE_STARTS:
        place = folded.find(start)
        while place >= 0:
            end = place + len(start)
            header = _COOKIE_HEADER.match(text, place)
            while header and (cookie := _COOKIE.match(text, header.end() if end < header.end() else end)):
                end = cookie.end()
                if is_generated(cookie[1]):
                    yield cookie.span(1)
            place = folded.find(start, end)
