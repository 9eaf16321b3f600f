"""Classes of secrets that their place names: headers, cookies, URLs, options of commands, and values next to the name of a key."""

from collections.abc import Generator, Iterable, Iterator
from typing import Final

from palimpsest.core.redaction.classes import Judge, SecretCandidate, SecretClass, generated, no_placeholder
from palimpsest.core.redaction.values import has_one_number, is_chosen, is_code, is_generated, is_login, is_placeholder, is_uuid
from palimpsest.core.tokens.patterns import lazy_pattern

# A quoted value ends before any quote, escaped or not, an unquoted one also before what ends it in URLs, JSON, XML and connection strings.
_QUOTE: Final = r"(?P<quote>\\{0,3}[\"'`])"
_QUOTED_LETTER: Final = r"(?:[^\s\"'`\\]|\\(?![\"'`nrt\\]))"
_BARE_LETTER: Final = r"(?:[^\s\"'`\\<>;,&|=]|&(?![a-z_0-9]{1,30}=)|\\(?![\"'`nrt\\]))"
_CLOSED: Final = r"(?=\\{0,3}[\"'`]|$)"
_REST: Final = r"[^\s\"'`\\<>;,&|]*"

_SHORTEST_KEY, _SHORTEST_TOKEN, _SHORTEST_PASSWORD = 20, 16, 8
# Characters of a name before its last word that are looked at.
_LONGEST_NAME: Final = 24
# Words that end the name of a secret, and words that make a secret of the `key` after them. A `key` alone, as most are, is none.
_LAST_WORD: Final = (
    r"(?:token|secret|password|passwd|passphrase|passcode|pass|pwd|credentials?|key[-_]?(?:data|base)|"
    r"(?<=[A-Za-z_ .?&-])key(?:[ _]?[0-9]{1,2})?)"
)
_KEY_OF_SECRET: Final = lazy_pattern(
    r"(?i)(?:api|access|private|secret|account|encryption|auth|app|application|license|preshared|shared|signature|master|admin|"
    r"unseal|hmac|aes|jwt|client|session|webhook|server|deploy|write|root|storage|role)[_ .-]?$"
)
_VARIABLE_KEY: Final = lazy_pattern(r"(?<![a-z])[A-Z][A-Z0-9_]{0,20}_$")
# Keys and tokens that find, order or page through data, and resources of clouds (`arn:aws:…:secret:NAME`, `AWS::…::Secret`).
_NO_SECRET: Final = lazy_pattern(
    r"(?i)(?:public|publickey|cache|primary|foreign|partition|sort|idempotency|group|row|object|next|starting|"
    r"confirmation|product|continuation|page|lock|change|request|"
    r"update|sync|cancel|surrogate|websocket|action|verification|import|unit)[_ .-]?$|:$|::[A-Za-z]{0,22}$"
)
# A header such as `Fastly-Key`, and names of tokens that open an account: their UUIDs are secrets, while others are ids.
_HEADER: Final = lazy_pattern(r"(?:^|[\s\"'`])[A-Z][A-Za-z0-9]{0,20}(?:-[A-Z][A-Za-z0-9]{0,20}){0,4}-$")
_LETS_IN: Final = lazy_pattern(r"(?i)(?:auth|api|access|bearer|bot|refresh|server)[_-]?$")
_QUERY: Final = lazy_pattern(r"[?&]$")
# Variables in which a client of a server looks for the password, so that any word in them is one.
_CLIENT_VARIABLE: Final = lazy_pattern(r"(?:PGPASSWORD|MYSQL_PWD|SSHPASS|SQLCMDPASSWORD|RESTIC_PASSWORD|BORG_PASSPHRASE)$")
_PASSWORD: Final = lazy_pattern(r"(?i)pass|pwd")
# After the name: the end of a quoted name or subscript, then `:`, `=`, `=>`, `:=`, a type and `=`, `>` of XML, or the field `value`; or a
# space after `authToken`, since commands of npm and ngrok take the value as a word of its own.
_IS: Final = (
    r"\\{0,3}[\"'`]?\]{0,2}"
    r"(?:[ \t]{0,20}(?::[ \t]{0,4}[&A-Za-z][A-Za-z_.]{0,30}[ \t]{0,4}=(?![=>])|:=|=>|:(?!:)|=(?![=~])|：)[ \t]{0,20}"
    r"|(?<=[A-Za-z0-9])>|(?:(?<=authToken)|(?<=authtoken))[ \t]{1,4}(?=[A-Za-z0-9])"
    r"|[ \t]{1,4}(?:value=|\{\s{1,20}default[ \t]{0,4}=[ \t]{0,4})"
    r"|,?\s{1,40}(?:-[ \t])?\\{0,3}[\"']?value\\{0,3}[\"']?[ \t]{0,4}[:=][ \t]{0,4})"
    r"(?:base64:)?"
)
_VALUE: Final = (
    rf"(?:{_QUOTE}(?P<value>{_QUOTED_LETTER}{{6,256}}+)(?:{_CLOSED}|(?={_QUOTED_LETTER}))|(?P<bare>{_BARE_LETTER}{{6,256}}={{0,2}}))"
)
_CHINESE_NAMES: Final = ("密码", "密碼", "密钥", "密鑰", "口令", "令牌")
_CHINESE_IS: Final = r"[ \t]{0,8}(?:[:=：]|是|为|為)[ \t]{0,8}[\"'“『「]?+"


def _assigned(candidate: SecretCandidate) -> bool:
    """Return whether a value next to the name of a key looks like a secret, and the name is that of a secret."""
    # The value first: most values fail there, and that is the cheaper test.
    return _looks_assigned(candidate) and _names_secret(candidate.name, candidate.before[-_LONGEST_NAME:])


def _looks_assigned(candidate: SecretCandidate) -> bool:
    value, name = candidate.value, candidate.name.lower()
    key, variable = name.startswith("key"), candidate.name.isupper()
    if is_uuid(value):
        return name != "token" or variable or any(pattern.search(candidate.before[-_LONGEST_NAME:]) for pattern in (_LETS_IN, _HEADER))
    if is_generated(value, _SHORTEST_KEY if key else _SHORTEST_TOKEN):
        if "[" in value and is_code(value):
            return False
        return bool(candidate.quote) or not is_code(value) or len(value) > _SHORTEST_KEY
    if variable and not candidate.quote and _CLIENT_VARIABLE.search(candidate.before[-_LONGEST_NAME:] + candidate.name):
        return not is_placeholder(value)
    if variable and _PASSWORD.match(name) and len(value) >= _SHORTEST_PASSWORD and value.isalnum():
        # Variables of the environment hold values, while other names may be given the names of things.
        return not value.isalpha() and not is_placeholder(value)
    if not is_chosen(value, _SHORTEST_PASSWORD) or (not candidate.quote and set(value) & set("/(")):
        return False
    if has_one_number(value):
        return bool(candidate.quote) and _PASSWORD.match(name) is not None
    return bool(candidate.quote) or not is_code(value) or (variable and value.replace("_", "").isalnum())


def _names_secret(name: str, before: str) -> bool:
    if name.isupper() and _CLIENT_VARIABLE.search(before + name):
        return True
    if name.lower() in ("pass", "pwd"):
        # `bypass` and `compass` are no passwords.
        return not before[-1:].isalpha() or before[-1:].isupper() != name[0].isupper()
    if _NO_SECRET.search(before):
        return False
    if not name.lower().startswith("key") or name.lower().endswith("data"):
        return True
    return any(pattern.search(before) for pattern in (_KEY_OF_SECRET, _VARIABLE_KEY, _QUERY, _HEADER))


def _password(candidate: SecretCandidate) -> bool:
    """Return whether a value where only a password can stand is one: not a reference, and not a plain word."""
    value = candidate.value
    if is_placeholder(value) or len(value) < 4 or "://" in value:
        return False
    plain = value.strip("[]()*/").replace("_", "").replace("-", "")
    return (
        not plain.isalpha()
        and not plain.isdigit()
        and (plain.isalnum() or is_chosen(value, 6) or is_generated(value) or not is_code(value))
    )


def _option(candidate: SecretCandidate) -> bool:
    """Return whether the value of an option is a secret; tokens that are UUIDs make calls idempotent."""
    return _password(candidate) and not is_uuid(candidate.value) and not _NO_SECRET.search(candidate.name)


def _header(candidate: SecretCandidate) -> bool:
    """Return whether a value after a scheme of authorization is a token: words joined by signs are none unless they look generated."""
    value = candidate.value
    return is_generated(value) or is_chosen(value, 12) or (no_placeholder(candidate) and not set(value) & set("_-$"))


def _authorization(candidate: SecretCandidate) -> bool:
    if candidate.name.lower() == "basic":
        # A key may stand there as the user, with an empty password.
        return is_login(candidate.value, alone=True) or is_generated(candidate.value)
    return _header(candidate)


def _encoded_login(candidate: SecretCandidate) -> bool:
    """Return whether a value is `user:password` in Base64; the key `_auth` of npm may also have other tokens."""
    return is_login(candidate.value) or (candidate.name == "_" and is_generated(candidate.value))


def _in_url(candidate: SecretCandidate) -> bool:
    """Return whether the user part of a URL is a password after a colon, or a token alone."""
    # URLs cannot have these characters: the text is a pattern or a template of URLs.
    if set(candidate.value) & set("[]{}^\\*"):
        return False
    return _password(candidate) if candidate.name else is_generated(candidate.value, 20)


def _client_option(candidate: SecretCandidate) -> bool:
    """Return whether a value after `-p`, `-a` or `-u` of a command is a password, since most commands mean something else by it."""
    command = _CLIENT.search(candidate.before) if _password(candidate) else None
    if command and candidate.name[:1] in _OPTION_OF and not command[1].startswith(_OPTION_OF[candidate.name[:1]]):
        return False
    if not command:
        return False
    # After a space, clients of MySQL take the value for the name of a database.
    return candidate.name == "p" or not command[1].startswith(("mysql", "mariadb"))


def _place(kind: str, starts: str, pattern: str, judge: Judge, rest: str = "", *, folded: bool = False) -> SecretClass:
    return SecretClass(kind, tuple(starts.split("|")), pattern, judge, rest, folded=folded, certain=False)


_CLIENT: Final = lazy_pattern(
    r"(?<![\w-])(mysql|mysqldump|mysqladmin|mariadb|mariadb-dump|sshpass|docker login|podman login|mongo|mongosh|mongodump|mongorestore|"
    r"az login|redis-cli|htpasswd|ldapsearch|ldapmodify|ldapadd|ldapdelete|ldapwhoami|ldappasswd|sqlcmd|bcp|osql|smbclient)"
    r"(?![\w-])[^;&|\n]{0,200}$"
)
# The commands whose passwords follow `-w` and `-P`; others mean something else by these.
_OPTION_OF: Final = {"w": ("ldap",), "P": ("sqlcmd", "bcp", "osql")}
_SHELL_VALUE: Final = r"(?P<quote>[\"']?)(?P<value>[^\s\"'`|;]{4,256})"
_OPTION_NAMES: Final = r"(?:(?:api|access|secret|auth|account|private)-key|token|secret|password|passwd|passphrase|pass)"
_ORACLE_LOGIN: Final = r"[\"']?[A-Za-z0-9_$#.-]{1,60}/(?P<value>[^\s@\"'`/]{3,100})@"
_LOGIN: Final = r"[\"']?[^\s:\"'`/$<]{1,100}:(?![/\\]|[0-9]{1,6}(?:\s|$))"

PLACE_CLASSES: Final[tuple[SecretClass, ...]] = (
    _place(
        "bearer", "bearer", r"(?i:Bearer)[ \t]{1,8}(?P<value>[A-Za-z0-9._~+/-]{16,256}=*)", _header, r"[A-Za-z0-9._~+/-]*=*", folded=True
    ),
    _place(
        "authorization",
        "authorization",
        r"(?i:Authorization)\\{0,3}[\"']?[ \t]{0,4}[:=,][ \t]{0,8}\\{0,3}[\"'`]?(?P<name>(?i:Basic|Token|Api-?Key|Key))[ \t]{1,8}"
        r"(?P<value>[A-Za-z0-9._~+/=:-]{8,256})",
        _authorization,
        r"[A-Za-z0-9._~+/=:-]*",
        folded=True,
    ),
    _place(
        "netrc",
        "machine |default login",
        r"(?:machine[ \t]{1,4}[^\s\"']{1,200}|default)\s{1,40}login\s{1,8}[^\s\"']{1,200}\s{1,40}"
        r"password\s{1,8}(?P<value>[^\s\"'\\]{4,256})",
        _password,
    ),
    _place("pgpass", ":54", r":54[0-9]{2}:[^\s:]{1,60}:[^\s:]{1,60}:(?P<value>[^\s:\"'\\]{6,200})", _password),
    # A password may contain `@`: the last one before the path ends it.
    _place("url_password", "://", r"://(?P<name>[^\s:/@\"'`<>]{0,100}:)?(?P<value>[^\s/\"'`<>]{3,200})@(?=[A-Za-z0-9\[])", _in_url),
    _place(
        "signature",
        "sig=|signature=",
        r"(?<![A-Za-z0-9])(?i:X-Amz-)?(?i:sig(?:nature)?)=(?P<value>[A-Za-z0-9%+/]{30,256}={0,2})",
        generated,
        folded=True,
    ),
    _place(
        "docker",
        '"auth|_auth',
        r"(?P<name>[\"_])auth\\{0,3}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,3}[\"']?(?P<value>[A-Za-z0-9+/]{8,256}={0,2})",
        _encoded_login,
        r"[A-Za-z0-9+/]*={0,2}",
    ),
    _place(
        "assignment",
        "key|token|secret|pass|pwd|credential",
        rf"(?P<name>(?i:{_LAST_WORD}))(?![A-Za-z0-9_]){_IS}{_VALUE}",
        _assigned,
        _REST,
        folded=True,
    ),
    _place(
        "option",
        " --",
        rf" --(?:(?P<name>(?:[a-z]{{1,20}}-){{0,3}}){_OPTION_NAMES}[ \t]{{1,8}}(?!-)|(?:proxy-)?user[ \t=]{{1,4}}{_LOGIN}){_SHELL_VALUE}",
        _option,
    ),
    _place("option", " -u", rf" -u[ \t]{{0,4}}{_LOGIN}{_SHELL_VALUE}", _password),
    _place("option", " -p| -a | -w ", rf" -(?P<name>p|[pawP][ \t]{{1,4}}){_SHELL_VALUE}", _client_option, folded=True),
    _place("oracle", "oracle:", rf"oracle:(?:thin|oci8?):{_ORACLE_LOGIN}", _password),
    _place(
        "assignment",
        "|".join(_CHINESE_NAMES),
        rf"(?:{'|'.join(_CHINESE_NAMES)}){_CHINESE_IS}(?P<value>[!#-&(-\[\]-_a-~]{{4,256}})",
        _password,
    ),
)


COOKIE_OPTION: Final = b" -b "
_COOKIE_NAME: Final = b"cookie"
_COOKIE_HEADER: Final = lazy_pattern(
    r"(?i:cookie)\\{0,3}[\"']?(?:[ \t]{0,4}[:,][ \t]{0,4}|[ \t]{1,4})\\{0,3}[\"']?| -b[ \t]{1,4}\\{0,3}[\"']?"
)
_COOKIE: Final = lazy_pattern(r"[A-Za-z0-9_.%!#$&*+^-]{1,100}=([^\s;,\"'\\]{0,4096})(?:;[ \t]{0,4})?")


def find_cookies(text: str, folded: bytes, options: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the spans of generated values in the cookies of headers and of `curl -b`.

    `folded` is the text in small letters, as bytes, and `options` the indexes in it at which ` -b` stands.
    """
    end, place = 0, folded.find(_COOKIE_NAME)
    while place >= 0:
        end = yield from _cookies(text, place, place + len(_COOKIE_NAME))
        place = folded.find(_COOKIE_NAME, end)
    end = 0
    for place in options:
        if place >= end and folded.startswith(COOKIE_OPTION, place):
            end = yield from _cookies(text, place, place + len(COOKIE_OPTION))


def _cookies(text: str, place: int, end: int) -> Generator[tuple[int, int], None, int]:
    """Yield the spans of the header at a place, whose start ends at `end`, and return where the last cookie ends."""
    header = _COOKIE_HEADER.match(text, place)
    while header and (cookie := _COOKIE.match(text, max(end, header.end()))):
        end = cookie.end()
        if is_generated(cookie[1]):
            yield cookie.span(1)
    return end
