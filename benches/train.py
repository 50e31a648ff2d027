#!/usr/bin/env python3
"""Puts a fencegate under a plausible load for a few seconds, for a build that is guided by its profile.

    python3 benches/train.py --bin path/to/instrumented/fencegate [--requests N]

Most requests are small writes with the fence's own token over kept connections, as in production; a few
of every other kind keep those paths from counting as never taken: raises, zombies, reads, refusals,
chunked and large bodies, deletes, clients that leave. Measures nothing.
"""

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

CLIENTS = 8
ANSWER = b"HTTP/1.1 %s\r\nServer: upstream\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n"
PAGE = b"x" * 512

CONFIG = """
[server]
listen = ["127.0.0.1:{port}"]
workers = 1
[admin]
listen = "127.0.0.1:{admin}"
[store]
path = "{folder}/store"
[upstreams.files]
url = "http://127.0.0.1:{upstream}"
settle = "10ms"
[[routes]]
name = "files"
path = "/files/{{*key}}"
upstream = "files"
resource = "files/{{key}}"
"""


class Stream:
    """A connection that is read by lines and by length."""

    def __init__(self, sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.file = sock, sock.makefile("rb", buffering=65536)

    def message(self):
        """Reads a head and its body; the first line and the body's length, or None at the end."""
        first = self.file.readline()
        if not first:
            return None
        length, chunked = 0, False
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            name = name.lower()
            if name == b"content-length":
                length = int(value)
            chunked |= name == b"transfer-encoding"
        if chunked:
            while size := int(self.file.readline(), 16):
                self.file.read(size + 2)
                length += size
            self.file.readline()
        elif not first.startswith((b"HTTP/1.1 204", b"HTTP/1.1 304")):
            self.file.read(length)
        return first, length

    def close(self):
        self.file.close()
        self.sock.close()


def upstream(listener):
    """A file service that forgets what it is sent."""

    def serve(stream):
        try:
            while got := stream.message():
                if got[0].startswith(b"GET"):
                    stream.sock.sendall(ANSWER % (b"200 OK", len(PAGE)) + PAGE)
                elif random.random() < 0.5:
                    stream.sock.sendall(b"HTTP/1.1 204 No Content\r\nServer: upstream\r\n\r\n")
                else:
                    stream.sock.sendall(ANSWER % (b"201 Created", 0))
        except (OSError, ValueError):
            pass
        stream.close()

    while True:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(Stream(sock),), daemon=True).start()


def head(method, path, token=None, length=None, extra=b""):
    lines = [b"%s %s HTTP/1.1" % (method, path), b"Host: files.example:8080", b"User-Agent: train/1"]
    if token is not None:
        lines.append(b"Fencing-Token: %d" % token)
    if length is not None:
        lines += [b"Content-Length: %d" % length, b"Content-Type: application/octet-stream"]
    return b"\r\n".join(lines) + b"\r\n" + extra + b"\r\n"


def drive(port, number, requests, failures):
    """One client: its own file, whose token rises now and then."""
    dice = random.Random(number)
    path, token = b"/files/dir/file-%d.bin" % number, 10
    body, part = b"x" * 1024, b"x" * 16384

    def connect():
        return Stream(socket.create_connection(("127.0.0.1", port)))

    stream = connect()
    for _ in range(requests):
        roll = dice.random()
        if roll < 0.86:
            request = head(b"PUT", path, token, len(body)) + body
        elif roll < 0.92:
            request = head(b"GET", path)
        elif roll < 0.94:
            token += 1
            request = head(b"PUT", path, token, len(body)) + body
        elif roll < 0.96:
            request = head(b"DELETE", path + b"/%d" % dice.randrange(9), token)
        elif roll < 0.97:
            chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for _ in range(4)) + b"0\r\n\r\n"
            request = head(b"PUT", path, token, extra=b"Transfer-Encoding: chunked\r\n") + chunks
        elif roll < 0.975:
            request = head(b"PUT", path, token, 64 * len(part)) + 64 * part
        elif roll < 0.98:
            request = head(b"PUT", path)  # no token
        elif roll < 0.985:
            request = head(b"GET", b"/nowhere")
        elif roll < 0.99:
            request = head(b"PUT", path, token, len(body)) + body[:512]  # and leaves
        else:
            request = head(b"PUT", path, token - 1, 0)  # a zombie
        try:
            stream.sock.sendall(request)
            answer = None if 0.985 <= roll < 0.99 else stream.message()
        except OSError:
            answer = None
        if answer is None:
            stream.close()
            stream = connect()
        elif roll < 0.94 and not answer[0].startswith(b"HTTP/1.1 2"):
            failures.append(answer[0])
    stream.close()


def ready(port, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
        except OSError:
            time.sleep(0.05)
    return False


def listener():
    sock = socket.create_server(("127.0.0.1", 0), backlog=128)
    return sock, sock.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--requests", type=int, default=100_000)
    options = parser.parse_args()
    service, upstream_port = listener()
    threading.Thread(target=upstream, args=(service,), daemon=True).start()
    free = [listener() for _ in range(2)]
    port, admin = (port for _, port in free)
    for sock, _ in free:
        sock.close()
    with tempfile.TemporaryDirectory(prefix="fencegate-train-") as folder:
        config = Path(folder) / "fencegate.toml"
        config.write_text(CONFIG.format(port=port, admin=admin, upstream=upstream_port, folder=folder))
        command = [os.path.abspath(options.bin), "--config", str(config)]
        subprocess.run([*command, "init"], check=True, stdout=subprocess.DEVNULL)
        gateway = subprocess.Popen([*command, "serve"], stderr=subprocess.DEVNULL)
        try:
            if not ready(port, gateway):
                sys.exit("train: the gateway does not start")
            failures = []
            share = options.requests // CLIENTS
            clients = [
                threading.Thread(target=drive, args=(port, number, share, failures))
                for number in range(CLIENTS)
            ]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
        finally:
            gateway.send_signal(signal.SIGTERM)  # the profile is written at the end
            gateway.wait(timeout=60)
    if len(failures) > options.requests // 50:
        sys.exit(f"train: {len(failures)} requests failed, the first with {failures[0]!r}")
    print(f"train: {share * CLIENTS} requests, {len(failures)} of the usual ones refused or failed")


if __name__ == "__main__":
    main()
