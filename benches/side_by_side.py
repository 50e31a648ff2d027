#!/usr/bin/env python3
"""Measures fencegate beside nginx and HAProxy as plain proxies, in one interleaved run.

    python3 benches/side_by_side.py --bin target/release/fencegate [--seconds S] [--rounds N] [--json]

Each proxy runs one worker pinned to core 0; the upstream and the load generator (wrk) share core 1.
The load is 64 keep-alive connections of 1 KiB PUTs, all with one token, so that fencegate is on its
hot path. The rounds take the proxies in turn, so that what else the machine does falls on all alike;
the table gives the median of the rounds, and the ratio to nginx.

At the end, each proxy is given kept connections that are idle, and what memory one takes is printed.

CPU time a request is the figure to compare: it holds even where the proxy is not the bottleneck
(`busy` well below 100 %) or the machine is shared.
"""

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROXY_CORE, LOAD_CORE = "0", "1"
CONNECTIONS = 64
BODY = 1024
IDLE = 5000                          # kept connections for the measurement of memory
TICK = os.sysconf("SC_CLK_TCK")
LIMIT = 170.0                        # seconds for the whole run

LOAD = """
wrk.method = "PUT"
wrk.body = string.rep("x", %d)
wrk.headers["Fencing-Token"] = "5"
wrk.headers["Content-Type"] = "application/octet-stream"
function done(summary, latency)
  local e = summary.errors
  io.write(string.format("RESULT %%d %%d %%d %%d %%d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.timeout + e.status))
end
""" % BODY

NGINX_COMMON = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log stderr error;
{user}
events {{ worker_connections 12000; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000000;
  keepalive_timeout 300s;
  tcp_nodelay on;
{body}
}}
"""

NGINX_UPSTREAM = """
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{ return 204; }}
  }}
"""

NGINX_PROXY = """
  upstream files {{
    server 127.0.0.1:{upstream};
    keepalive 64;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{
      proxy_pass http://files;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_request_buffering off;
    }}
  }}
"""

HAPROXY = """
global
  nbthread 1
  maxconn 6000
defaults
  mode http
  timeout connect 2s
  timeout client 300s
  timeout server 30s
  option http-keep-alive
  http-reuse always
frontend in
  bind 127.0.0.1:{port}
  default_backend files
backend files
  server one 127.0.0.1:{upstream} pool-max-conn 64
"""

FENCEGATE = """
[server]
listen = ["127.0.0.1:{port}"]
workers = 1
[admin]
listen = "127.0.0.1:{admin}"
[store]
engine = "rocksdb"
path = "{folder}/data"
[upstreams.files]
url = "http://127.0.0.1:{upstream}"
settle = "5s"
[[routes]]
name = "files"
path = "/files/{{*key}}"
upstream = "files"
resource = "files/{{key}}"
"""


class Failed(Exception):
    """The bench cannot go on; the message says why."""


class Server:
    """A process of ours, pinned to a core, with what it costs."""

    def __init__(self, name, core, command, port, folder, version=""):
        self.name, self.port, self.version = name, port, version
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(["taskset", "-c", core, *command], cwd=folder, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=subprocess.STDOUT)
        try:
            self.wait_listening()
        except BaseException:
            self.stop()
            raise

    def wait_listening(self, seconds=15.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise Failed(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.02)
        raise Failed(f"{self.name} does not listen after {seconds:.0f} s:\n{self.tail()}")

    def tail(self):
        return self.log.read_text(errors="replace")[-2000:]

    def cpu(self):
        """CPU seconds so far, of all threads and of child processes (nginx's worker)."""
        return sum(cpu_of(pid) for pid in [self.process.pid, *children(self.process.pid)])

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)


def cpu_of(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def children(pid):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def free_port():
    """A port below the range that the kernel gives to outgoing connections."""
    while True:
        port = random.randint(10000, 32000)
        with socket.socket() as sock:
            with contextlib.suppress(OSError):
                sock.bind(("127.0.0.1", port))
                return port


def tool(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not path:
        raise Failed(f"{name} is missing: tools/need.sh bench")
    return path


def first_line(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    return done.stdout.decode(errors="replace").strip().splitlines()[0]


def version_of(text):
    found = re.search(r"\d+\.\d+(\.\d+)?", text)
    return found.group(0) if found else "?"


# --- the contestants ---

def nginx(name, core, folder, port, body):
    folder = folder / name
    folder.mkdir()
    user = "user root;" if os.geteuid() == 0 else ""
    file = folder / "nginx.conf"
    file.write_text(NGINX_COMMON.format(folder=folder, user=user, body=body))
    version = version_of(first_line(tool("nginx"), "-v"))
    command = [tool("nginx"), "-e", "stderr", "-p", str(folder), "-c", str(file)]
    return Server(name, core, command, port, folder, version)


def start_upstream(folder):
    port = free_port()
    return nginx("upstream", LOAD_CORE, folder, port, NGINX_UPSTREAM.format(port=port))


def start_nginx(folder, upstream, _):
    port = free_port()
    return nginx("nginx", PROXY_CORE, folder, port, NGINX_PROXY.format(port=port, upstream=upstream))


def start_haproxy(folder, upstream, _):
    folder = folder / "haproxy"
    folder.mkdir()
    port = free_port()
    file = folder / "haproxy.cfg"
    file.write_text(HAPROXY.format(port=port, upstream=upstream))
    version = version_of(first_line(tool("haproxy"), "-v"))
    return Server("haproxy", PROXY_CORE, [tool("haproxy"), "-db", "-f", str(file)], port, folder, version)


def start_fencegate(folder, upstream, program):
    if not os.access(program, os.X_OK):
        raise Failed(f"no such program: {program}")
    folder = folder / "fencegate"
    folder.mkdir()
    port = free_port()
    file = folder / "fencegate.toml"
    file.write_text(FENCEGATE.format(port=port, admin=free_port(), upstream=upstream, folder=folder))
    done = subprocess.run([program, "init", "--config", str(file)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
    if done.returncode != 0:
        raise Failed(f"`fencegate init` ended with {done.returncode}: {done.stdout.decode(errors='replace')[-500:]}")
    command = [program, "serve", "--config", str(file)]
    return Server("fencegate", PROXY_CORE, command, port, folder, version_of(first_line(program, "--version")))


PROXIES = {"nginx": start_nginx, "haproxy": start_haproxy, "fencegate": start_fencegate}


# --- one measurement ---

def memory_of(server):
    """Resident bytes of the process and its children."""
    total = 0
    for pid in [server.process.pid, *children(server.process.pid)]:
        with contextlib.suppress(OSError):
            found = re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
            total += int(found.group(1)) * 1024 if found else 0
    return total


def idle(server):
    """Bytes that one kept connection takes after its first request. Others are served meanwhile."""
    request = f"GET /files/k HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
    before, kept = memory_of(server), []
    try:
        for _ in range(IDLE):
            kept.append(socket.create_connection(("127.0.0.1", server.port), 5))
            kept[-1].sendall(request)
            if not kept[-1].recv(4096).startswith(b"HTTP/1.1 2"):
                raise Failed(f"{server.name} does not serve connection {len(kept)}:\n{server.tail()}")
        return (memory_of(server) - before) / IDLE
    finally:
        for sock in kept:
            sock.close()


def load(script, port, seconds):
    """Runs wrk: (requests, seconds, p50 in µs, p99 in µs)."""
    command = ["taskset", "-c", LOAD_CORE, tool("wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "5s",
               "-s", str(script), f"http://127.0.0.1:{port}/files/k"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=seconds + 20)
    text = done.stdout.decode(errors="replace")
    found = re.search(r"^RESULT (\d+) (\d+) (\d+) (\d+) (\d+)$", text, re.M)
    if not found:
        raise Failed(f"wrk gave no result:\n{text[-1000:]}")
    requests, micros, p50, p99, errors = map(int, found.groups())
    if errors or not requests:
        raise Failed(f"{errors} of {requests} requests failed:\n{text[-1000:]}")
    return requests, micros / 1e6, p50, p99


def measure(server, script, seconds):
    start = server.cpu()
    requests, took, p50, p99 = load(script, server.port, seconds)
    cpu = server.cpu() - start
    return {"rps": requests / took, "cpu_us": cpu * 1e6 / requests, "p50_us": p50, "p99_us": p99, "busy": cpu / took}


COLUMNS = [("rps", "requests/s", "{:.0f}"), ("cpu_us", "CPU µs/request", "{:.1f}"), ("p50_us", "p50 µs", "{:.0f}"),
           ("p99_us", "p99 µs", "{:.0f}")]


def summary(rounds):
    """The median of each column, and its ratio to nginx where nginx ran."""
    medians = {n: {k: statistics.median(r[k] for r in rs) for k in rs[0]} for n, rs in rounds.items()}
    base = medians.get("nginx")
    for values in medians.values():
        values["ratio"] = {k: values[k] / base[k] for k, _, _ in COLUMNS} if base else {}
    return medians


def table(medians, versions):
    rows = [["", *(t for _, title, _ in COLUMNS for t in (title, "× nginx")), "busy"]]
    for name, values in medians.items():
        row = [f"{name} {versions[name]}"]
        for key, _, form in COLUMNS:
            ratio = values["ratio"].get(key)
            row += [form.format(values[key]), f"{ratio:.2f}" if ratio is not None else "-"]
        rows.append([*row, f"{values['busy'] * 100:.0f} %"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths)))
                     for row in rows)


def run(args, folder, servers, note):
    script = folder / "load.lua"
    script.write_text(LOAD)
    upstream = start_upstream(folder)
    servers.append(upstream)
    for name in args.only or PROXIES:
        servers.append(PROXIES[name](folder, upstream.port, args.bin))
    proxies = servers[1:]
    rounds = {server.name: [] for server in proxies}
    end = time.monotonic() + LIMIT
    for server in proxies:
        load(script, server.port, 1)
    for number in range(args.rounds):
        if time.monotonic() + len(proxies) * (args.seconds + 1) > end:
            note(f"stopped after {number} rounds: no time left")
            break
        # Each round begins with another proxy, so that none is always first.
        turn = number % len(proxies)
        for server in proxies[turn:] + proxies[:turn]:
            result = measure(server, script, args.seconds)
            rounds[server.name].append(result)
            note(f"round {number + 1}  {server.name:10} {result['rps']:8.0f} requests/s  "
                 f"{result['cpu_us']:6.1f} CPU µs/request  busy {result['busy'] * 100:.0f} %")
    if not all(rounds.values()):
        raise Failed("no round was measured: ask for fewer seconds")
    memory = {server.name: idle(server) for server in proxies}
    return rounds, memory, {server.name: server.version for server in servers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/fencegate", help="the fencegate to measure")
    parser.add_argument("--seconds", type=int, default=4, metavar="S", help="for one measurement (4)")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="of all proxies (9)")
    parser.add_argument("--only", action="append", choices=PROXIES, help="only this proxy; may be repeated")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args()
    args.bin = str(Path(args.bin).resolve())
    if args.seconds < 1 or args.rounds < 1:
        parser.error("--seconds and --rounds are 1 at least")
    folder = Path(tempfile.mkdtemp(prefix="fencegate-bench-"))
    servers = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for the proxies too
    try:
        if os.cpu_count() < 2:
            raise Failed("two cores are needed: one for the proxies, one for the load")
        rounds, memory, versions = run(args, folder, servers, lambda line: print(line, file=sys.stderr, flush=True))
    except Failed as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        for server in reversed(servers):
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    medians = summary(rounds)
    if args.json:
        load_given = {"connections": CONNECTIONS, "body": BODY, "seconds": args.seconds, "method": "PUT"}
        print(json.dumps({"load": load_given, "versions": versions, "median": medians, "idle_bytes": memory,
                          "rounds": rounds}, indent=2))
    else:
        print(f"\n{CONNECTIONS} connections, {BODY} B PUT, one token; median of {len(next(iter(rounds.values())))} "
              f"rounds of {args.seconds} s; upstream nginx {versions['upstream']}\n")
        print(table(medians, versions))
        print(f"\nmemory of one idle connection, of {IDLE}: "
              + ", ".join(f"{name} {taken / 1024:.1f} KiB" for name, taken in memory.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
