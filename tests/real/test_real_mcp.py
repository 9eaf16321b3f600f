"""The conformance tests of MCP against `pal mcp` over HTTP, as far as they ask for what every server has."""

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from npm_programs import npm_program
from pal_mcp import serving

CONFORMANCE, NODE = "0.1.16", "22"
# The others call tools, prompts and resources of a server that was written for them. Those of 2026-07-28 are not in this version.
SCENARIOS = ("server-initialize", "ping", "tools-list", "resources-list", "dns-rebinding-protection")
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def conformance() -> Iterator[tuple[Path, Path]]:
    """The program, and the Node that it needs."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        wanted = (f"node@{NODE}", "node"), (f"@modelcontextprotocol/conformance@{CONFORMANCE}", "conformance")
        programs = []
        for package, name in wanted:
            # npm takes out what it finds beside the package.
            own = Path(folder) / name
            own.mkdir()
            programs.append(npm_program(own, package, name, ""))
        yield programs[0], programs[1]


@pytest.fixture(scope="module")
def without_token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose token a proxy adds, because the program cannot send one."""
    home = tmp_path_factory.mktemp("home")
    with serving(home) as address:
        token = (home / "mcp-token").read_text()

        class Adding(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                sent = {name: value for name, value in self.headers.items() if name.lower() not in ("connection", "content-length")}
                sent["Authorization"] = f"Bearer {token}"
                # What comes back may be a stream that stays open.
                with httpx.stream(self.command, address, content=body, headers=sent, timeout=60) as reply:
                    self.send_response(reply.status_code)
                    for name, value in reply.headers.items():
                        if name not in ("content-length", "transfer-encoding", "connection"):
                            self.send_header(name, value)
                    self.send_header("connection", "close")
                    self.end_headers()
                    for chunk in reply.iter_raw():
                        self.wfile.write(chunk)
                        self.wfile.flush()
                self.close_connection = True

            def do_GET(self) -> None:
                self._pass_on()

            def do_POST(self) -> None:
                self._pass_on()

            def do_DELETE(self) -> None:
                self._pass_on()

            def log_message(self, *_: object) -> None:
                return

        proxy = ThreadingHTTPServer(("127.0.0.1", 0), Adding)
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{proxy.server_port}/mcp"
        proxy.shutdown()
        proxy.server_close()


@pytest.mark.states("PV-83")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_conformance_tests_of_every_server_pass(
    conformance: tuple[Path, Path], without_token: str, scenario: str, tmp_path: Path
) -> None:
    command = [*map(str, conformance), "server", "--url", without_token, "--scenario", scenario]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, "Passed: " in done.stdout or "passed" in done.stdout) == (0, True), done.stdout + done.stderr
