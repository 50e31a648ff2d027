"""A client of tests/interop.rs: PUTs with Python's http.client, or with httpx.

    client.py http.client|httpx 1.1|2 CA_FILE URL TOKEN:SIZE...

Each PUT gives one line of JSON: the protocol as the library reports it, the status, the headers, the
body, and the SHA-256 of what was sent; or the error, where there was no answer to be read. Bodies are
made while they are sent. The PUTs follow each other on one connection, where that is kept.
"""

import hashlib
import http.client
import json
import ssl
import sys
from urllib.parse import urlsplit

BLOCK = 64 * 1024
PATIENCE = 60  # seconds


class Body:
    """A body of so many bytes, no two blocks of which are equal."""

    def __init__(self, size):
        self.size = size
        self.hash = hashlib.sha256()

    def __iter__(self):
        filler = bytes(range(256)) * (BLOCK // 256)
        for number in range(0, self.size, BLOCK):
            block = (number.to_bytes(8, "little") + filler)[: min(BLOCK, self.size - number)]
            self.hash.update(block)
            yield block


class HttpClient:
    """http.client speaks HTTP/1.1 alone. It reads an answer once it has sent the request."""

    def __init__(self, url, trust, protocol):
        assert protocol == "1.1"
        parts = urlsplit(url)
        self.path = parts.path
        if parts.scheme == "https":
            self.connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=PATIENCE, context=trust)
        else:
            self.connection = http.client.HTTPConnection(
                parts.hostname, parts.port, timeout=PATIENCE)

    def put(self, headers, body):
        try:
            self.connection.request("PUT", self.path, iter(body), headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the other side takes no more; it may have answered before
        response = self.connection.getresponse()
        protocol = {10: "1.0", 11: "1.1"}[response.version]
        return protocol, response.status, response.headers.items(), response.read()


class Httpx:
    """httpx speaks HTTP/2 too: over TLS as agreed, without TLS where it is told to speak nothing else."""

    def __init__(self, url, trust, protocol):
        import httpx

        self.url = url
        self.client = httpx.Client(
            http1=protocol == "1.1", http2=protocol == "2", verify=trust, timeout=PATIENCE,
            trust_env=False)

    def put(self, headers, body):
        response = self.client.put(self.url, headers=headers, content=iter(body))
        protocol = response.http_version.removeprefix("HTTP/")
        return protocol, response.status_code, response.headers.items(), response.content


def main():
    library, protocol, ca, url, *steps = sys.argv[1:]
    trust = ssl.create_default_context(cafile=ca)
    client = {"http.client": HttpClient, "httpx": Httpx}[library](url, trust, protocol)
    for step in steps:
        token, size = step.split(":")
        body = Body(int(size))
        try:
            spoken, status, headers, text = client.put(
                {"Fencing-Token": token, "Content-Length": size}, body)
            answer = {
                "protocol": spoken,
                "status": status,
                "headers": {name.lower(): value for name, value in headers},
                "body": text.decode(),
                "sent": body.hash.hexdigest(),
            }
        except Exception as error:  # whatever the library makes of it is the result
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
