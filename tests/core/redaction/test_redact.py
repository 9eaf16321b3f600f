"""Secrets are redacted, and nothing else."""

import base64
import hashlib
import itertools
import random
import re
import uuid

import pytest
from every_case import every_case
from hypothesis import example, given
from hypothesis import strategies as st
from secret_sets import current, planted

from palimpsest.core.secrets import CLASSES, Secret, SecretCandidate, find_secrets, redact

LETTERS = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8" * 4
HEX = "0123456789abcdef" * 4
KEY_LINES = "\n".join((LETTERS + LETTERS)[start : start + 64] for start in (0, 20, 40))
PEM = f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{KEY_LINES}\n-----END RSA PRIVATE KEY-----"

# Every invented secret is put together here, so that no scanner takes this file for a leak.
SECRETS = [
    ("private_key", PEM),
    ("private_key", "-----BEGIN OPENSSH " + f"PRIVATE KEY-----\n{KEY_LINES}"),
    ("anthropic", "sk-ant-" + "api03-" + LETTERS[:40] + "_x-AA"),
    ("openrouter", "sk-or-" + "v1-" + HEX),
    ("openai", "sk-" + "proj-" + LETTERS[:20] + "_-" + LETTERS[:20]),
    ("openai", "sk-" + LETTERS[:20]),
    ("stripe", "sk_" + "live_" + LETTERS[:24]),
    ("stripe", "whsec_" + LETTERS[:32]),
    ("aws", "AKIA" + "ABCDEFGH23456789"),
    ("github", "ghp_" + LETTERS[:36]),
    ("github", "ghs_" + LETTERS[:36]),
    ("github", "github_pat_" + LETTERS[:22] + "_" + LETTERS[:30]),
    ("gitlab", "glpat-" + LETTERS[:20]),
    ("slack", "xoxb-" + "123456789012-" + LETTERS[:24]),
    ("slack", "xapp-" + "1-A0123-" + LETTERS[:24]),
    ("google", "AIza" + LETTERS[:35]),
    ("google", "GOCSPX-" + LETTERS[:28]),
    ("google", "ya29." + LETTERS[:40]),
    ("jwt", "eyJ" + LETTERS[:17] + "." + LETTERS[:30] + "." + LETTERS[:43]),
    ("npm", "npm_" + LETTERS[:36]),
    ("pypi", "pypi-" + "AgEIcHlwaS5vcmc" + LETTERS[:60]),
    ("huggingface", "hf_" + LETTERS[:34]),
    ("sendgrid", "SG." + LETTERS[:22] + "." + LETTERS[:43]),
    ("twilio", "SK" + HEX[:32]),
    ("digitalocean", "dop_v1_" + HEX),
    ("docker", "dckr_" + "pat_" + LETTERS[:27]),
    ("databricks", "dapi" + HEX[:32]),
    ("shopify", "shpat_" + HEX[:32]),
    ("groq", "gsk_" + LETTERS[:52]),
    ("xai", "xai-" + LETTERS[:80]),
    ("replicate", "r8_" + LETTERS[:37]),
    ("notion", "ntn_" + LETTERS[:46]),
    ("linear", "lin_" + "api_" + LETTERS[:40]),
    ("vault", "hvs." + LETTERS[:30]),
    ("atlassian", "ATATT3" + LETTERS[:60]),
    ("age", "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2),
]
RARE = [
    ("doppler", "dp." + "pt." + LETTERS[:43]),
    ("easypost", "EZAK" + LETTERS[:54]),
    ("tailscale", "tskey-" + "auth-" + LETTERS[:30]),
    ("netlify", "nfp_" + LETTERS[:36]),
    ("render", "rnd_" + LETTERS[:28]),
    ("fireworks", "fw_" + LETTERS[:24]),
    ("supabase", "sbp_" + HEX[:40]),
    ("resend", "re_" + LETTERS[:8] + "_" + LETTERS[:24]),
    ("nvidia", "nvapi-" + LETTERS[:64]),
    ("flutterwave", "FLWSECK-" + HEX[:32] + "-X"),
    ("mapbox", "sk." + "eyJ" + LETTERS[:60]),
    ("dynatrace", "dt0c01." + "ABCDEFGH2345" * 4),
    ("wakatime", "waka_" + "0b6f3a52-9c1e-4f57-8d2b-6a7c1e9f0d34"),
    ("artifactory", "AKCp" + LETTERS[:69]),
    ("alibaba", "LTAI" + LETTERS[:20]),
    ("launchdarkly", "api-" + "0b6f3a52-9c1e-4f57-8d2b-6a7c1e9f0d34"),
    ("discord", "MT" + LETTERS[:22] + "." + LETTERS[:6] + "." + LETTERS[:38]),
]
IN_CONTEXT = [
    ("Authorization: Bearer " + LETTERS[:30], "Authorization: Bearer [REDACTED:bearer]"),
    ("Authorization: Basic " + "dXNlcjpodW50ZXIy", "Authorization: Basic [REDACTED:authorization]"),
    ("postgres://app:hunter2@db.example.com/x", "postgres://app:[REDACTED:url_password]@db.example.com/x"),
    ("redis://:hunter2hunter2@cache:6379", "redis://:[REDACTED:url_password]@cache:6379"),
    ("AccountName=a;AccountKey=" + LETTERS[:86] + "==;Suffix=b", "AccountName=a;AccountKey=[REDACTED:assignment];Suffix=b"),
    ("https://a.example.com/x?sv=1&sig=" + LETTERS[:40] + "&se=2", "https://a.example.com/x?sv=1&sig=[REDACTED:signature]&se=2"),
    ("https://hooks.slack.com/services/" + "T0/B0/" + LETTERS[:24], "https://hooks.slack.com/services/[REDACTED:slack]"),
    ("https://discord.com/api/webhooks/" + "123456789/" + LETTERS[:60], "https://discord.com/api/webhooks/123456789/[REDACTED:discord]"),
    ("bot 123456789:AA" + LETTERS[:33], "bot [REDACTED:telegram]"),
    ("MY_TOKEN=hunter2hunter2", "MY_TOKEN=[REDACTED:assignment]"),
    (f"export AWS_SECRET_ACCESS_KEY='wJalr/{LETTERS[:34]}'", "export AWS_SECRET_ACCESS_KEY='[REDACTED:assignment]'"),
    ('{"db_password": "hunter2hunter2", "port": 1}', '{"db_password": "[REDACTED:assignment]", "port": 1}'),
    (r'"{\"password\": \"hunter2hunter2\"}"', r'"{\"password\": \"[REDACTED:assignment]\"}"'),
    ("mysql --password hunter2hunter2 -h db", "mysql --password [REDACTED:option] -h db"),
    ("deploy --api-key hunter2hunter2", "deploy --api-key [REDACTED:option]"),
    ("数据库密码：hunter2hunter2", "数据库密码：[REDACTED:assignment]"),
    ("密码是 hunter2hunter2 请记住", "密码是 [REDACTED:assignment] 请记住"),
    ("Authorization: Token " + LETTERS[:16], "Authorization: Token [REDACTED:authorization]"),
    ("curl -u admin:sup3r https://x", "curl -u admin:[REDACTED:option] https://x"),
    ("curl --user 'admin:sup3r' https://x", "curl --user 'admin:[REDACTED:option]' https://x"),
    ("mysql -h db -u root -phunter2 app", "mysql -h db -u root -p[REDACTED:option] app"),
    ("DB_PASS=abcdefgh1234", "DB_PASS=[REDACTED:assignment]"),
    ("server=db;uid=sa;pwd=hunter2#Ab;", "server=db;uid=sa;pwd=[REDACTED:assignment];"),
    ("password: Hunter-2!x", "password: [REDACTED:assignment]"),
    ("password = 'Open-sesame-7'", "password = '[REDACTED:assignment]'"),
    ('"password": "a(B)c-12"', '"password": "[REDACTED:assignment]"'),
    ("密碼: abc123", "密碼: [REDACTED:assignment]"),
    ("密码为『abc1』", "密码为『[REDACTED:assignment]』"),
    ("密钥：hunter2hunter2", "密钥：[REDACTED:assignment]"),
    ("postgres://u:p@ss@word@host/db", "postgres://u:[REDACTED:url_password]@host/db"),
    ("token=" + "ghp_" + LETTERS[:36], "token=[REDACTED:github]"),
    ("Cookie: theme=dark; sid=" + LETTERS[:24] + "; lang=en", "Cookie: theme=dark; sid=[REDACTED:cookie]; lang=en"),
    ("machine api.acme.io login jo password hunter2#Ab", "machine api.acme.io login jo password [REDACTED:netrc]"),
    ("db01:5432:orders:app:hunter2#Ab", "db01:5432:orders:app:[REDACTED:pgpass]"),
    ("sshpass -p hunter2#Ab ssh root@h", "sshpass -p [REDACTED:option] ssh root@h"),
    ('{"auth": "' + base64.b64encode(b"jo:hunter2").decode() + '"}', '{"auth": "[REDACTED:docker]"}'),
    ("- name: DB_PASSWORD\n  value: hunter2#Ab", "- name: DB_PASSWORD\n  value: [REDACTED:assignment]"),
    ("<password>hunter2#Ab</password>", "<password>[REDACTED:assignment]</password>"),
]


@every_case(("kind", "secret"), SECRETS)
def test_every_class_is_found_and_only_the_secret_is_replaced(kind: str, secret: str) -> None:
    text = f"use {secret} for now"
    assert find_secrets(text) == (Secret(kind, 4, 4 + len(secret)),)
    assert redact(text) == f"use [REDACTED:{kind}] for now"


@every_case(("text", "expected"), IN_CONTEXT)
def test_a_secret_that_is_recognised_by_its_context_leaves_the_context(text: str, expected: str) -> None:
    assert redact(text) == expected


def test_no_class_is_left_untested() -> None:
    texts = [*(secret for _, secret in SECRETS), *(text for text, _ in IN_CONTEXT), *(sample.text for sample in (*planted(), *current()))]
    tested = {found.kind for text in texts for found in find_secrets(text)} | {kind for kind, _ in RARE}
    assert tested == {secret_class.kind for secret_class in CLASSES} | {"private_key", "cookie"}


@every_case(("kind", "secret"), RARE)
def test_vendors_that_the_sets_do_not_have_are_found_by_their_prefix(kind: str, secret: str) -> None:
    assert redact(f"use {secret} for now") == f"use [REDACTED:{kind}] for now"


def test_every_prefix_of_a_vendor_is_looked_for_whatever_characters_follow_it() -> None:
    digits = "0a1b2c3d4e5f6a7b8c9d" * 5
    uuid, number = f"{digits[:8]}-{digits[:4]}-{digits[:4]}-{digits[:4]}-{digits[:12]}", "1234567890" * 2
    parts = [f"{digits[:22]}.{digits[:6]}.{digits[:40]}", f"{digits[:14]}.{digits[:64]}", f"{digits[:22]}.{digits[:43]}", f"2_{digits}"]
    parts += [uuid, f"na1-{uuid}", f"{number[:8]}_{digits[:32].upper()}", f"{number[:16]}:{digits[:32]}", f"{digits[:12]}!{digits[:60]}"]
    parts += [digits[:4], digits[:43], f"00{digits[:40]}", f"{digits[:24]}-{digits}"]
    tails = ["", "10", *(digits[:size] for size in (32, 33, 35, 60, 64, 100)), digits.upper(), digits[:16].upper(), LETTERS[:32], *parts]
    leads = ["", digits[:36], digits[:32], digits[:76], "12345678", f"{digits[:14]}."]
    proved: set[str] = set()
    missed: list[str] = []
    for secret_class in filter(lambda each: each.run, CLASSES):
        for start, lead, tail in itertools.product(secret_class.starts, leads, tails):
            text = f'{{"id": "{lead}{start}{tail}"}}'
            match = re.search(secret_class.pattern, text)
            has_run = match and re.search(r"[A-Za-z0-9_-]{15}", text[: match.start() + 9 + 15])
            if match and has_run and secret_class.judge(SecretCandidate(match[0])):
                proved.add(start)
                missed += [] if any(secret.start <= match.start() < secret.end for secret in find_secrets(text)) else [text]
    assert missed == []
    assert proved == {start for secret_class in CLASSES if secret_class.run for start in secret_class.starts}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sk-short", "sk-short"),
        ('api_key = "hunter2hunter2"', 'api_key = "[REDACTED:assignment]"'),
        ("token: short", "token: short"),
        ("bearer abcdefghijklmnop.qrs", "bearer [REDACTED:bearer]"),
    ],
)
def test_the_vectors_of_codex_hold_with_our_mark(text: str, expected: str) -> None:
    assert redact(text) == expected


def test_all_secrets_of_a_text_are_found() -> None:
    text = "\n".join(secret for _, secret in SECRETS)
    assert [found.kind for found in find_secrets(text)] == [kind for kind, _ in SECRETS]


def test_a_truncated_key_does_not_redact_the_text_up_to_the_next_key() -> None:
    cut_off = "-----BEGIN RSA " + f"PRIVATE KEY-----\n{KEY_LINES}\n"
    assert redact(f"{cut_off}and then: words\n{PEM}") == "[REDACTED:private_key]\nand then: words\n[REDACTED:private_key]"


@every_case(
    "text",
    [
        "fixed in 3f786850e387550fdab836ed7e6dc881de23001b and 89e6c98",
        "session 0b6f3a52-9c1e-4f57-8d2b-6a7c1e9f0d34",
        "sha256:" + HEX,
        "max_tokens=4096, input_tokens: 12345678, token_count: 12345678",
        "the task-list-with-a-very-long-identifier-name and risk-assessmentsAndMoreWords",
        "TOKEN=$GITHUB_TOKEN password: ${DB_PASSWORD} api_key=<your-api-key>",
        "https://example.com:8080/path@v1 and git@github.com:org/repo.git",
        "the secret of a good password is length",
        "-----BEGIN PRIVATE KEY----- is how such a block starts",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "PWD=/home/someone/projects/pier",
        "password: config.get('database.password'), token: getToken(user)",
        "token = os.environ['TOKEN']; secret: process.env.APP_SECRET, password=self.settings.password)",
        "token: Promise<string>; password: string; pass: true; pwd = None; password: 'str'",
        "the password: wrong again, and three tests pass: all of them",
        "docker run -u 1000:1000 image; mysql -p -u root; mkdir -p some/folder/deep",
        "cygpath -u 'C:\\Users\\me\\folder'; flags.PWD = *envFlags.PWD1",
        '"PWD": "~/dev/pier-2"',
        "密码：请重新输入",
        "http://h:8080/a and me@example.com, http://h:80/@scope/name",
        "",
    ],
)
def test_texts_that_only_look_like_a_secret_survive(text: str) -> None:
    assert redact(text) == text


def test_hashes_and_identifiers_survive_in_any_number() -> None:
    lines = [f"{hashlib.sha1(str(n).encode()).hexdigest()} {uuid.UUID(int=n * 2**100 + n)}" for n in range(2_000)]  # noqa: S324 - as git has it
    text = "\n".join(lines)
    assert find_secrets(text) == ()


def test_pictures_in_base64_survive() -> None:
    data = random.Random(3).randbytes(400_000)
    text = '{"type":"image","source":{"type":"base64","media_type":"image/png","data":"' + base64.b64encode(data).decode() + '"}}'
    assert find_secrets(text) == ()


_pieces = st.sampled_from(
    [*(secret for _, secret in SECRETS), *(text for text, _ in IN_CONTEXT), "password=", "token: ", "://", "@", "--", " ", "\n", "x", '"']
)


@given(st.lists(_pieces | st.text(max_size=12), max_size=8))
@example([PEM, "sk-" + LETTERS[:20]])
@example(["password=abc[REDACTED:jwt]def"])
def test_redacting_twice_is_redacting_once(pieces: list[str]) -> None:
    once = redact("".join(pieces))
    assert redact(once) == once
    assert find_secrets(once) == ()


@given(st.text(max_size=100), st.sampled_from(SECRETS), st.text(max_size=100))
def test_a_secret_is_redacted_whatever_surrounds_it(before: str, secret: tuple[str, str], after: str) -> None:
    assert secret[1] not in redact(f"{before} {secret[1]} {after}")


# A pattern whose work grows with the square of its input would need hours for these; a linear one needs moments.
@every_case(
    "unit",
    [
        "eyJ-",
        "-eyJaaaaaaaa",
        "eyJaaaaaaaaa.",
        "SG.",
        "://",
        "://a:",
        "token ",
        "token=",
        "tokentoken",
        "password: \\",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n" + "A" * 64,
        "--a-b-",
        "bearer ",
        "sk-",
        "xox",
        "12345678:",
        " ",
        "a",
        "密码",
        "pass=a.",
        "password: a.b",
        "pwd=aaaa",
        " -ua",
        " -u a:",
        "mysql ",
        "mysql -a ",
        "://a:b@",
        "a::",
        "cookie: a=b; ",
        " -b a=",
        "machine a login ",
        "token='a",
        "SECRET_KEY=A1b2",
        "sshpass -p",
        "--token a",
        "LS0tLS1CRUdJTi",
        "secret, value",
    ],
)
def test_a_text_made_to_hurt_is_read_in_linear_work(unit: str) -> None:
    # Quadratic work would take hours.
    once = redact(unit * (300_000 // len(unit)))
    assert redact(once) == once


SPEC_CLASSES = [
    PEM,
    "Bearer " + LETTERS[:16],
    "sk-" + LETTERS[:20],
    "AKIA" + "ABCDEFGH23456789",
    *(prefix + LETTERS[:36] for prefix in ("ghp_", "gho_", "ghs_", "github_pat_")),
    *(f"xox{letter}-" + LETTERS[:24] for letter in "abp"),
    "AIza" + LETTERS[:35],
    "eyJ" + LETTERS[:17] + "." + LETTERS[:30] + "." + LETTERS[:43],
    "https://user:" + LETTERS[:9] + "@example.org/x",
    *(f"{name}{sign}{LETTERS[:8]}" for name in ("api_key", "token", "secret", "password") for sign in (": ", "=")),
]


@every_case("text", SPEC_CLASSES)
@pytest.mark.states("ME-15")
def test_every_class_of_the_specification_is_redacted_and_twice_is_once(text: str) -> None:
    once = redact(f"note: {text}\nend")
    assert "[REDACTED:" in once
    assert not any(part in once for part in (LETTERS[:8], LETTERS[:16], KEY_LINES[:20], "ABCDEFGH23456789"))
    assert redact(once) == once
    assert once.endswith("\nend")


@pytest.mark.parametrize("text", ["3f786850e387550fdab836ed7e6dc881de23001b", str(uuid.UUID(int=7)), "data:image/png;base64," + LETTERS])
@pytest.mark.states("ME-15")
def test_hashes_ids_and_pictures_are_not_redacted(text: str) -> None:
    assert redact(f"see {text} there") == f"see {text} there"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sk-short", "sk-short"),
        ('api_key = "hunter2hunter2"', 'api_key = "[REDACTED:assignment]"'),
        ("token: short", "token: short"),
        ("bearer abcdefghijklmnop.qrs", "bearer [REDACTED:bearer]"),
        ("MY_TOKEN=hunter2hunter2", "MY_TOKEN=[REDACTED:assignment]"),
        ("DB_PASSWORD='hunter2hunter2'", "DB_PASSWORD='[REDACTED:assignment]'"),
    ],
)
@pytest.mark.states("CX-52")
def test_the_vectors_of_codex_hold_and_names_with_a_prefix_are_caught_too(text: str, expected: str) -> None:
    assert redact(text) == expected
