"""Which requests the gateway takes and where it sends them, as programs, web pages and wrong settings bring them."""

import gzip
import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from every_case import every_case
from provider_server import Reply, messages_stream, provider
from running_gateway import gateway_running

from pal.gateway.routing import Upstreams, require_other
from palimpsest.core.errors import BadInput
from palimpsest.stores.home import Home

BODY = b'{"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "hello"}]}'
JSON = {"content-type": "application/json", "anthropic-version": "2023-06-01"}


def test_requests_of_web_pages_are_refused_and_nothing_of_them_is_recorded(tmp_path: Path) -> None:
    pages = [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1.evil.example"},
        {"origin": "http://localhost:3000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://localhost:3000"},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:80"},
        {"content-type": "text/plain"},
        {"content-type": "text/plain;charset=UTF-8"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
    ]
    home = Home.at(tmp_path)
    with provider(Reply(messages_stream(0, "done"))) as model, gateway_running(home, "watch", model.url) as gateway:
        found = [httpx.post(f"{gateway.url}/v1/messages", content=BODY, headers=JSON | page, trust_env=False).status_code for page in pages]
        origins = [*JSON.items(), ("origin", gateway.url), ("origin", "https://evil.example")]
        found.append(httpx.post(f"{gateway.url}/v1/messages", content=BODY, headers=origins, trust_env=False).status_code)
        own = httpx.post(f"{gateway.url}/v1/messages", content=BODY, headers=JSON | {"origin": gateway.url}, trust_env=False).status_code
    assert (found, own) == ([403] * 8 + [415] * 4 + [403], 200)
    assert len(model.sent) == len(home.store.sessions()) == 1


def test_a_client_that_compresses_its_requests_is_served_and_named_once_as_not_recorded(tmp_path: Path) -> None:
    home, said = Home.at(tmp_path), list[str]()
    headers = JSON | {"content-encoding": "gzip"}
    with (
        provider(Reply(messages_stream(0, "done")), Reply(messages_stream(0, "done"))) as model,
        gateway_running(home, "thrifty", model.url, warn=said.append) as gateway,
    ):
        for _ in range(2):
            assert (
                httpx.post(f"{gateway.url}/v1/messages", content=gzip.compress(BODY), headers=headers, trust_env=False).status_code == 200
            )
    assert said == [
        "the client compresses its requests (gzip), so that they are passed on without a record or an edit; turn that off in the client"
    ]
    assert len(home.store.sessions()) == 0


ANTHROPIC_KEY, OPENAI_KEY = "sk-ant-api03-x", "sk-proj-x"


@every_case(
    ("path", "headers", "found"),
    [
        ("/v1/models", {"x-api-key": ANTHROPIC_KEY}, "a"),
        ("/v1/models", {"authorization": f"bearer  {ANTHROPIC_KEY}"}, "a"),
        ("/v1/chat/completions", {"authorization": f"Bearer {ANTHROPIC_KEY}"}, "a"),
        ("/v1/files", {"x-api-key": "opaque"}, "a"),
        ("/v1/messages", {"authorization": "Bearer opaque"}, "a"),
        ("/v1/models", {"authorization": "Bearer opaque", "anthropic-version": "2023-06-01"}, "a"),
        ("/v1/models", {"authorization": "Bearer sk-other"}, "o"),
        ("/v1/responses", {"authorization": f"Bearer {OPENAI_KEY}"}, "o"),
        ("/v1/messages", {"authorization": f"Bearer {OPENAI_KEY}"}, None),
        ("/v1/messages", {"x-api-key": OPENAI_KEY}, None),
        ("/v1/models", {"x-api-key": ANTHROPIC_KEY, "authorization": f"Bearer {OPENAI_KEY}"}, None),
        ("/v1/models", {"x-api-key": ANTHROPIC_KEY, "authorization": "Bearer sk-of-another"}, None),
        ("/v1/models", {"x-api-key": ANTHROPIC_KEY, "authorization": f"Bearer {ANTHROPIC_KEY}"}, "a"),
        ("/v1/models", {"authorization": "Basic eDp5"}, None),
        ("/v1/models", {"api-key": "other"}, None),
        ("/v1/responses", {"x-goog-api-key": "other"}, None),
        ("/v1/models", {}, None),
    ],
)
def test_a_key_goes_to_its_own_provider_or_nowhere(path: str, headers: dict[str, str], found: str | None) -> None:
    upstreams = Upstreams("a", "o")
    if found is None:
        with pytest.raises(BadInput, match="it cannot be told whose key this request has"):
            upstreams.of(path, headers)
    else:
        assert upstreams.of(path, headers) == found


def test_a_key_of_anthropic_on_a_common_path_does_not_reach_openai(tmp_path: Path) -> None:
    with (
        provider(Reply((b"{}",), "application/json"), Reply((b"{}",), "application/json")) as one,
        provider(Reply((b"{}",), "application/json")) as other,
        gateway_running(Home.at(tmp_path), "watch", one.url, openai=other.url) as gateway,
    ):
        httpx.post(f"{gateway.url}/v1/files", content=b"{}", headers={"x-api-key": ANTHROPIC_KEY}, trust_env=False)
        refused = httpx.post(f"{gateway.url}/v1/files", content=b"{}", trust_env=False)
        two = [("authorization", "Bearer opaque"), ("authorization", f"Bearer {ANTHROPIC_KEY}")]
        httpx.post(f"{gateway.url}/v1/files", content=b"{}", headers=two, trust_env=False)
    assert (len(one.sent), len(other.sent), refused.status_code) == (2, 0, 400)


def test_a_path_is_passed_on_as_it_was_written(tmp_path: Path) -> None:
    target = b"/v1/files/a%2Fb/../c%20d/./e?x=%2F&y=a+b"
    with provider(Reply((b"{}",), "application/json")) as model, gateway_running(Home.at(tmp_path), "watch", model.url) as gateway:
        address = httpx.URL(gateway.url)
        with socket.create_connection((address.host, address.port or 0)) as connection:
            connection.sendall(b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}" % target)
            while connection.recv(4096):
                pass
    assert [each.path for each in model.sent] == [target.decode()]


def test_a_request_that_comes_back_to_its_gateway_is_cut(tmp_path: Path) -> None:
    with provider(Reply(messages_stream(0, "done"))) as model, gateway_running(Home.at(tmp_path), "watch", model.url) as gateway:
        httpx.post(f"{gateway.url}/v1/messages", content=BODY, headers=JSON, trust_env=False)
        mark = model.sent[0].headers["x-pal-gateway"]
        for way in (mark, f"another, {mark}", f"{mark}, another"):
            headers = JSON | {"x-pal-gateway": way}
            assert httpx.post(f"{gateway.url}/v1/messages", content=BODY, headers=headers, trust_env=False).status_code == 508
    assert len(model.sent) == 1


def test_a_gateway_whose_provider_is_itself_does_not_start_and_says_what_to_give(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = os.environ | {"PAL_HOME": str(tmp_path), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}/"}
    command = [sys.executable, "-m", "pal.cli", "gateway", "--port", str(port)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "is the address of this gateway itself" in ended.stderr
    assert "--anthropic" in ended.stderr


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", "127.0.0.2", "[::1]", "user@localhost"])  # noqa: S104 - an address that is refused
def test_other_names_of_the_own_address_are_known(host: str) -> None:
    with pytest.raises(BadInput, match="unset OPENAI_BASE_URL"):
        require_other(Upstreams("https://api.example", f"http://{host}:8787/v1"), 8787)
    require_other(Upstreams("https://api.example", f"http://{host}:8788"), 8787)


def test_a_connection_that_does_not_bring_a_request_is_closed(tmp_path: Path) -> None:
    with gateway_running(Home.at(tmp_path), "watch", "http://127.0.0.1:9", head_s=0.2) as gateway:
        address = httpx.URL(gateway.url)
        halves = [socket.create_connection((address.host, address.port or 0), 20) for _ in range(20)]
        for half in halves:
            half.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: 127")
        closed = [half.recv(100) for half in halves]
        for half in halves:
            half.close()
    assert closed == [b""] * 20


def test_a_proxy_of_the_environment_that_cannot_be_used_is_named_and_nothing_starts(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment |= {"PAL_HOME": str(tmp_path), "HTTPS_PROXY": "nonsense://127.0.0.1:9"}
    command = [sys.executable, "-m", "pal.cli", "gateway", "--port", "0"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "a proxy of the environment (HTTPS_PROXY) cannot be used: " in ended.stderr
    assert "Traceback" not in ended.stderr
