"""The server: time limits, clients that leave, ambiguous requests and the reuse of its port."""

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
READ_SECONDS = 0.3


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
    server = make_server(make_app(TwinRegressor(LinearRegression()).fit(X, X[:, 0])), READ_SECONDS)
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
    """All that the server sends until it closes the connection, and the seconds until then."""
    with connect(port) as client:
        for part in parts:
            client.sendall(part)
        start, received = time.monotonic(), b""
        while data := client.recv(65536):
            received += data
    return received, time.monotonic() - start


@pytest.mark.parametrize(
    "part", [b"", b"POST /pre", HEAD[:-2], HEAD.replace(b"\r\n\r\n", b"\r\nA: ")]
)
def test_a_half_sent_head_is_not_waited_for(service, part):
    received, seconds = response_to(service[0], part)
    assert received == b""
    assert seconds < 10


def test_a_head_sent_byte_by_byte_is_not_waited_for(service):
    with connect(service[0]) as client:
        start = time.monotonic()
        with pytest.raises(OSError):
            for byte in HEAD * 10:
                client.sendall(bytes([byte]))
                time.sleep(0.1)
    assert time.monotonic() - start < 15


@pytest.mark.slow
def test_the_head_of_a_second_request_is_not_waited_for(service):
    received, seconds = response_to(service[0], HEAD + BODY, b"POST /")
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert seconds < 10


def test_a_half_sent_body_is_not_waited_for(service, monkeypatch):
    monkeypatch.setattr("twinned.app.serve.app.READ_SECONDS", READ_SECONDS)
    received, seconds = response_to(service[0], HEAD + BODY[:-3])
    assert received.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within 0.3 seconds" in received
    assert seconds < 10


def test_a_slow_complete_request_gets_a_response(service):
    with connect(service[0]) as client:
        client.sendall(HEAD)
        time.sleep(2 * READ_SECONDS)  # the limit of the head does not apply to the body
        client.sendall(BODY)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_no_traceback_for_a_client_that_leaves(service):
    port, messages = service
    for part in (b"", HEAD[:20], HEAD, HEAD + BODY[:-3], HEAD + BODY):
        with connect(port) as client:
            client.sendall(part)
    received, _ = response_to(port, HEAD.replace(b"Host", b"Connection: close\r\nHost") + BODY)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert [message for message in messages if "Exception" in message] == []


def test_two_lengths_of_a_request_are_rejected(service):
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    head = HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
    received, _ = response_to(service[0], head + chunked)
    assert received.startswith(b"HTTP/1.1 400")
    assert b"Invalid HTTP request received." in received
    assert received.count(b"HTTP/1.1") == 1


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
        assert response_to(port, request)[0].startswith(b"HTTP/1.1 503")
        time.sleep(3 * READ_SECONDS)  # idle connections are closed
        assert response_to(port, request)[0].startswith(b"HTTP/1.1 200 OK")
        for client in idle:
            client.close()
