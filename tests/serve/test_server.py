"""The server: slow clients, clients that leave, ambiguous requests and the reuse of its port."""

import json
import logging
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from twinned import TwinRegressor
from twinned.app.cli.messages import print_message, printable
from twinned.app.serve.app import make_app, make_server, open_listener

BODY = json.dumps({"rows": [{"x0": 1.0}]}).encode()
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(BODY)


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


@contextmanager
def running(port=0):
    """Yield the port of a server in a thread and the messages that it logs."""
    X = np.arange(20.0).reshape(-1, 1)
    server = make_server(make_app(TwinRegressor(LinearRegression()).fit(X, X[:, 0])))
    log = Records()
    logging.getLogger("uvicorn.error").addHandler(log)
    listener = open_listener(port)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1], log.messages
    finally:
        server.should_exit = True
        thread.join()
        logging.getLogger("uvicorn.error").removeHandler(log)


@pytest.fixture(scope="module")
def service():
    with running() as (port, messages):
        yield port, messages


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def response_to(port, *parts):
    """All that the server sends until it closes the connection."""
    with connect(port) as client:
        for part in parts:
            client.sendall(part)
        received = b""
        while data := client.recv(65536):
            received += data
    return received


def test_slow_clients_do_not_keep_others_waiting(service):
    request = HEAD.replace(b"Host", b"Connection: close\r\nHost") + BODY
    half_sent = [b"", b"POST /pre", HEAD[:-2], HEAD, HEAD + BODY[:-3]]
    clients = [connect(service[0]) for _ in range(200)]
    try:
        for number, client in enumerate(clients):
            client.sendall(half_sent[number % len(half_sent)])
        assert response_to(service[0], request).startswith(b"HTTP/1.1 200 OK")
        for client in clients[4::5]:
            client.sendall(BODY[-3:])
            assert client.recv(65536).startswith(b"HTTP/1.1 200 OK")
    finally:
        for client in clients:
            client.close()


def test_no_traceback_for_a_client_that_leaves(service):
    port, messages = service
    for part in (b"", HEAD[:20], HEAD, HEAD + BODY[:-3], HEAD + BODY):
        with connect(port) as client:
            client.sendall(part)
    received = response_to(port, HEAD.replace(b"Host", b"Connection: close\r\nHost") + BODY)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert [message for message in messages if "Exception" in message] == []


def test_a_port_can_be_used_again_at_once():
    with running() as (port, _):
        connection = connect(port)
        connection.sendall(HEAD + BODY)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")
    # the server has closed first, so the system still knows the connection
    with running(port) as (again, _):
        assert again == port
    connection.close()
    with open_listener(0) as listener, pytest.raises(OSError, match="is taken"):
        open_listener(listener.getsockname()[1])


def test_control_characters_are_not_printed(capsys):
    print_message("error", "a \x1b]0;title\x07 b\r\x9b31m")
    assert capsys.readouterr().err == "twinned: error: a \\x1b]0;title\\x07 b \\x9b31m\n"
    assert printable("größe\n2") == "größe\n2"


def test_connections_are_bounded_with_an_answer(monkeypatch):
    monkeypatch.setattr("twinned.app.serve.app.MAX_CONNECTIONS", 3)
    request = HEAD.replace(b"Host", b"Connection: close\r\nHost") + BODY
    with running() as (port, _):
        idle = [connect(port) for _ in range(3)]
        assert response_to(port, request).startswith(b"HTTP/1.1 503")
        for client in idle:
            client.close()
        time.sleep(0.2)  # until the server has seen it
        assert response_to(port, request).startswith(b"HTTP/1.1 200 OK")
