"""Classes of secrets that a vendor's prefix or a fixed form names, wherever they stand."""

from collections.abc import Callable
from typing import Final

from palimpsest.core.items import Value
from palimpsest.core.redaction.values import is_generated, is_placeholder, is_private_key


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
