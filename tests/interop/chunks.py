"""What a client sends that signs each chunk of its body, as Amazon's library for Java does without TLS, to a gateway
that signs for it. Called by tests/object_store.rs.

    chunks.py GATEWAY STORE

The signatures are made here, by Amazon's description of them. The store is asked directly what it got.
"""

import datetime
import hashlib
import hmac
import http.client
import os
import sys
import urllib.parse
import zlib
from base64 import b64encode

import boto3
from botocore.config import Config

BUCKET = "bucket"
KEY, SECRET = os.environ["GATEWAY_KEY"], os.environ["GATEWAY_SECRET"]
EMPTY = hashlib.sha256(b"").hexdigest()


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256)


class Upload:
    """A PUT in chunks; `trailer`: with a checksum after them."""

    def __init__(self, gateway, key, parts, trailer=False, spoil=None, headers=()):
        self.host = urllib.parse.urlsplit(gateway).netloc
        now = datetime.datetime.now(datetime.timezone.utc)
        self.date, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        self.scope = f"{day}/us-east-1/s3/aws4_request"
        self.key = ("AWS4" + SECRET).encode()
        for part in self.scope.split("/"):
            self.key = sign(self.key, part).digest()
        kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if trailer else "")
        self.headers = {
            "content-encoding": "aws-chunked",
            "host": self.host,
            "x-amz-content-sha256": kind,
            "x-amz-date": self.date,
            "x-amz-decoded-content-length": str(sum(map(len, parts))),
            **dict(headers),
        }
        if trailer:
            self.headers |= {"x-amz-trailer": "x-amz-checksum-crc32", "x-amz-sdk-checksum-algorithm": "CRC32"}
        self.path = f"/{BUCKET}/{key}"
        names = ";".join(sorted(self.headers))
        said = "".join(f"{name}:{self.headers[name]}\n" for name in sorted(self.headers))
        request = "\n".join(["PUT", self.path, "", said, names, kind])
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", self.date, self.scope, digest])
        self.last = sign(self.key, text).hexdigest()
        self.headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={KEY}/{self.scope}, SignedHeaders={names}, Signature={self.last}"
        )
        self.body = b"".join(self.chunk(part) for part in [*parts, b""])
        if trailer:
            checksum = b64encode(zlib.crc32(b"".join(parts)).to_bytes(4, "big")).decode()
            line = f"x-amz-checksum-crc32:{checksum}"
            digest = hashlib.sha256((line + "\n").encode()).hexdigest()
            signature = self.signature("TRAILER", digest)
            self.body = self.body[:-2] + f"{line}\r\nx-amz-trailer-signature:{signature}\r\n\r\n".encode()
        if spoil is not None:
            at = spoil % len(self.body)
            self.body = self.body[:at] + bytes([self.body[at] ^ 1]) + self.body[at + 1 :]

    def signature(self, of, digest):
        text = "\n".join([f"AWS4-HMAC-SHA256-{of}", self.date, self.scope, self.last, digest])
        self.last = sign(self.key, text).hexdigest()
        return self.last

    def chunk(self, data):
        signature = self.signature("PAYLOAD", EMPTY + "\n" + hashlib.sha256(data).hexdigest())
        return f"{len(data):x};chunk-signature={signature}\r\n".encode() + data + b"\r\n"

    def send(self, token):
        connection = http.client.HTTPConnection(self.host, timeout=60)
        headers = {**self.headers, "content-length": str(len(self.body)), "fencing-token": str(token)}
        connection.putrequest("PUT", self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(self.body)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def main():
    gateway, url = sys.argv[1:]
    store = boto3.client("s3", endpoint_url=url, region_name="us-east-1", config=Config(s3={"addressing_style": "path"}))
    content = lambda key: store.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    parts = [b"1" * 65536, b"2" * 65536, b"3" * 1000]
    for trailer in (False, True):
        key = f"chunks-{trailer}"
        assert Upload(gateway, key, parts, trailer).send(5) == 200
        assert content(key) == b"".join(parts)
        found = store.head_object(Bucket=BUCKET, Key=key)
        assert "aws-chunked" not in found.get("ContentEncoding", ""), found
        assert found["Metadata"]["fencing-token"] == "5", found
        assert Upload(gateway, key, parts, trailer).send(4) == 412
        # A byte of any chunk changed on the way: nothing takes effect.
        for spoil in (100, 66_000, 131_400, 0, -5):
            status = Upload(gateway, key, [b"x" * len(part) for part in parts], trailer, spoil).send(5)
            assert status == 403, (spoil, status)
            assert content(key) == b"".join(parts), spoil
        assert Upload(gateway, f"empty-{trailer}", [], trailer).send(5) == 200
        assert content(f"empty-{trailer}") == b""
    gzipped = Upload(gateway, "gzip", parts, headers=[("content-encoding", "gzip,aws-chunked")])
    assert gzipped.send(5) == 200
    assert store.head_object(Bucket=BUCKET, Key="gzip")["ContentEncoding"] == "gzip"


main()
