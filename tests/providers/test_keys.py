"""Address and key of a provider: the order in which they are looked for, which key goes where, and that none is ever shown."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest
from every_case import every_case

from palimpsest.core.errors import BadInput, ProviderError
from palimpsest.core.ports import Provider
from palimpsest.core.redaction import Credential
from palimpsest.providers.keys import Connection, ProviderOptions, find_connection, http_provider
from palimpsest.wire.models import card

STREAMS = Path(__file__).parents[1] / "golden" / "streams"
SONNET, QWEN, LOCAL = card("claude-sonnet-4-5"), card("openai-compatible/qwen3-coder"), card("local/llama")
KEY = "sk-config-0123456789"
NOTHING = ProviderOptions()

Serve: TypeAlias = Callable[..., tuple[str, list[tuple[str, dict[str, str], bytes]]]]


@dataclass(frozen=True)
class Letter:
    wire: str
    body: bytes = b'{"stream":true}'


def ask(provider: Provider, letter: Letter) -> None:
    async def drain() -> None:
        async for _ in provider.stream(letter):
            pass

    asyncio.run(drain())


CASES: list[tuple[str, ProviderOptions, dict[str, str], Connection]] = [
    ("anthropic", NOTHING, {}, Connection("anthropic")),
    (
        "anthropic",
        ProviderOptions("http://c", api_key=Credential("c")),
        {"ANTHROPIC_API_KEY": " e ", "ANTHROPIC_BASE_URL": "http://e"},
        Connection("anthropic", "http://e", "ANTHROPIC_BASE_URL", Credential("e"), "ANTHROPIC_API_KEY"),
    ),
    (
        "anthropic",
        ProviderOptions("http://c", api_key=Credential("c")),
        {"ANTHROPIC_API_KEY": " "},
        Connection("anthropic", "http://c", "config", Credential("c"), "config"),
    ),
    (
        "anthropic",
        ProviderOptions(api_key_env="MINE", api_key=Credential("c")),
        {"ANTHROPIC_API_KEY": "e", "MINE": "m"},
        Connection("anthropic", key=Credential("m"), key_source="MINE"),
    ),
    (
        "anthropic",
        ProviderOptions(api_key_env="MINE", api_key=Credential("c")),
        {"ANTHROPIC_API_KEY": "e"},
        Connection("anthropic", key=Credential("c"), key_source="config"),
    ),
    (
        "openai-compatible",
        NOTHING,
        {"OPENAI_API_KEY": "o", "OPENAI_BASE_URL": "http://o"},
        Connection("openai-compatible", "http://o", "OPENAI_BASE_URL", Credential("o"), "OPENAI_API_KEY"),
    ),
    (
        "openai-compatible",
        ProviderOptions("http://c"),
        {"OPENAI_API_KEY": "o", "OPENAI_BASE_URL": "http://o"},
        Connection("openai-compatible", "http://c", "config"),
    ),
    ("groq", ProviderOptions("http://c"), {"OPENAI_API_KEY": "o"}, Connection("groq", "http://c", "config")),
    ("local", NOTHING, {"OPENAI_API_KEY": "o", "OPENAI_BASE_URL": "http://o"}, Connection("local")),
    (
        "local",
        ProviderOptions("http://c", "MINE", headers={"a": Credential("b")}),
        {"MINE": "m"},
        Connection("local", "http://c", "config", Credential("m"), "MINE", {"a": Credential("b")}),
    ),
]


@every_case(("provider", "options", "environment", "found"), CASES)
def test_the_environment_wins_over_the_configuration(
    provider: str, options: ProviderOptions, environment: dict[str, str], found: Connection
) -> None:
    assert find_connection(provider, options, environment) == found


def test_a_named_variable_that_is_not_set_is_an_error_if_there_is_no_other_key() -> None:
    with pytest.raises(BadInput) as raised:
        find_connection("anthropic", ProviderOptions(api_key_env="MINE"), {"ANTHROPIC_API_KEY": "e"})
    assert str(raised.value) == "anthropic: MINE is not set; the configuration names it as the variable of the API key"


KEYRING = """\
def get_password(service, user):
    if (service, user) == ("palimpsest", "broken"):
        raise RuntimeError("the keyring is locked")
    return kept.get((service, user))


def set_password(service, user, password):
    if user == "broken":
        raise RuntimeError("the keyring is locked")
    if user != "forgetful":
        kept[(service, user)] = password


kept = {("palimpsest", "anthropic"): "ring"}
"""
PROGRAM = """\
import sys
from palimpsest.providers.keys import ProviderOptions, find_connection, keep_in_keyring
from palimpsest.core.redaction import Credential
for provider, key in (("anthropic", None), ("anthropic", Credential("c")), ("groq", None), ("broken", None), ("local", None)):
    found = find_connection(provider, ProviderOptions(api_key=key), {})
    print(provider, found.key_source, found.key and found.key.reveal())
print(*(keep_in_keyring(provider, Credential("new")) for provider in ("groq", "broken", "forgetful")))
print(find_connection("groq", ProviderOptions(), {}).key_source)
print("keyring" in sys.modules)
"""


def with_keyring(folder: Path, *, installed: bool) -> list[str]:
    if installed:
        (folder / "keyring.py").write_text(KEYRING)
    paths = os.pathsep.join([str(folder), *(path for path in sys.path if path)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={"PYTHONPATH": paths}, check=True, timeout=120
    )
    return done.stdout.splitlines()


def test_the_keyring_is_asked_last_keeps_a_key_and_its_failure_is_no_key(tmp_path: Path) -> None:
    assert with_keyring(tmp_path, installed=True) == [
        "anthropic keyring ring",
        "anthropic config c",
        "groq default None",
        "broken default None",
        "local default None",
        "True False False",
        "keyring",
        "True",
    ]


def test_a_machine_without_a_keyring_has_no_key_in_it(tmp_path: Path) -> None:
    lines = with_keyring(tmp_path, installed=False)
    if lines[-1] == "True":
        pytest.skip("the keyring package is installed here")
    assert lines[:2] == ["anthropic default None", "anthropic config c"]
    assert lines[-3:] == ["False False False", "default", "False"]


def test_address_key_and_headers_of_the_configuration_are_sent(serve: Serve) -> None:
    url, seen = serve((STREAMS / "anthropic.sse").read_bytes())
    options = ProviderOptions(url, api_key=Credential(KEY), headers={"X-Team": Credential("a")})
    ask(http_provider(SONNET, options, 20.0, {}), Letter("anthropic"))
    ((path, headers, _),) = seen
    assert (path, headers["x-api-key"], headers["x-team"]) == ("/v1/messages", KEY, "a")


def test_the_key_of_openai_is_not_sent_to_another_configured_address(serve: Serve) -> None:
    url, seen = serve((STREAMS / "chat.sse").read_bytes())
    ask(http_provider(QWEN, ProviderOptions(f"{url}/v1"), 20.0, {"OPENAI_API_KEY": KEY}), Letter("chat"))
    ((_, headers, _),) = seen
    assert "authorization" not in headers


def test_a_local_model_is_reached_at_its_configured_address(serve: Serve) -> None:
    url, seen = serve((STREAMS / "chat.sse").read_bytes())
    ask(http_provider(LOCAL, ProviderOptions(f"{url}/v1"), 20.0, {"OPENAI_API_KEY": KEY}), Letter("chat"))
    assert [path for path, _, _ in seen] == ["/v1/chat/completions"]
    with pytest.raises(BadInput, match="a local model needs the address of its server"):
        http_provider(LOCAL, NOTHING, 20.0, {"OPENAI_BASE_URL": url})


def test_a_missing_key_is_named_by_its_variable() -> None:
    with pytest.raises(BadInput) as raised:
        http_provider(SONNET, NOTHING, 20.0, {})
    assert raised.value.message == "ANTHROPIC_API_KEY is not set; set it, or name another address in ANTHROPIC_BASE_URL"


def test_an_error_and_a_representation_never_contain_the_key(serve: Serve) -> None:
    url, _ = serve(msgspec.json.encode({"error": {"message": f"bad key {KEY}"}}), status=401, kind="application/json")
    options = ProviderOptions(url, api_key=Credential(KEY), headers={"X-Auth": Credential(KEY)})
    provider = http_provider(SONNET, options, 20.0, {})
    with pytest.raises(ProviderError) as raised:
        ask(provider, Letter("anthropic"))
    shown = [str(raised.value), repr(provider), repr(options), repr(find_connection("anthropic", options, {}))]
    assert "bad key ***" in shown[0]
    assert [text for text in shown if KEY in text] == []


def test_silence_ends_after_the_configured_seconds() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ProviderError, match=r"did not answer in time: it was silent for 0\.1 seconds"):
            ask(http_provider(QWEN, ProviderOptions(url), 0.1, {}), Letter("chat"))
