"""Finds and redacts secrets in texts, by known prefixes and forms, by their place, and by whether a value looks generated."""

import base64
import binascii
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache
from typing import AnyStr, Final

from palimpsest.core.items import Value
from palimpsest.core.text import lazy_pattern

# Characters that are judged; a longer value is judged by its beginning, so that the work for a place in a text is bounded.
MOST_JUDGED: Final = 256
_GENERATED_LENGTH: Final = 16
_CHOSEN_LENGTH: Final = 8
# Longer texts are not typed by people.
_CHOSEN_MOST: Final = 64
_FEWEST_DISTINCT: Final = 8
# Switches between kinds of characters per character: about .45 in random letters and digits, .30 in Base32, below .15 in names.
_GENERATED_SWITCHES: Final = 0.18
_PATH_SWITCHES: Final = 0.3

_LOWER: Final = lazy_pattern(r"[a-z]")
_UPPER: Final = lazy_pattern(r"[A-Z]")
_VALUE_DIGITS: Final = lazy_pattern(r"[0-9]+")
_SYMBOL: Final = lazy_pattern(r"[!#$%&*+=?@^~|(){}<>]")
# A capital after a capital or after a separator begins no new kind: names are written like that.
_SWITCH: Final = lazy_pattern(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[0-9]|(?<=[0-9])[A-Za-z]")
_FILLER: Final = lazy_pattern(r"(.)\1{4}|[xX]{4}|\.{3}|…|\*{3}")
_FILLERS: Final = ("example", "your", "placeholder", "changeme", "replace", "dummy", "insert", "redacted")
# $NAME, ${NAME}, $(command), <your token>, [REDACTED:class], {{ token }}, {token}, %s, %(name)s: the secret stands elsewhere.
_REFERENCE: Final = lazy_pattern(r"\$[A-Za-z_{(]|<|\[|\{|%[sdv(]|@\{|!\w|\*\w|&\w+\.")
_NAME: Final = r"[A-Za-z_$][A-Za-z0-9_]{0,60}"
# A call, subscript, generic type or path of names, as code has them without quotes.
_CODE: Final = lazy_pattern(rf"&?{_NAME}(?:(?:\??\.|::|->|!\.){_NAME}){{0,8}}[?!*&]{{0,2}}(?:[(\[{{]|<[A-Za-z]|$)")
_ONE_NUMBER: Final = lazy_pattern(r"[A-Za-z_]+[0-9]{1,4}[A-Za-z_]*$")
_UUID: Final = lazy_pattern(r"[0-9A-Za-z]{7,8}(?:-[0-9A-Za-z]{4}){3}-[0-9A-Za-z]{12}")
_PATH: Final = lazy_pattern(r"[~.]{0,2}/|[A-Za-z]:\\|[a-z][a-z0-9+.-]{1,12}://|[a-z]{2,6}:[a-z]")


def is_placeholder(value: str) -> bool:
    """Return whether a value stands for a secret that is elsewhere: a reference, a redaction, or a filler such as `xxxxx`."""
    small = value[:MOST_JUDGED].lower()
    return (
        _REFERENCE.match(value) is not None
        or any(filler in small for filler in _FILLERS)
        or _FILLER.search(value[:MOST_JUDGED]) is not None
    )


def is_generated(value: str, least: int = _GENERATED_LENGTH) -> bool:
    """Return whether a value of at least `least` characters changes between letters and digits as often as random text does."""
    value = value[:MOST_JUDGED]
    # The cheapest test first: this runs for every value next to the name of a key.
    if len(value) < least or len(_SWITCH.findall(value)) < _GENERATED_SWITCHES * (len(value) - 1):
        return False
    if len(set(value)) < _FEWEST_DISTINCT or not _VALUE_DIGITS.search(value) or is_placeholder(value):
        return False
    return not _PATH.match(value) or len(_SWITCH.findall(value)) >= _PATH_SWITCHES * (len(value) - 1)


def is_chosen(value: str, least: int = _CHOSEN_LENGTH) -> bool:
    """Return whether a value looks like a password of a person: digits mixed with two of small letters, capitals and symbols.

    Two numbers among letters are enough too (`hunter2hunter2`); separators (`-`, `_`, `.`) do not count, because names have them.
    """
    if not least <= len(value) <= _CHOSEN_MOST:
        return False
    numbers = len(_VALUE_DIGITS.findall(value))
    kinds = sum(1 for kind in (_LOWER, _UPPER, _SYMBOL) if kind.search(value)) + (numbers > 0)
    if not numbers or not (kinds >= 3 or (kinds == 2 and numbers > 1 and value.isalnum())):
        return False
    return not is_placeholder(value) and not _PATH.match(value)


def is_code(value: str) -> bool:
    """Return whether an unquoted value is a name, type, path of names, subscript or call of a programming language."""
    if not _CODE.match(value):
        return False
    # Generated passwords of letters and digits have the form of names; two numbers in one are rare among names.
    return not (value.isalnum() and len(_VALUE_DIGITS.findall(value)) > 1)


def has_one_number(value: str) -> bool:
    """Return whether a value is letters with one number among them, as in `Uint8Array` and `OAuth2Token`."""
    return _ONE_NUMBER.match(value) is not None


def is_uuid(value: str) -> bool:
    """Return whether a value is a UUID: random, but far more often an id than a secret."""
    return _UUID.fullmatch(value) is not None


def is_login(value: str, *, alone: bool = False) -> bool:
    """Return whether a value is `user:password` in Base64; `alone` allows an empty user or password."""
    try:
        user, colon, password = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return False
    whole = bool(user or password) if alone else bool(user and password)
    return bool(colon) and whole and (user + password).isprintable()


def is_private_key(value: str) -> bool:
    """Return whether a value is a private key in PEM form in Base64."""
    try:
        return b"PRIVATE KEY-----" in base64.b64decode(value[:80])
    except binascii.Error:
        return False


class SecretCandidate(Value, frozen=True):
    """What a pattern matched: the value, the line before the match (at most 200 characters), the name beside the value and its quote."""

    value: str
    before: str = ""
    name: str = ""
    quote: str = ""


Judge = Callable[[SecretCandidate], bool]


def no_placeholder(candidate: SecretCandidate) -> bool:
    """Return whether the value is not a placeholder."""
    return not is_placeholder(candidate.value)


def generated(candidate: SecretCandidate) -> bool:
    """Return whether the value looks generated."""
    return is_generated(candidate.value)


class SecretClass(Value, frozen=True):
    """A class of secrets. Its pattern is tried only where one of the `starts` occurs, and its judge decides on what matched.

    The secret is the group `value`, or else the whole match; the groups `name` and `quote` are for the judge. Patterns repeat a bounded
    number of times, so that the work at each place is bounded. `rest` continues a value that was accepted, up to its end, and the
    characters of `lead` that stand before it (at most 64) belong to it. With `folded` the starts are compared case-insensitively
    (ASCII). With `run` a secret contains at least 15 word characters in a row, and its start begins within that run or at most nine
    characters before it. A class is `certain` if its form alone proves a secret.
    """

    kind: str
    starts: tuple[str, ...]
    pattern: str
    judge: Judge = no_placeholder
    rest: str = ""
    lead: str = ""
    folded: bool = False
    run: bool = False
    certain: bool = True


# The beginning of the patterns of tokens, which stand where letters and digits begin.
NOT_INSIDE: Final = "(?<![A-Za-z0-9])"


def _token(kind: str, starts: str, pattern: str, *, run: bool = True, judge: Judge = no_placeholder, rest: str = "") -> SecretClass:
    """Return a class of tokens that are not preceded by a letter or digit."""
    return SecretClass(kind, tuple(starts.split()), NOT_INSIDE + pattern, judge, rest, run=run)


_END: Final = r"(?![A-Za-z0-9_-])"
_URL_LETTERS: Final = r"[A-Za-z0-9_-]*"
_HEX: Final = "0123456789abcdef"
_ALPHANUMERIC: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_UUID_FORM: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_BASE64: Final = r"[A-Za-z0-9+/]*={0,2}"


def _prefixed(kind: str, prefixes: str, least: int, letters: str = "A-Za-z0-9_-", judge: Judge = no_placeholder) -> SecretClass:
    """Return a class of tokens that have one of the prefixes and then at least `least` of the letters."""
    starts = "|".join(prefix.replace(".", r"\.") for prefix in prefixes.split())
    # The shortest prefixes need not be in the run of word characters, but the letters are.
    return _token(kind, prefixes, rf"(?:{starts})[{letters}]{{{least},255}}", rest=f"[{letters}]*", judge=judge)


def _any_value(_: SecretCandidate) -> bool:
    """Every value is a secret: its form has repetitions of its own, which look like a filler."""
    return True


_PREFIXED: Final = (
    _prefixed("anthropic", "sk-ant-", 16),
    _prefixed("openrouter", "sk-or-", 16),
    _prefixed("openai", "sk-proj- sk-svcacct- sk-admin-", 16),
    _prefixed("openai", "sk-", 20, "A-Za-z0-9"),
    _prefixed("stripe", "sk_live_ rk_live_ pk_live_ sk_test_ rk_test_ pk_test_", 16, "A-Za-z0-9"),
    _prefixed("github", "ghp_ gho_ ghu_ ghs_ ghr_", 20, "A-Za-z0-9"),
    _prefixed("github", "github_pat_", 22, "A-Za-z0-9_"),
    _prefixed("gitlab", "glpat- gldt- glrt- glcbt- glptt- gloas- glft- glsoat- glimt- glagent-", 20, "A-Za-z0-9_.-"),
    _prefixed("slack", "xoxe.xoxp- xoxe.xoxb-", 20, "A-Za-z0-9-"),
    _prefixed("slack", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxc- xoxd- xapp-", 20, "A-Za-z0-9-"),
    _prefixed("google", "GOCSPX-", 20),
    _prefixed("google", "ya29.", 20, "A-Za-z0-9_.-"),
    _prefixed("npm", "npm_", 36, "A-Za-z0-9"),
    _prefixed("pypi", "pypi-", 50),
    _prefixed("huggingface", "hf_ api_org_", 30, "A-Za-z0-9"),
    _prefixed("docker", "dckr_pat_ dckr_oat_", 20),
    _prefixed("groq", "gsk_", 40, "A-Za-z0-9"),
    _prefixed("xai", "xai-", 40, "A-Za-z0-9"),
    _prefixed("perplexity", "pplx-", 40, "A-Za-z0-9"),
    _prefixed("replicate", "r8_", 30, "A-Za-z0-9"),
    _prefixed("notion", "ntn_ secret_", 40, "A-Za-z0-9"),
    _prefixed("linear", "lin_api_ lin_oauth_", 30, "A-Za-z0-9"),
    _prefixed("vault", "hvs. hvr.", 24),
    _prefixed("vault", "hvb.", 90, judge=_any_value),
    _prefixed("atlassian", "ATATT3 ATCTT3 ATBB", 24, "A-Za-z0-9_=-"),
    _prefixed("age", "AGE-SECRET-KEY-1", 50, "0-9A-Z"),
    _prefixed("figma", "figd_ figu_ figo_", 30),
    _prefixed("grafana", "glsa_", 36, "A-Za-z0-9_"),
    _prefixed("grafana", "glc_eyJ", 30, "A-Za-z0-9+/="),
    _prefixed("sentry", "sntrys_ sntryu_ sntrya_", 40, "A-Za-z0-9_+/="),
    _prefixed("newrelic", "NRAK- NRII- NRJS-", 19, "A-Za-z0-9_-"),
    _prefixed("postman", "PMAK-", 50, "a-f0-9-"),
    _prefixed("sonar", "sqp_ squ_ sqa_", 40, "a-f0-9"),
    _prefixed("square", "sq0atp- sq0csp- sq0idp-", 22),
    _prefixed("brevo", "xkeysib- xsmtpsib-", 64, "A-Za-z0-9-"),
    _prefixed("pulumi", "pul-", 40, "a-f0-9"),
    _prefixed("doppler", "dp.st. dp.pt. dp.ct. dp.sa. dp.scim. dp.audit.", 36, "A-Za-z0-9_.-"),
    _prefixed("circleci", "CCIPAT_ CCIPRJ_", 40, "A-Za-z0-9_"),
    _prefixed("rubygems", "rubygems_", 40, "a-f0-9"),
    _prefixed("planetscale", "pscale_tkn_ pscale_oauth_ pscale_pw_", 32, "A-Za-z0-9_.=-"),
    _prefixed("paddle", "pdl_live_ pdl_sdbx_", 40, "A-Za-z0-9_"),
    _prefixed("buildkite", "bkua_ bkct_", 40, "a-f0-9"),
    _prefixed("heroku", "HRKU-", 36),
    _prefixed("fly", "fm2_ fm1r_ fm1a_ fo1_", 40, "A-Za-z0-9+/=_,-"),
    _prefixed("launchdarkly", "api-", 36, "a-f0-9-"),
    _prefixed("easypost", "EZAK EZTK", 50, "A-Za-z0-9"),
    _prefixed("tailscale", "tskey-", 20),
    _prefixed("netlify", "nfp_", 36, "A-Za-z0-9"),
    _prefixed("render", "rnd_", 28, "A-Za-z0-9"),
    _prefixed("fireworks", "fw_", 22, "A-Za-z0-9"),
    _prefixed("supabase", "sbp_ sb_secret_", 30, "A-Za-z0-9_-"),
    _prefixed("resend", "re_", 24, "A-Za-z0-9_", generated),
    _prefixed("nvidia", "nvapi-", 50),
    _prefixed("flutterwave", "FLWSECK-", 32, "A-Za-z0-9-"),
    _prefixed("mapbox", "sk.eyJ", 40, "A-Za-z0-9_.-"),
    _prefixed("dynatrace", "dt0c01. dt0s16.", 40, "A-Z0-9."),
    _prefixed("wakatime", "waka_", 36, "a-f0-9-"),
    _prefixed("artifactory", "AKCp", 60, "A-Za-z0-9"),
    _prefixed("alibaba", "LTAI", 16, "A-Za-z0-9"),
    _prefixed("tencent", "AKID", 32, "A-Za-z0-9"),
    _prefixed("aws", "ABSK", 100, "A-Za-z0-9+/="),
    _prefixed("aws", "bedrock-api-key-", 60, "A-Za-z0-9+/="),
    _prefixed("cerebras", "csk-", 40, "A-Za-z0-9"),
    _prefixed("langfuse", "sk-lf-", 36, "a-f0-9-"),
    _prefixed("pinecone", "pcsk_", 40, "A-Za-z0-9_"),
    _prefixed("tavily", "tvly-", 28, "A-Za-z0-9-"),
    _prefixed("runpod", "rpa_", 40, "A-Za-z0-9"),
    _prefixed("sourcegraph", "sgp_", 40, "A-Za-z0-9_"),
    _prefixed("honeycomb", "hcaik_ hcbik_ hcxik_ hcaic_", 50, "a-z0-9"),
    _prefixed("posthog", "phx_ phs_", 40, "A-Za-z0-9"),
    _prefixed("statsig", "secret-", 40, "A-Za-z0-9", generated),
    _prefixed("cloudflare", "cfut_ cfat_ cfk_", 40, "A-Za-z0-9"),
    _prefixed("vercel", "vck_ vcp_ vca_ vcr_ vci_", 24, "A-Za-z0-9"),
    _prefixed("contentful", "CFPAT-", 40),
    _prefixed("shippo", "shippo_live_ shippo_test_", 40, "a-f0-9"),
    _prefixed("typeform", "tfp_", 40, "A-Za-z0-9_.-"),
    _prefixed("readme", "rdme_", 60, "a-z0-9"),
    _prefixed("prefect", "pnu_ pnb_", 36, "A-Za-z0-9"),
    _prefixed("dbt", "dbtu_ dbts_ dbtc_", 36),
    _prefixed("dropbox", "sl.u. sl.A sl.B", 100, judge=generated),
    _prefixed("artifactory", "cmVmdGtuOjAxO", 40, "A-Za-z0-9"),
    _prefixed("mailersend", "mlsn.", 60, "a-f0-9"),
    _prefixed("openai", "sess-", 40, "A-Za-z0-9", generated),
)

VENDOR_CLASSES: Final[tuple[SecretClass, ...]] = (
    *_PREFIXED,
    _token("stripe", "whsec_", r"whsec_[A-Za-z0-9+/]{24,255}={0,2}"),
    _token("aws", "AKIA ASIA ABIA ACCA", r"A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
    _token("slack", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<value>[A-Za-z0-9/_-]{20,120})", run=False),
    _token("google", "AIza", rf"AIza[A-Za-z0-9_-]{{35}}{_END}"),
    _token("google", "1//0", r"1//0[A-Za-z0-9_-]{40,255}", judge=generated, rest=_URL_LETTERS),
    _token("jwt", "eyJ", r"(?<![_-])eyJ[A-Za-z0-9_-]{8,4000}+\.[A-Za-z0-9_-]{8,4000}+\.[A-Za-z0-9_-]{8,255}", run=False, rest=_URL_LETTERS),
    _token("sendgrid", "SG.", r"SG\.[A-Za-z0-9_-]{16,64}+\.[A-Za-z0-9_-]{16,64}"),
    _token("twilio", "SK", rf"SK[0-9a-f]{{32}}{_END}"),
    _token("mailgun", "key-", rf"key-[0-9a-f]{{32}}{_END}"),
    _token("digitalocean", "dop_v1_ doo_v1_ dor_v1_", rf"do[opr]_v1_[0-9a-f]{{64}}{_END}"),
    _token("databricks", "dapi", rf"dapi[0-9a-f]{{32}}(?:-[0-9])?{_END}"),
    _token("shopify", "shpat_ shpca_ shppa_ shpss_", rf"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{{32}}{_END}"),
    _token("discord", "discord", r"discord(?:app)?\.com/api/webhooks/[0-9]{6,20}/(?P<value>[A-Za-z0-9_-]{40,100})", run=False),
    _token("discord", "MT Mj Mz ND NT Nj Nz OD OT", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}", judge=generated),
    _token("airtable", "pat", rf"pat[A-Za-z0-9]{{14}}\.[0-9a-f]{{64}}{_END}"),
    SecretClass("mailchimp", ("-us",), rf"(?<=[0-9a-f]{{32}})-us[0-9]{{1,2}}{_END}", lead=_HEX, run=True),
    SecretClass("telegram", (":AA",), rf"(?<=[0-9]{{8}}):AA[A-Za-z0-9_-]{{33}}{_END}", lead="0123456789", run=True),
    SecretClass("azure", ("Q~",), r"(?<=[A-Za-z0-9_.~-]{3}[0-9])Q~[A-Za-z0-9_.~-]{31,34}", lead=_ALPHANUMERIC + "_.~-"),
    SecretClass("terraform", ("atlasv1.",), r"(?<=[A-Za-z0-9]{14}\.)atlasv1\.[A-Za-z0-9_=-]{60,80}", lead=_ALPHANUMERIC + ".", run=True),
    SecretClass("newrelic", ("NRAL",), rf"(?<=[0-9a-f]{{36}})NRAL{_END}", lead=_HEX, run=True),
    # A sign may stand anywhere in it, so that no run of word characters need be long.
    SecretClass("fly", ("FlyV1 fm",), r"FlyV1 fm[12][ra]?_[A-Za-z0-9+/=_,-]{40,255}", rest=r"[A-Za-z0-9+/=_,-]*"),
    _token("square", "EAAA", rf"EAAA[A-Za-z0-9_-]{{60}}{_END}", judge=generated),
    _token("crates", "cio", rf"cio[A-Za-z0-9]{{32}}{_END}", judge=generated),
    _token("voyage", "pa-", rf"pa-[A-Za-z0-9_-]{{43}}{_END}", judge=generated),
    _token("firecrawl", "fc-", rf"fc-[0-9a-f]{{32}}{_END}"),
    _token("nuget", "oy2", rf"oy2[a-z0-9]{{43}}{_END}"),
    _token("launchdarkly", "sdk-", rf"sdk-{_UUID_FORM}{_END}"),
    _token("hubspot", "pat-", rf"pat-[a-z]{{2}}[0-9]-{_UUID_FORM}{_END}"),
    _token("clickup", "pk_", rf"pk_[0-9]{{5,10}}_[A-Z0-9]{{32}}{_END}"),
    _token("asana", "1/ 2/", rf"[12]/[0-9]{{13,19}}(?:/[0-9]{{13,19}})?:[0-9a-f]{{32}}{_END}"),
    _token("salesforce", "00D", r"00D[A-Za-z0-9]{12,15}![A-Za-z0-9._]{60,255}", judge=generated, rest=r"[A-Za-z0-9._]*"),
    _token("okta", "SSWS ", r"SSWS[ ]{1,4}(?P<value>00[A-Za-z0-9_-]{38,42})", run=False),
    _token("cloudflare", "v1.0-", rf"v1\.0-[0-9a-f]{{24}}-[0-9a-f]{{100,200}}{_END}"),
    _token("teams", "webhook.office.com/", r"webhook\.office\.com/webhookb2/(?P<value>[A-Za-z0-9@/-]{80,250})", run=False),
    SecretClass("azure", ("AZDO",), rf"(?<=[A-Za-z0-9]{{76}})AZDO[A-Za-z0-9]{{4}}{_END}", lead=_ALPHANUMERIC, run=True),
    # The first bytes of a key of OpenSSH, `openssh-key-v1`, in Base64: also where the line before it is cut off.
    _token(
        "private_key",
        "b3BlbnNzaC1rZXktdjE",
        r"b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/]{12,255}",
        judge=_any_value,
        rest=r"[A-Za-z0-9+/]*(?:(?:\s|\\[nr]){1,4}[A-Za-z0-9+/]{30,78})*(?:(?:\s|\\[nr]){1,4}[A-Za-z0-9+/]{1,78}={1,2})?",
    ),
    # `{"auths`, the first key of Docker's configuration, in Base64.
    _token("docker", "eyJhdXRocyI", r"eyJhdXRocyI[A-Za-z0-9+/]{20,255}={0,2}", rest=_BASE64),
    SecretClass(
        "private_key",
        ("LS0tLS1CRUdJTi",),
        r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{40,255}",
        lambda candidate: is_private_key(candidate.value),
        _BASE64,
    ),
)


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


WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
LONG: Final = 15
# Where two classes find the same place, the first one names it: a vendor's prefix says more than the name of a key.
CLASSES: Final[tuple[SecretClass, ...]] = (*VENDOR_CLASSES, *PLACE_CLASSES)
# Classes whose form alone proves a secret; the others are guesses by the place.
CERTAIN_KINDS: Final = frozenset(each.kind for each in CLASSES if each.certain) | {"private_key"}
_END_OF_BARE: Final = ".,:)]}"
_MOST_LEAD: Final = 80
_MOST_BEFORE: Final = 200

_KEY_BEGIN: Final = lazy_pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END: Final = lazy_pattern(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# Matches the lines of a key whose end marker is missing.
_LINES: Final = lazy_pattern(r"(?:(?:\s|\\[nr]){0,4}[A-Za-z0-9+/=]{40,})+(?:(?:\s|\\[nr]){0,4}[A-Za-z0-9+/]{0,78}={0,2}(?=\s*(?:$|\n)))?")
_KEY_LINE: Final = lazy_pattern(r"[A-Za-z0-9+/]{40}")
_LONGEST_KEY: Final = 20_000
# A line of a key whose beginning is cut off, and the lines of a key of PuTTY behind their number.
_BODY_LINE: Final = lazy_pattern(r"[A-Za-z0-9+/]{40,78}")
_LAST_LINE: Final = lazy_pattern(r"[A-Za-z0-9+/]{1,78}={0,2}")
_PUTTY_LINES: Final = lazy_pattern(r"Private-Lines: [0-9]{1,3}(?:\s|\\[nr]){1,4}((?:[A-Za-z0-9+/]{1,76}={0,2}(?:\s|\\[nr]){0,4}){1,200})")
# The starts of each class as bytes; empty if one is not ASCII.
_STARTS: Final = tuple(
    (secret_class, tuple(start.encode() for start in secret_class.starts) if all(map(str.isascii, secret_class.starts)) else ())
    for secret_class in CLASSES
)
# One search for the starts of the classes without `run`, in lower case; used only for short texts, because long ones usually contain some.
_ANY_OTHER: Final = lazy_pattern(
    b"cookie| -b |" + b"|".join(re.escape(start.lower()) for each, starts in _STARTS if not each.run for start in starts)
)
# Options of commands, whose starts are the slowest to search for: one search finds all places of them. The cookies of `curl -b` count too.
_OPTION_HEAD: Final = 3
_OPTION: Final = re.compile(rb" -[a-z-] ?")
_OPTIONS: Final = tuple(
    (rank, start, secret_class.folded)
    for rank, (secret_class, starts) in enumerate(_STARTS)
    for start in starts
    if _OPTION.fullmatch(start)
)
_ANY_OPTION: Final = lazy_pattern(
    b" -[" + b"".join(sorted({start[2:3] for start in (COOKIE_OPTION, *(start for _, start, _ in _OPTIONS))})) + b"]"
)
# The other starts without `run`, each with the rank of its class, and those that are not ASCII.
_OTHERS: Final = tuple(
    (rank, start, secret_class.folded)
    for rank, (secret_class, starts) in enumerate(_STARTS)
    for start in (() if secret_class.run else starts)
    if not _OPTION.fullmatch(start)
)
_FOREIGN: Final = tuple((rank, start) for rank, (each, starts) in enumerate(_STARTS) if not starts for start in each.starts)
_FOREIGN_LETTERS: Final = frozenset(word[0] for _, word in _FOREIGN)
# Compiled with their first use: most processes need none of them.
_compiled: Final = cache(re.compile)
_SHORT: Final = 4096
_DIGITS: Final = b"0123456789"
_HEXADECIMAL: Final = b"0123456789abcdef-"
# Starts of classes with `run` that are hexadecimal themselves.
_HEXADECIMAL_STARTS: Final = tuple(
    start for each, starts in _STARTS if each.run for start in starts if not start.translate(None, _HEXADECIMAL) and b"-" in start
)
_BEFORE_HEXADECIMAL: Final = (b"", b".", b"/")
_WORD: Final = bytes(ord("a") if chr(byte) in WORD else ord(" ") for byte in range(256))
_SEPARATED: Final = bytes(byte if chr(byte).isalnum() and byte < 128 else ord(" ") for byte in range(256))
_LONG: Final = b"a" * LONG
_BEFORE: Final = 9
_HEAD: Final = 3


def _starts_by_head() -> dict[bytes, list[tuple[int, bytes]]]:
    """Return the starts of the classes with `run` and their ranks, by the first letters and digits of the start, at most three.

    Those that may follow a letter or digit are under the empty head.
    """
    by_head: dict[bytes, list[tuple[int, bytes]]] = {}
    for rank, (secret_class, starts) in enumerate(_STARTS):
        for start in starts if secret_class.run else ():
            separate = secret_class.pattern.startswith(NOT_INSIDE) or not start[:1].isalnum()
            head = start.translate(_SEPARATED).split()[0][:_HEAD] if separate else b""
            by_head.setdefault(head, []).append((rank, start))
    return by_head


_BY_HEAD: Final = _starts_by_head()


class Secret(Value, frozen=True):
    """A secret in a text: its class, and its start and end index."""

    kind: str
    start: int
    end: int


def find_secrets(text: str) -> tuple[Secret, ...]:
    """Return all secrets in order; overlapping ones are merged, with the class that comes first in `CLASSES`."""
    # One byte per character, so that indexes stay valid; searching bytes is fast, and `lower` changes only ASCII letters.
    plain = text.encode("ascii", "replace")
    folded, run_starts = plain.lower(), _run_starts(_long_words(plain))
    # The dashes before a private key are in `_ANY_OTHER` too.
    if not run_starts and len(text) <= _SHORT and text.isascii() and not _ANY_OTHER.search(folded):
        return ()
    options: dict[bytes, list[int]] = {}
    for option in _ANY_OPTION.finditer(folded):
        options.setdefault(option[0], []).append(option.start())
    found = [(start, end, -1, "private_key") for start, end in _private_keys(text, plain)]
    found += [
        (start, end, len(CLASSES), "cookie") for start, end in find_cookies(text, folded, options.get(COOKIE_OPTION[:_OPTION_HEAD], ()))
    ]
    # The texts are searched here and not in a function, because most starts are in none.
    for rank, start, is_folded in _OTHERS:
        searched = folded if is_folded else plain
        if (place := searched.find(start)) >= 0:
            found += _spans(rank, text, searched, start, place)
    for rank, start, is_folded in _OPTIONS if options else ():
        searched = folded if is_folded else plain
        for place in options.get(start[:_OPTION_HEAD], ()):
            if searched.startswith(start, place):
                found += _spans(rank, text, searched, start, place, stop=place + len(start))
    for rank, starts in run_starts.items():
        for start in starts:
            found += _spans(rank, text, plain, start, plain.find(start))
    # One letter is found much faster than two.
    is_foreign = not text.isascii() and any(letter in text for letter in _FOREIGN_LETTERS)
    for rank, word in _FOREIGN if is_foreign else ():
        found += _spans(rank, text, text, word, text.find(word))
    return tuple(_merged(sorted(found)))


def _run_starts(words: bytes) -> dict[int, list[bytes]]:
    """Return the starts of classes with `run` that occur in the words, by the rank of their class."""
    # A start stands where letters and digits begin, so one pass over what begins there replaces a search for each start.
    heads = {part[:_HEAD] for part in words.translate(_SEPARATED).split()}
    heads |= {head[:2] for head in heads} | {b""}
    found: dict[int, list[bytes]] = {}
    for head in heads & _BY_HEAD.keys():
        for rank, start in _BY_HEAD[head]:
            if start in words:
                found.setdefault(rank, []).append(start)
    return found


def _long_words(plain: bytes) -> bytes:
    """Return all long words with the characters before them, joined: most secrets can only be there, and that is a small part of a text."""
    marked = plain.translate(_WORD)
    # A set, because the same ids and paths occur again and again.
    words: set[bytes] = set()
    start = marked.find(_LONG)
    while start >= 0:
        end = marked.find(b" ", start + LONG)
        if end < 0:
            end = len(marked)
        if plain[start:end].translate(None, _HEXADECIMAL):
            word = plain[max(0, start - _BEFORE) : end]
            # Names in small letters are most long words of a text, and no token is written like that.
            if not word.islower() or word.translate(None, _DIGITS) != word:
                words.add(word)
        elif plain[start - 1 : start] in _BEFORE_HEXADECIMAL or plain.startswith(_HEXADECIMAL_STARTS, start):
            # Digests and UUIDs are left out, because few starts begin in them; one before them ends with a dot or a slash.
            words.add(plain[max(0, start - _BEFORE) : end])
        start = marked.find(_LONG, end)
    return b" ".join(words)


def _spans(
    rank: int, text: str, searched: AnyStr, start: AnyStr, place: int, *, stop: int | None = None
) -> Iterator[tuple[int, int, int, str]]:
    """Yield the secrets of the class of this rank that begin with a start, which stands first at `place`; nowhere if that is -1.

    Starts end before `stop`.
    """
    secret_class = CLASSES[rank]
    pattern = _compiled(secret_class.pattern)
    while place >= 0:
        match = pattern.match(text, place)
        span: tuple[int, int] | None = _accepted(secret_class, match) if match else None
        if span:
            yield span[0], span[1], rank, secret_class.kind
        place = searched.find(start, span[1] if span else place + 1, stop)


def _accepted(secret_class: SecretClass, match: re.Match[str]) -> tuple[int, int] | None:
    """Return the span of the secret in a match; none if the judge of the class takes it for something else."""
    groups, text = match.groupdict(), match.string
    group = next((name for name in ("value", "bare") if groups.get(name)), 0)
    start, end = match.span(group)
    while secret_class.lead and start > match.start() - _MOST_LEAD and start and text[start - 1] in secret_class.lead:
        start -= 1
    if group == "bare":
        end = start + len(match["bare"].rstrip(_END_OF_BARE))
    before = text[max(0, match.start() - _MOST_BEFORE) : match.start()].rpartition("\n")[2]
    if not secret_class.judge(SecretCandidate(text[start:end], before, groups.get("name") or "", groups.get("quote") or "")):
        return None
    rest = _compiled(secret_class.rest).match(text, end) if secret_class.rest and end == match.end() else None
    return start, rest.end() if rest else end


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


def _private_keys(text: str, plain: bytes) -> Iterator[tuple[int, int]]:
    for putty in _PUTTY_LINES.finditer(text) if b"Private-Lines: " in plain else ():
        lines = putty[1].partition("Private-MAC")[0].rstrip()
        yield putty.start(1), putty.start(1) + len(lines)
    if b"PRIVATE KEY" not in plain:
        return
    begin = _KEY_BEGIN.search(text)
    while begin:
        after = _KEY_BEGIN.search(text, begin.end())
        stop = min(begin.end() + _LONGEST_KEY, after.start() if after else len(text))
        rest = _KEY_END.search(text, begin.end(), stop) or _LINES.match(text, begin.end(), stop)
        # A form without a key, as documents show it, is no secret.
        if rest and _KEY_LINE.search(text, begin.end(), rest.end()):
            yield begin.start(), rest.end()
        begin = after
    yield from _cut_keys(text)


def _cut_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the lines before an end marker, which stand alone where the beginning of a key was cut off."""
    for end in _KEY_END.finditer(text):
        start = place = end.start()
        # Upwards, line by line: the last line of a key may be short, the others are full.
        while place > end.start() - _LONGEST_KEY and place > 0:
            above = text.rfind("\n", 0, place - 1) + 1
            line = text[above : place - 1].strip()
            if not (_BODY_LINE.fullmatch(line) or (start == end.start() and _LAST_LINE.fullmatch(line))):
                break
            start = place = above
        if _KEY_LINE.search(text, start, end.start()):
            yield start, end.end()


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
