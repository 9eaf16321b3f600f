"""The models that a server lists, and servers that answer with something else."""

import socket
import threading
from typing import Any

import pytest
from wire_server import wire_server

from palimpsest.core.errors import BadInput, ConnectionLost, ProviderError
from palimpsest.providers.local import ServedModel, served_models


def test_models_have_the_names_and_windows_that_servers_report() -> None:
    listed: tuple[Any, ...] = (
        {"id": "ollama:7b", "owned_by": "library"},
        {"id": "vllm", "max_model_len": 40_960},
        {"id": "llama.cpp", "meta": {"n_ctx": 16_384, "n_ctx_train": 131_072}},
        {"id": "older llama.cpp", "meta": {"n_ctx_train": 4_096}},
        {"id": "odd", "meta": 7, "max_model_len": "many"},
        {"id": "bad\x1b[2Jname"},
        {"id": 7},
        "text",
    )
    with wire_server(models=listed) as server:
        assert served_models(f"{server.url}/v1", 5) == (
            ServedModel("ollama:7b"),
            ServedModel("vllm", 40_960),
            ServedModel("llama.cpp", 16_384),
            ServedModel("older llama.cpp", 4_096),
            ServedModel("odd"),
        )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "answers 404"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n<html", "does not answer with a list of models"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no server answers"),
    ],
)
def test_an_answer_that_is_no_list_is_one_line(answer: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_once() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        threading.Thread(target=answer_once, daemon=True).start()
        with pytest.raises(ProviderError, match=said):
            served_models(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", 5)


def test_a_port_on_which_nothing_listens_and_an_address_that_is_none_are_said() -> None:
    with pytest.raises(ConnectionLost, match=r"no server answers at http://127\.0\.0\.1:1/v1"):
        served_models("http://127.0.0.1:1/v1", 5)
    with pytest.raises(BadInput, match="does not begin with http"):
        served_models("ftp://127.0.0.1", 5)
