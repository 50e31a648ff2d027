#!/usr/bin/env python3
"""Measures what a guard costs: PUTs of 64 KiB through a gateway with guard = "etag", its pins warm, beside the same
through one without, in one interleaved run before MinIO.

    python3 benches/guard.py --bin target/release/fencegate --minio target/tmp/minio [--seconds S] [--rounds N]

tools/minio.sh builds MinIO. Each connection of the load generator (wrk) writes any of 256 objects, with one token.
The rounds take the two in turn; the table gives the medians of the rounds, and the ratio.
"""

import argparse
import contextlib
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEY, SECRET = "key-of-tests", "secret-of-tests"
CONNECTIONS = 8

LOAD = """
local body = string.rep("x", 65536)
local n = 0
request = function()
  n = n + 1
  local path = "/bucket/NAME/object-" .. (n % 256)
  -- Another content each time, so that no ETag comes back.
  local stamp = string.format("%016x%016x", n, SEED)
  return wrk.format("PUT", path, {["Fencing-Token"] = "5"}, stamp .. body:sub(33))
end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.timeout + e.status))
end
"""


def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait(url):
    for _ in range(300):
        with contextlib.suppress(OSError):
            try:
                return urllib.request.urlopen(url, timeout=1)
            except urllib.error.HTTPError:
                return None
        time.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


def gateway(binary, folder, store, guarded):
    name = "guarded" if guarded else "plain"
    listen, admin = port(), port()
    guard = 'guard = "etag"\nguard_required = true' if guarded else ""
    config = folder / f"{name}.toml"
    config.write_text(f"""
[server]
listen = ["127.0.0.1:{listen}"]
workers = 1
[admin]
listen = "127.0.0.1:{admin}"
[store]
path = "{folder}/{name}"
[upstreams.objects]
kind = "s3"
url = "http://127.0.0.1:{store}"
probe = "/bucket/probe"
settle = "5s"
[[routes]]
name = "objects"
host = "127.0.0.1"
path = "/{{bucket}}/{{*key}}"
upstream = "objects"
resource = "{{bucket}}/{{key}}"
{guard}
""")
    env = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
    env["FENCEGATE_CONFIG"], env["FENCEGATE_LOG"] = str(config), "warn"
    subprocess.run([binary, "init"], env=env, check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen([binary, "serve"], env=env)
    wait(f"http://127.0.0.1:{admin}/readyz")
    return process, listen, admin


def load(folder, name, target, seconds):
    script = folder / "load.lua"
    script.write_text(LOAD.replace("SEED", str(time.time_ns() % 10**9)).replace("NAME", name))
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "-s", script, f"http://127.0.0.1:{target}"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    requests, took, p50, p99, errors = map(int, re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", said).groups())
    if errors:
        raise SystemExit(f"{errors} of {requests} requests failed:\n{said}")
    return requests * 1e6 / took, p50, p99


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--bin", required=True)
    options.add_argument("--minio", required=True)
    options.add_argument("--seconds", type=int, default=4)
    options.add_argument("--rounds", type=int, default=7)
    asked = options.parse_args()
    binary = str(Path(asked.bin).resolve())
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as ending:
        folder, store = Path(place), port()
        env = {**os.environ, "MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "HOME": place}
        minio = [str(Path(asked.minio).resolve()), "server", "--quiet", "--address", f"127.0.0.1:{store}"]
        minio += ["--console-address", f"127.0.0.1:{port()}", f"{place}/data"]
        running = [subprocess.Popen(minio, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
        ending.callback(lambda: [process.kill() or process.wait() for process in running])
        wait(f"http://127.0.0.1:{store}/")
        python = subprocess.run([ROOT / "tools/moto.sh", folder / "python"], check=True, capture_output=True, text=True)
        env = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        env["PYTHONPATH"] = str(folder / "python")
        script = [python.stdout.strip(), ROOT / "tests/interop/open_bucket.py", f"http://127.0.0.1:{store}", "bucket"]
        subprocess.run(script, env=env, check=True)
        targets = {}
        for guarded in (False, True):
            process, listen, admin = gateway(binary, folder, store, guarded)
            running.append(process)
            name = "guard" if guarded else "none"
            targets[name] = listen
            load(folder, name, listen, 2)  # the pins are warm
        results = {name: [] for name in targets}
        for number in range(asked.rounds):
            for name in sorted(targets, reverse=number % 2 == 1):
                results[name].append(load(folder, name, targets[name], asked.seconds))
        rows = {name: [statistics.median(column) for column in zip(*rounds)] for name, rounds in results.items()}
        print(f"{'':8}{'requests/s':>12}{'p50 us':>10}{'p99 us':>10}")
        for name, (rate, p50, p99) in rows.items():
            print(f"{name:8}{rate:12.0f}{p50:10.0f}{p99:10.0f}")
        (plain, p50, _), (guarded, guarded50, _) = rows["none"], rows["guard"]
        print(f"ratio: requests/s {plain / guarded:.2f}, p50 {guarded50 / p50:.2f}")


if __name__ == "__main__":
    sys.exit(main())
