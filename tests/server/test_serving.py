"""`headwise serve`: starts, warns, refuses in one sentence, and ends at Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from headwise.core.errors import DataError
from headwise.server.serving import bind_socket, is_loopback, url_of

CODE = "import sys; sys.argv[0] = 'headwise'; from headwise.cli.main import main; main()"


def start(*arguments):
    command = [sys.executable, "-c", CODE, "serve", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def test_a_port_in_use_is_told_before_anything_is_loaded():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(DataError, match=f"port {port} is in use on 127.0.0.1; choose another with --port"):
            bind_socket("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [("203.0.113.7", 0, "cannot listen"), ("\x9b31m", 0, "cannot listen"), ("127.0.0.1", 99999, "is not a port")],
)
def test_what_cannot_be_bound_is_told(host, port, words):
    with pytest.raises(DataError, match=words):
        bind_socket(host, port)


def test_only_this_machine_is_loopback():
    assert [is_loopback(host) for host in ("127.0.0.1", "127.3.2.1", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "192.168.0.3", "example.org", "::")] == [False] * 4


def test_a_free_port_is_taken_and_shown():
    with bind_socket("127.0.0.1", 0) as taken:
        assert url_of(taken) == f"http://127.0.0.1:{taken.getsockname()[1]}/"


def test_it_serves_and_ends_at_ctrl_c(atlas):
    server = start(atlas, "--port", "0", "--host", "0.0.0.0", "--allow-host", "127.0.0.1")
    try:
        where = server.stdout.readline().split()[0]
        with urllib.request.urlopen(f"{where}api/small/live", timeout=20) as answer:
            assert b'"off"' in answer.read()
        server.send_signal(signal.SIGINT)
        begun = time.monotonic()
        out, err = server.communicate(timeout=20)
        assert server.returncode == 0, err
        assert time.monotonic() - begun < 10
        assert "anyone who can reach 0.0.0.0 can read these atlases; there is no password" in err
        assert "Traceback" not in out + err
    finally:
        server.kill()


def test_a_missing_extra_is_one_sentence():
    code = (
        "import sys; sys.modules['fastapi'] = None\n"
        "from headwise.core.errors import HeadwiseError\n"
        "try:\n    import headwise.server\nexcept HeadwiseError as error:\n    print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert 'pip install "headwise[web]"' in said.stdout, said.stderr


def test_a_server_without_a_model_loads_no_torch(atlas):
    code = f"import sys\nfrom headwise.server import create_app\ncreate_app([{str(atlas)!r}])\nprint('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout.strip() == "False", said.stderr


def test_silent_connections_lock_nobody_out(monkeypatch):
    """More of them than the server accepts at once; they are closed before they have sent anything."""
    import asyncio
    import threading

    import uvicorn

    from headwise.server import serving

    monkeypatch.setattr(serving, "FIRST_REQUEST_SECONDS", 0.5)

    async def answer(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})

    bound = bind_socket("127.0.0.1", 0)
    config = uvicorn.Config(
        answer, lifespan="off", log_level="critical", limit_concurrency=20, http=serving.ImpatientProtocol
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    silent = [socket.create_connection(bound.getsockname()) for _ in range(25)]
    time.sleep(1.5)
    with urllib.request.urlopen(url_of(bound), timeout=5) as reply:
        assert reply.read() == b"here"
    assert all(one.recv(1) == b"" for one in silent), "closed by the server"
    for one in silent:
        one.close()
    server.should_exit = True
    thread.join(5)
