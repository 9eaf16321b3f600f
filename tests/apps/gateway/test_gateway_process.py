"""The gateway as a person starts it, and what ends it: nothing that a client has seen is lost, and nothing keeps it from its end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from provider_server import Reply, messages_stream, provider
from running_gateway import gateway_running

from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text
from palimpsest.stores.home import Home

ANSWERED = 12


@contextmanager
def gateway(home: Path, upstream: str) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """The process while it runs, and its address."""
    command = (sys.executable, "-m", "pal.cli", "gateway", "--port", "0", "--anthropic", upstream, "--openai", upstream)
    with subprocess.Popen(command, env=os.environ | {"PAL_HOME": str(home)}, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            yield process, next(word for word in process.stderr.readline().decode().split() if word.startswith("http")).rstrip(";")
        finally:
            process.kill()


def body_of(text: str) -> bytes:
    return json.dumps({"model": "claude-sonnet-4-5", "stream": True, "messages": [{"role": "user", "content": text}]}).encode()


def ask(url: str, text: str) -> str:
    """Ask, and return the text of the reply once its last event is here."""
    headers = {"content-type": "application/json"}
    shown = ""
    with httpx.stream("POST", f"{url}/v1/messages", content=body_of(text), headers=headers, trust_env=False, timeout=60) as reply:
        for line in reply.iter_lines():
            data = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
            shown += str(data.get("delta", {}).get("text", ""))
            if data.get("type") == "message_stop":
                return shown
    return ""


def test_every_reply_whose_end_a_client_has_seen_is_in_a_log_after_the_gateway_was_killed(tmp_path: Path) -> None:
    replies = [Reply(messages_stream(number, f"answer {number}")) for number in range(ANSWERED)]
    with provider(*replies) as model, gateway(tmp_path, model.url) as (process, url):
        with ThreadPoolExecutor(4) as clients:
            seen = sorted(clients.map(lambda number: ask(url, f"question {number}"), range(ANSWERED)))
        process.kill()
        process.wait(20)
    home = Home.at(tmp_path)
    events = []
    for session in home.store.sessions():
        with home.open(session, write=False) as log:
            events += [event.body for event in log.events()]
    recorded = sorted(part.text for body in events if isinstance(body, ModelReplied) for part in body.parts if isinstance(part, Text))
    assert recorded == seen == sorted(f"answer {number}" for number in range(ANSWERED))


def test_a_request_of_sixty_megabytes_passes_and_does_not_keep_the_gateway_from_its_end(tmp_path: Path) -> None:
    with provider(Reply(messages_stream(0, "done"))) as model, gateway(tmp_path, model.url) as (process, url):
        assert ask(url, "a b " * 15_000_000) == "done"
        asked = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert (process.wait(20), time.monotonic() - asked < 2) == (0, True)
    assert len(model.sent[0].body) > 60_000_000


# Counts the files and folders that a list of the sessions opens.
COUNTED = """
import sys
opened = []
sys.addaudithook(lambda event, _facts: opened.append(event) if event in ("open", "os.scandir", "os.listdir") else None)
from pal.cli.main import cli
try:
    cli.main(["sessions", "--json"], standalone_mode=False)
finally:
    print(len(opened), file=sys.stderr)
"""


def opened_for(home: Path) -> int:
    ran = subprocess.run(
        (sys.executable, "-c", COUNTED), env=os.environ | {"PAL_HOME": str(home)}, capture_output=True, text=True, timeout=60, check=True
    )
    assert all("usd_without" in row for row in json.loads(ran.stdout))
    return int(ran.stderr.split()[-1])


def test_a_list_of_sessions_of_the_gateway_opens_as_much_for_each_of_them_however_many_there_are(tmp_path: Path) -> None:
    counts = []
    with provider(Reply(messages_stream(0, "done"))) as model, gateway_running(Home.at(tmp_path), "watch", model.url) as running:
        for first, last in ((0, 10), (10, 20), (20, 40)):
            for number in range(first, last):
                ask(running.url, f"question {number}")
            opened_for(tmp_path)
            counts.append(opened_for(tmp_path))
    ten, twenty, forty = counts
    assert forty - twenty <= 2 * (twenty - ten) + 10
