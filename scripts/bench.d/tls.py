"""scripts/bench tls: TLS side by side with other proxies, on the stand of scripts/bench.

For each kind of certificate (ECDSA P-256, RSA 2048): full handshakes per second of the proxy's own CPU time, without a
request (openssl s_time), and keep-alive requests over TLS (wrk). All proxies have the same certificates, TLS 1.3 and 1.2,
and no session is taken up again.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import pathlib
import ssl
import time
import urllib.request


def main(stand, argv):
    parser = argparse.ArgumentParser(prog="scripts/bench tls", description=__doc__.split("\n")[0])
    parser.add_argument("proxies", nargs="*", metavar="PROXY", help="nginx, haproxy, ferrio; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--profile", default="release")
    parser.add_argument("--binary", default=os.environ.get("FERRIO_BIN"))
    parser.add_argument("--set", action="append", default=[], metavar="-FLAG=VALUE")
    args = parser.parse_args(argv)
    args.proxies = args.proxies or ["nginx", "haproxy", "ferrio"]
    if not stand.program("openssl"):
        sys.exit("bench: needs openssl")
    stand.install(["nginx", "wrk"] + [n for n in args.proxies if n in stand.PACKAGES])
    results = {}
    with tempfile.TemporaryDirectory(prefix="ferrio-bench-") as folder:
        os.chmod(folder, 0o755)
        folder = pathlib.Path(folder)
        for kind in ("ecdsa", "rsa"):
            certificate(folder, kind)
            bench = bench_class(stand)(args, folder)
            try:
                bench.begin(kind)
                for number in range(args.rounds):
                    turn = number % len(args.proxies)
                    for name in args.proxies[turn:] + args.proxies[:turn]:
                        for what, figure in (("handshakes", bench.handshakes(name)), ("requests", bench.requests(name))):
                            results.setdefault((kind, what, name), []).append(figure)
                            print(f"round {number + 1}  {kind:6} {what:11}{name:8} {figure[0]:9.0f}/s {figure[1]:9.0f}/cpu-s")
            finally:
                bench.stop()
    print(f"\nper second of the proxy's CPU time; median of {args.rounds} rounds of {args.seconds} s, (spread), ratio to the best peer")
    for kind in ("ecdsa", "rsa"):
        for what in ("handshakes", "requests"):
            median = {n: statistics.median(f[1] for f in results[kind, what, n]) for n in args.proxies}
            best = max((median[n] for n in args.proxies if n != "ferrio"), default=0)
            for name in args.proxies:
                each = [f[1] for f in results[kind, what, name]]
                ratio = f"x{median[name] / best:.2f}" if best else ""
                print(f"{kind:6} {what:11}{name:8}{median[name]:9.0f} ({min(each):.0f}-{max(each):.0f})".ljust(60) + ratio)


def certificate(folder, kind):
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ecdsa" else ["-newkey", "rsa:2048"]
    subprocess.run(["openssl", "req", "-x509", *new, "-nodes", "-days", "9", "-subj", "/CN=bench.test", "-addext", "subjectAltName=DNS:bench.test",
                    "-keyout", folder / f"{kind}-key.pem", "-out", folder / f"{kind}-cert.pem"], check=True, capture_output=True)
    both = (folder / f"{kind}-cert.pem").read_text() + (folder / f"{kind}-key.pem").read_text()
    (folder / f"{kind}.pem").write_text(both)
    for file in folder.glob(f"{kind}*.pem"):
        file.chmod(0o600)


def bench_class(stand):
    class Tls(stand.Bench):
        def begin(self, kind):
            self.kind = kind
            self.spawn("origin", stand.LOAD_CORE, self.origin,
                       [stand.program("nginx"), "-p", self.folder, "-c", self.config("origin.conf", self.origin)])
            for name in self.args.proxies:
                port = self.ports[name] = stand.free_port()
                if name == "nginx":
                    command = [stand.program("nginx"), "-p", self.folder, "-c", self.config("nginx.conf", port)]
                elif name == "haproxy":
                    command = [stand.program("haproxy"), "-db", "-f", self.config("haproxy.cfg", port)]
                else:
                    command = self.ferrio(port)
                self.spawn(name, stand.PROXY_CORE, port, command)
                self.answers(name)

        def config(self, name, port):
            file = super().config(name, port)
            text, pem = file.read_text(), self.folder / self.kind
            if name == "nginx.conf":
                text = text.replace(f"listen 127.0.0.1:{port} ", f"listen 127.0.0.1:{port} ssl ")
                text = text.replace("location / {", f"ssl_certificate {pem}-cert.pem; ssl_certificate_key {pem}-key.pem; "
                                    "ssl_protocols TLSv1.2 TLSv1.3; location / {", 1)
            elif name == "haproxy.cfg":
                text = text.replace(f"bind 127.0.0.1:{port} ", f"bind 127.0.0.1:{port} ssl crt {pem}.pem ssl-min-ver TLSv1.2 ")
                text = text.replace("X-Forwarded-Proto http", "X-Forwarded-Proto https").replace("proto=http;", "proto=https;")
            file.write_text(text)
            return file

        def ferrio(self, port):
            command = [part for part in super().ferrio(port) if not str(part).startswith("-proxy.addr")]
            pem = self.folder / self.kind
            return command + [f"-proxy.cs=cs=bench;type=file;cert={pem}-cert.pem;key={pem}-key.pem", f"-proxy.addr=127.0.0.1:{port};cs=bench"]

        def answers(self, name):
            anything = ssl.create_default_context()
            anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
            end = time.monotonic() + 10
            while True:
                try:
                    with urllib.request.urlopen(f"https://127.0.0.1:{self.ports[name]}/", timeout=2, context=anything) as response:
                        if response.read().decode() == self.body:
                            return
                except OSError as e:
                    if time.monotonic() > end:
                        sys.exit(f"bench: no answer through {name}: {e}")
                time.sleep(0.05)

        def handshakes(self, name):
            def load():
                command = ["openssl", "s_time", "-connect", f"127.0.0.1:{self.ports[name]}", "-new", "-time", str(self.args.seconds)]
                done = subprocess.run(command, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {stand.LOAD_CORE}))
                counts = re.findall(r"(\d+) connections in \d+ real seconds", done.stdout)
                if not counts:
                    sys.exit(f"bench: handshakes with {name}:\n{done.stdout}{done.stderr}")
                return int(counts[0])
            return self.measured(name, load)

        def requests(self, name):
            def load():
                command = [stand.program("wrk"), "-t1", f"-c{self.args.connections}", f"-d{self.args.seconds}s", f"https://127.0.0.1:{self.ports[name]}/"]
                done = subprocess.run(command, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {stand.LOAD_CORE}))
                if done.returncode or "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
                    sys.exit(f"bench: load through {name} was not clean:\n{done.stdout}{done.stderr}")
                return int(re.search(r"(\d+) requests in", done.stdout)[1])
            return self.measured(name, load)

        def measured(self, name, load):
            pid = self.processes[name].pid
            before, began = stand.cpu_seconds(pid), time.monotonic()
            count = load()
            after, wall = stand.cpu_seconds(pid), time.monotonic() - began
            return count / wall, count / max(sum(after) - sum(before), 1 / stand.TICKS)

    return Tls
