"""Makes a bucket in which anybody may do anything, with no signature.

    open_bucket.py STORE BUCKET
"""

import json
import sys

import boto3
from botocore.config import Config

url, bucket = sys.argv[1:]
store = boto3.client("s3", endpoint_url=url, region_name="us-east-1", config=Config(s3={"addressing_style": "path"}))
store.create_bucket(Bucket=bucket)
everything = {
    "Effect": "Allow",
    "Principal": {"AWS": ["*"]},
    "Action": ["s3:*"],
    "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
}
store.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [everything]}))
