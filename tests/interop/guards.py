"""What boto3 does through a gateway whose route has a guard, before an object store. Called by tests/object_store.rs.

    guards.py GATEWAY STORE

The store is also asked directly: to make the bucket, and to write past the gateway.
"""

import sys
from io import BytesIO

import boto
from boto import refused
from boto3.s3.transfer import TransferConfig

BUCKET = "bucket"
PART = 5 << 20  # the least that a store takes


def client(url, token=None, attempts=1):
    return boto.client(url, token, attempts)


def body(store, key):
    return store.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def keys(gateway, store):
    holder = client(gateway, 5)
    for key in ["a b", "a+b", "a%2Fb", "ü", "x/y", "a=b&c", "a'b"]:
        for content in (b"one", b"two"):
            holder.put_object(Bucket=BUCKET, Key=key, Body=content)
            assert body(store, key) == content, key
        refused("PreconditionFailed", 412, client(gateway, 4).put_object, Bucket=BUCKET, Key=key, Body=b"zombie")


def past(gateway, store):
    holder = client(gateway, 5)
    holder.put_object(Bucket=BUCKET, Key="state", Body=b"v1")
    store.put_object(Bucket=BUCKET, Key="state", Body=b"past")
    told = refused("ServiceUnavailable", 503, holder.put_object, Bucket=BUCKET, Key="state", Body=b"v2")
    assert "past the gateway" in told.response["Error"]["Message"], told
    assert body(store, "state") == b"past"
    store.put_object(Bucket=BUCKET, Key="state", Body=b"past again")
    # A library that tries again as it is made to writes over it.
    client(gateway, 5, attempts=3).put_object(Bucket=BUCKET, Key="state", Body=b"v2")
    assert body(store, "state") == b"v2"


def own(gateway, store):
    """The client's own conditions."""
    holder = client(gateway, 5)
    of = {"Bucket": BUCKET, "Key": "own"}
    etag = holder.put_object(Body=b"v1", IfNoneMatch="*", **of)["ETag"]
    refused("PreconditionFailed", 412, holder.put_object, Body=b"v2", IfNoneMatch="*", **of)
    holder.put_object(Body=b"v2", IfMatch=etag, **of)
    refused("PreconditionFailed", 412, holder.put_object, Body=b"v3", IfMatch=etag, **of)
    assert body(store, "own") == b"v2"


def uploads(gateway, store):
    holder, newer = client(gateway, 5), client(gateway, 6)
    of = {"Bucket": BUCKET, "Key": "parts"}
    holder.put_object(Body=b"v1", **of)
    several = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART)
    holder.upload_fileobj(BytesIO(b"2" * (2 * PART)), BUCKET, "parts", Config=several)
    holder.put_object(Body=b"v3", **of)  # its ETag came in a body
    begun = holder.create_multipart_upload(**of)["UploadId"]
    part = holder.upload_part(PartNumber=1, Body=b"4", UploadId=begun, **of)["ETag"]
    whole = {"Parts": [{"PartNumber": 1, "ETag": part}]}
    newer.put_object(Body=b"v4", **of)
    refused("PreconditionFailed", 412, holder.complete_multipart_upload, UploadId=begun, MultipartUpload=whole, **of)
    store.put_object(Body=b"past", **of)
    refused("ServiceUnavailable", 503, newer.complete_multipart_upload, UploadId=begun, MultipartUpload=whole, **of)
    assert body(store, "parts") == b"past"
    newer.complete_multipart_upload(UploadId=begun, MultipartUpload=whole, **of)
    assert body(store, "parts") == b"4"


def others(gateway, store):
    holder = client(gateway, 5)
    source = {"Bucket": BUCKET, "Key": "own"}
    holder.put_object(Bucket=BUCKET, Key="copy", Body=b"v1")
    holder.copy_object(Bucket=BUCKET, Key="copy", CopySource=source)
    holder.put_object(Bucket=BUCKET, Key="copy", Body=b"v3")
    holder.delete_object(Bucket=BUCKET, Key="copy")
    holder.delete_object(Bucket=BUCKET, Key="copy")
    holder.put_object(Bucket=BUCKET, Key="copy", Body=b"v4")
    holder.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "copy"}]})
    holder.put_object(Bucket=BUCKET, Key="copy", Body=b"v5")
    assert body(store, "copy") == b"v5"


def main():
    gateway, url = sys.argv[1:]
    store = client(url)
    for part in (keys, past, own, uploads, others):
        part(gateway, store)
        print(part.__name__, "passed")


main()
