"""What boto3 does through a gateway before an object store. Called by tests/object_store.rs.

    s3.py GATEWAY STORE

Fails where a call ends otherwise than it should. The store is also asked directly, past the gateway: to
make the bucket, and to look at what was written.
"""

import os
import sys
import urllib.error
import urllib.request
from io import BytesIO

import boto
from boto import refused
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

BUCKET = "bucket"
PART = 5 << 20  # the least that a store takes


def client(url, token=None, **more):
    # Where the gateway signs, its clients have keys of their own.
    own = {}
    if url == sys.argv[1] and "GATEWAY_KEY" in os.environ:
        own = {
            "aws_access_key_id": os.environ["GATEWAY_KEY"],
            "aws_secret_access_key": os.environ["GATEWAY_SECRET"],
        }
    return boto.client(url, token, own=own, **more)


def objects(gateway, store):
    keys = ["a b", "a+b", "a%2Fb", "a/b", "ü", "a;b", "a=b&c", "a\"'<>b", "~a", "a.", "a/"]
    try:
        store.put_object(Bucket=BUCKET, Key="a//b", Body=b"")
        keys += ["a//b", "/a", "a//"]
    except ClientError as error:
        # MinIO keeps objects as files, and has none with such names.
        assert error.response["Error"]["Code"] == "XMinioInvalidObjectName", error
    for key in keys:
        body = f"of {key}".encode()
        client(gateway, 5).put_object(Bucket=BUCKET, Key=key, Body=body)
        assert store.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body, key
        assert client(gateway).get_object(Bucket=BUCKET, Key=key)["Body"].read() == body, key
        refused("PreconditionFailed", 412, client(gateway, 4).put_object, Bucket=BUCKET, Key=key, Body=b"zombie")
        refused("PreconditionFailed", 412, client(gateway, 4).delete_object, Bucket=BUCKET, Key=key)
        assert store.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body, key
    assert store.get_object(Bucket=BUCKET, Key="a/b")["Body"].read() == b"of a/b"


def calls(gateway, store):
    holder, zombie, stranger = client(gateway, 5), client(gateway, 4), client(gateway)
    holder.put_object(Bucket=BUCKET, Key="of", Body=b"v1")
    source = {"Bucket": BUCKET, "Key": "of"}
    holder.copy_object(Bucket=BUCKET, Key="copy", CopySource=source)
    refused("PreconditionFailed", 412, zombie.copy_object, Bucket=BUCKET, Key="copy", CopySource=source)
    # Only what a copy changes is fenced.
    zombie.copy_object(Bucket=BUCKET, Key="other", CopySource=source)
    tags = {"TagSet": [{"Key": "a", "Value": "b"}]}
    holder.put_object_tagging(Bucket=BUCKET, Key="of", Tagging=tags)
    refused("PreconditionFailed", 412, zombie.put_object_tagging, Bucket=BUCKET, Key="of", Tagging=tags)
    found = {item["Key"] for item in stranger.list_objects_v2(Bucket=BUCKET)["Contents"]}
    assert {"of", "copy", "other"} <= found, found
    assert stranger.head_object(Bucket=BUCKET, Key="of")["ContentLength"] == 2
    missing = refused("PreconditionRequired", 428, stranger.put_object, Bucket=BUCKET, Key="of", Body=b"")
    assert "fencing token" in missing.response["Error"]["Message"], missing
    holder.delete_object(Bucket=BUCKET, Key="of")
    several = {"Objects": [{"Key": "copy"}, {"Key": "a&b <c>"}]}
    holder.put_object(Bucket=BUCKET, Key="a&b <c>", Body=b"odd")
    refused("PreconditionFailed", 412, zombie.delete_objects, Bucket=BUCKET, Delete=several)
    deleted = holder.delete_objects(Bucket=BUCKET, Delete=several)
    assert len(deleted["Deleted"]) == 2 and "Errors" not in deleted, deleted
    found = {item["Key"] for item in store.list_objects_v2(Bucket=BUCKET)["Contents"]}
    assert "other" in found and not {"copy", "a&b <c>"} & found, found
    # What may change any object is not let through.
    refused("AccessDenied", 403, holder.delete_bucket, Bucket=BUCKET)
    refused("AccessDenied", 403, holder.put_bucket_versioning, Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})


def uploads(gateway, store):
    holder, newer = client(gateway, 5), client(gateway, 6)
    begun = holder.create_multipart_upload(Bucket=BUCKET, Key="parts")["UploadId"]
    upload = {"Bucket": BUCKET, "Key": "parts", "UploadId": begun}
    part = holder.upload_part(PartNumber=1, Body=b"1" * PART, **upload)["ETag"]
    newer.put_object(Bucket=BUCKET, Key="parts", Body=b"newer")
    refused("PreconditionFailed", 412, holder.upload_part, PartNumber=2, Body=b"2", **upload)
    whole = {"Parts": [{"PartNumber": 1, "ETag": part}]}
    refused("PreconditionFailed", 412, holder.complete_multipart_upload, MultipartUpload=whole, **upload)
    assert store.get_object(Bucket=BUCKET, Key="parts")["Body"].read() == b"newer"
    newer.complete_multipart_upload(MultipartUpload=whole, **upload)
    assert store.head_object(Bucket=BUCKET, Key="parts")["ContentLength"] == PART
    # What the library makes of a large file by itself, several parts at once.
    size = 4 * PART + 3
    several = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART)
    newer.upload_fileobj(BytesIO(bytes(size)), BUCKET, "large", Config=several)
    assert store.head_object(Bucket=BUCKET, Key="large")["ContentLength"] == size


def signed(gateway, store):
    holder = client(gateway, signature_version="s3v4")  # the library's own default signs the type as well
    of = {"Params": {"Bucket": BUCKET, "Key": "signed a"}}

    def url_for(token):
        # Where the gateway checks it, whoever makes the URL says with which token it is used.
        if "GATEWAY_KEY" in os.environ:
            own = client(gateway, token, signature_version="s3v4")
            return own.generate_presigned_url("put_object", **of)
        return holder.generate_presigned_url("put_object", **of)

    def put(token, body, url=None):
        url = url or url_for(token)
        request = urllib.request.Request(url, data=body, method="PUT")
        request.add_header("Fencing-Token", str(token))
        request.add_header("Content-Type", "application/octet-stream")  # else the library calls it a form
        try:
            return urllib.request.urlopen(request).status
        except urllib.error.HTTPError as error:
            return error.code

    assert put(5, b"one") == 200
    assert put(4, b"two") == 412
    if "GATEWAY_KEY" in os.environ:
        assert put(6, b"three", url_for(5)) == 403
        assert put(6, b"three", holder.generate_presigned_url("put_object", **of)) == 403
    assert store.get_object(Bucket=BUCKET, Key="signed a")["Body"].read() == b"one"
    # A body in signed or checked chunks passes byte for byte.
    client(gateway, 5).put_object(Bucket=BUCKET, Key="checked", Body=b"x" * 100_000, ChecksumAlgorithm="SHA256")
    assert store.get_object(Bucket=BUCKET, Key="checked")["Body"].read() == b"x" * 100_000


def main():
    gateway, url = sys.argv[1:]
    store = client(url)
    store.create_bucket(Bucket=BUCKET)
    for part in (objects, calls, uploads, signed):
        part(gateway, store)
        print(part.__name__, "passed")


main()
