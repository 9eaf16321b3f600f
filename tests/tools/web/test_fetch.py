"""The tool that fetches pages, against a server on the loopback that stands for hosts with public names."""

import asyncio
import gzip
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from shutil import which

import pytest
from every_case import every_case

from palimpsest.agent.tool import ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.web import LARGEST_PAGE, LONGEST_RESULT, Fetcher, IpAddress, is_public

LOOPBACK = ip_address("127.0.0.1")


class Site:
    """Answers by path: status, headers and body; `seen` are the paths and Host headers of the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.seen: list[tuple[str, str]] = []
        self.released = threading.Event()
        site = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.seen.append((self.path, self.headers["host"]))
                if self.path == "/stalled":
                    site.released.wait(30)
                    return
                status, headers, body = site.answers.get(self.path, (404, {"content-type": "text/plain"}, b"not here"))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.port = self.server.server_port

    def put(self, path: str, body: str | bytes, media: str = "text/plain", status: int = 200, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = (status, {"content-type": media, **named}, body if isinstance(body, bytes) else body.encode())

    def url(self, path: str) -> str:
        return f"http://docs.example:{self.port}{path}"


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield site
    finally:
        site.released.set()
        site.server.shutdown()
        site.server.server_close()


async def names(host: str, _: int) -> Sequence[str]:
    """`docs.example` and `other.example` are at the loopback, which stands for a public address here; other names are what they say."""
    return {"docs.example": ["127.0.0.1"], "other.example": ["127.0.0.1"], "inside.example": ["10.0.0.7"]}.get(host, [host])


def public_or_loopback(address: IpAddress) -> bool:
    return address == LOOPBACK or is_public(address)


def fetch(url: str, fetcher: Fetcher | None = None, **arguments: object) -> ToolOutput:
    tool = (fetcher or Fetcher(names, public_or_loopback)).tool()
    return asyncio.run(tool.run(json.dumps({"url": url, **arguments}), Workspace(Path("/"))))


PAGE = """<!doctype html><html><head><title>The  Guide</title><style>p {}</style><script>alert("<p>no</p>")</script></head><body>
<nav><a href="/start">Start</a></nav><h1>Guide &amp; more</h1><p>First   <b>line</b>,<br>second line.</p>
<ul><li>one</li><li><a href="two.html#part">two</a></li><li><a href="javascript:x()">three</a></li></ul>
<pre>def f():
    return 1</pre><table><tr><th>a</th><td>b</td></tr></table><img alt="a cat" src="c.png"></body></html>"""


def test_a_page_is_returned_as_text_with_its_links(site: Site) -> None:
    site.put("/guide/index.html", PAGE, "text/html; charset=utf-8")
    url = site.url("/guide/index.html")
    expected = f"""[{url}, status 200, The Guide]
[Start]({site.url("/start")})

# Guide & more

First line,
second line.

- one

- [two]({site.url("/guide/two.html")})

- three

def f():
    return 1

| a | b

[image: a cat]"""
    assert fetch(url) == ToolOutput(expected)
    assert site.seen == [("/guide/index.html", f"docs.example:{site.port}")]


@pytest.mark.parametrize("media", ["text/plain", "application/json", "application/vnd.api+json", "text/x-python; charset=no-such-set"])
def test_other_text_is_returned_as_it_is(site: Site, media: str) -> None:
    site.put("/data", '{"a": "ä <b>"}\n', media)
    assert fetch(site.url("/data")) == ToolOutput(f'[{site.url("/data")}, status 200]\n{{"a": "ä <b>"}}\n')


def test_a_character_set_is_honoured(site: Site) -> None:
    site.put("/latin", "für".encode("latin-1"), "text/plain; charset=ISO-8859-1")
    assert fetch(site.url("/latin")).text.endswith("\nfür")


@pytest.mark.parametrize(
    ("media", "body", "said"),
    [
        ("image/png", b"\x89PNG", "the page is of type image/png; only text can be fetched"),
        ("application/octet-stream", b"x", "the page is of type application/octet-stream; only text can be fetched"),
        ("text/plain", b"a\0b", "the page is a binary file; only text can be fetched"),
    ],
)
def test_binary_content_is_refused(site: Site, media: str, body: bytes, said: str) -> None:
    site.put("/file", body, media)
    assert fetch(site.url("/file")) == ToolOutput(said, error=True)


def test_an_error_of_the_server_is_an_error_with_its_text(site: Site) -> None:
    assert fetch(site.url("/gone")) == ToolOutput(f"[{site.url('/gone')}, status 404]\nnot here", error=True)


def test_redirects_are_followed_and_each_is_checked_again(site: Site) -> None:
    site.put("/old", "", status=302, location="/new")
    site.put("/new", "here")
    assert fetch(site.url("/old")) == ToolOutput(f"[{site.url('/new')}, status 200]\nhere")
    site.put("/file", "", status=302, location="file:///etc/passwd")
    assert fetch(site.url("/file")) == ToolOutput("only http and https addresses are fetched, not file:/etc/passwd", error=True)
    site.put("/round", "", status=302, location="/round")
    site.seen.clear()
    assert fetch(site.url("/round")) == ToolOutput("the page redirects more than 5 times", error=True)
    assert len(site.seen) == 6


@pytest.mark.parametrize("location", ["http://{host}:9/x", "https://{host}:{port}/x", "//{host}:9/x"])
def test_a_redirect_to_another_port_or_scheme_is_a_result_and_nothing_is_sent_there(site: Site, location: str) -> None:
    host = site.url("/").split("/")[2].partition(":")[0]
    site.put("/old", "", status=302, location=location.format(host=host, port=site.port))
    site.seen.clear()
    assert fetch(site.url("/old")).text.splitlines()[0] == f"[{site.url('/old')} redirects to another address]"
    assert [path for path, _ in site.seen] == ["/old"]


def test_a_redirect_to_another_host_is_a_result_and_nothing_is_sent_there(site: Site) -> None:
    site.put("/old", "", status=302, location="/out")
    site.put("/out", "", status=301, location=f"http://inside.example:{site.port}/new?key=1")
    site.seen.clear()
    assert fetch(site.url("/old")) == ToolOutput(
        f"[{site.url('/old')} redirects to another address]\nhttp://inside.example:{site.port}/new?key=1\n"
        "Nothing was fetched from there. Call fetch with that address if it is what you need."
    )
    assert [path for path, _ in site.seen] == ["/old", "/out"]


@every_case(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.1.2.3", "224.0.0.1", "255.255.255.255"),
        *("198.18.0.1", "192.0.0.192", "::1", "::", "fe80::1", "fd00:ec2::254", "fec0::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1", "2001:db8::1", "64:ff9b:1::a00:1"),
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1"])
def test_by_default_nothing_on_this_machine_is_fetched_however_it_is_written(site: Site, host: str) -> None:
    output = fetch(f"http://{host}:{site.port}/x", Fetcher())
    assert (output.error, site.seen) == (True, [])
    assert "which is no public address" in output.text or "cannot be found" in output.text


def test_a_name_with_one_private_address_among_public_ones_is_refused(site: Site) -> None:
    async def mixed(_: str, __: int) -> Sequence[str]:
        return ["93.184.216.34", "10.0.0.7"]

    assert fetch("http://mixed.example/", Fetcher(mixed)).text.startswith("the host mixed.example is at 10.0.0.7,")


def test_the_connection_goes_to_the_address_that_was_checked_and_the_name_is_looked_up_once(site: Site) -> None:
    answers = [["127.0.0.1"], ["10.0.0.7"]]

    async def rebinding(_: str, __: int) -> Sequence[str]:
        return answers.pop(0)

    site.put("/page", "here")
    assert fetch(site.url("/page"), Fetcher(rebinding, public_or_loopback)).text.endswith("\nhere")
    assert answers == [["10.0.0.7"]]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://docs.example/x", "only http and https addresses are fetched, not ftp://docs.example/x"),
        ("docs.example", "only http and https addresses are fetched, not docs.example"),
        ("http://user:secret@docs.example/", "addresses with a user name or password are not fetched"),
        ("http://docs.example:99999/", "the address is not valid: there is no port 99999"),
        (
            "http://nowhere.example:1/",
            "the host nowhere.example cannot be found: 'nowhere.example' does not appear to be an IPv4 or IPv6 address",
        ),
    ],
)
def test_what_cannot_be_fetched_is_an_error_that_says_why(url: str, said: str) -> None:
    assert fetch(url) == ToolOutput(said, error=True)


def test_a_long_page_is_returned_in_pieces(site: Site) -> None:
    site.put("/long", "x" * LONGEST_RESULT + "end")
    head = f"[{site.url('/long')}, status 200]\n"
    note = f"\n[characters 0 to {LONGEST_RESULT:,} of {LONGEST_RESULT + 3:,}; go on with offset {LONGEST_RESULT}]"
    assert fetch(site.url("/long")) == ToolOutput(head + "x" * LONGEST_RESULT + note)
    assert fetch(site.url("/long"), offset=LONGEST_RESULT) == ToolOutput(head + "end")
    assert fetch(site.url("/long"), offset=99_999_999).error


def test_a_page_is_read_up_to_a_bound_also_when_it_is_compressed(site: Site) -> None:
    bomb = gzip.compress(b"x" * (LARGEST_PAGE * 20))
    site.put("/bomb", bomb, content_encoding="gzip")
    last = LARGEST_PAGE - 10
    assert fetch(site.url("/bomb"), offset=last).text == (
        f"[{site.url('/bomb')}, status 200]\nxxxxxxxxxx\n[the page has more than 3,000,000 bytes; the rest was not read]"
    )
    site.put("/damaged", b"no gzip", content_encoding="gzip")
    assert fetch(site.url("/damaged")) == ToolOutput("the page is damaged: it cannot be decompressed", error=True)
    site.put("/brotli", b"x", content_encoding="br")
    assert fetch(site.url("/brotli")) == ToolOutput("the page is compressed with br, which cannot be read", error=True)


@pytest.mark.skipif(which("openssl") is None, reason="openssl makes the certificate")
def test_the_certificate_is_checked_against_the_name_and_not_against_the_address(site: Site, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=docs.example"]
    made += ["-addext", "subjectAltName=DNS:docs.example", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    site.server.socket = server.wrap_socket(site.server.socket, server_side=True)
    site.put("/page", "here")
    trusting = Fetcher(names, public_or_loopback, ssl.create_default_context(cafile=certificate))
    address = f"https://docs.example:{site.port}/page"
    assert fetch(address, trusting) == ToolOutput(f"[{address}, status 200]\nhere")
    other = fetch(f"https://other.example:{site.port}/page", trusting)
    assert (other.error, "Hostname mismatch, certificate is not valid for 'other.example'" in other.text) == (True, True)
    unknown = fetch(address)
    assert (unknown.error, "certificate verify failed" in unknown.text) == (True, True)


def test_a_page_that_never_comes_ends_at_the_time_limit(site: Site) -> None:
    fetcher = Fetcher(names, public_or_loopback, seconds=0.2)
    assert fetch(site.url("/stalled"), fetcher) == ToolOutput("the page was not complete after 0.2 s", error=True)
