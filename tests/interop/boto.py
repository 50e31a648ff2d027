"""A client of boto3's that sends its token, and what is expected of a refusal. Imported by the scripts beside it."""

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError


def client(url, token=None, attempts=3, own={}, **more):
    """`attempts`: how often it sends what it may send again. `own`: its keys, where they are not those of the store."""
    made = boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        **own,
        config=Config(
            s3={"addressing_style": "path"},
            retries={"mode": "standard", "total_max_attempts": attempts},
            **more,
        ),
    )
    if token is not None:
        # All that a client of the gateway has to do: one header more.
        add = lambda request, **_: request.headers.__setitem__("Fencing-Token", str(token))
        made.meta.events.register("before-sign.s3", add)
    return made


def refused(code, status, call, **arguments):
    """Checks that a call is refused like that, and that the library asked once."""
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert found == (code, status), error
        assert error.response["ResponseMetadata"]["RetryAttempts"] == 0, error
        return error
    raise AssertionError(f"{call} was not refused")
