"""MCP servers without the SDK, whose import is most of the time of a short test: they misbehave, or are of 2024."""

import json
import os
import sys
import threading
from typing import Any, TextIO

KINDS = ("hang", "exit", "endless", "old")


def main(kind: str, pipe: str = "stdio") -> None:
    """Run a server."""
    match kind:
        case "hang":
            held = opened(pipe) if pipe != "stdio" else sys.stdout
            while sys.stdin.readline():
                pass
            threading.Event().wait()
            held.close()
        case "exit":
            sys.exit("cannot find its own settings")
        case "endless":
            sys.stdin.readline()
            while True:
                sys.stdout.write("x" * 1_000_000)
        case _:
            old()


def opened(pipe: str) -> TextIO:
    """A pipe, after it was written that its reader can go on."""
    file = os.fdopen(os.open(pipe, os.O_WRONLY), "w", encoding="utf-8")
    print("began", file=file, flush=True)
    return file


def old() -> None:
    """A server of 2024: its tool asks for all that a server may ask of a client, and returns the answers."""
    wanted: tuple[tuple[str, dict[str, Any]], ...] = (
        ("sampling/createMessage", {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}),
        ("elicitation/create", {"message": "May I?", "requestedSchema": {"type": "object", "properties": {}}}),
        ("roots/list", {}),
    )
    started = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
    listed = {"tools": [{"name": "ask", "description": "Asks.", "inputSchema": {"type": "object"}}]}

    def send(**message: Any) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def answer(message: dict[str, Any]) -> dict[str, Any]:
        if message["method"] != "tools/call":
            return started if message["method"] == "initialize" else listed
        refusals = []
        for number, (method, params) in enumerate(wanted):
            send(id=f"ask-{number}", method=method, params=params)
            reply = next(each for line in sys.stdin if (each := json.loads(line)).get("id") == f"ask-{number}")
            refusals.append(f"{method}: {reply.get('error', reply)}")
        return {"content": [{"type": "text", "text": "\n".join(refusals)}]}

    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") in ("initialize", "tools/list", "tools/call"):
            send(id=message["id"], result=answer(message))
        elif "id" in message:
            send(id=message["id"], error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    main(*sys.argv[1:])
