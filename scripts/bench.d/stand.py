"""The stand itself: folder, cores, processes with their CPU time and memory, packages, certificates."""

import contextlib
import ctypes
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PROXY_CORE, LOAD_CORE = 0, 1
TICKS = os.sysconf("SC_CLK_TCK")
PACKAGES = {"nginx": "nginx-light", "haproxy": "haproxy", "wrk": "wrk", "h2load": "nghttp2-client", "openssl": "openssl"}
STREAM_MODULE = pathlib.Path("/usr/lib/nginx/modules/ngx_stream_module.so")
# Beginnings of variables that would configure a proxy behind our back.
FOREIGN = ("FABIO_", "FERRIO_", "PROXY_", "REGISTRY_", "TRAEFIK_", "GOMAXPROCS")


def two_cores():
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("bench: needs two cores, one for the proxy alone")
    # Ten thousand idle connections need more descriptors than most shells allow at first.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.sched_setaffinity(0, {LOAD_CORE})


def descriptors():
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="ferrio-bench-") as name:
        # nginx drops root before it makes its temporary folders.
        os.chmod(name, 0o755)
        yield pathlib.Path(name)


def program(name):
    return os.environ.get(f"{name.upper()}_BIN") or shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")


def install(names, files=()):
    """Debian packages of the programs that are missing; `files` are pairs of a path and the package it comes from."""
    missing = sorted({PACKAGES[n] for n in names if not program(n)} | {package for path, package in files if not path.exists()})
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(f"bench: missing, and not root on a Debian machine: {' '.join(missing)}")
    print(f"installing {' '.join(missing)}")
    # Installing a server on Debian starts it, unless this file says no.
    policy = pathlib.Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], check=True, env=environment,
                       stdout=subprocess.DEVNULL)
    finally:
        if ours:
            policy.unlink()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, process, log, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"does not listen on port {port}:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.02)


def pinned(core):
    """For preexec_fn: on one core, and woken up when asked instead of up to 50 us later."""
    def pin():
        os.sched_setaffinity(0, {core})
        pr_set_timerslack = 29
        ctypes.CDLL(None).prctl(pr_set_timerslack, 1, 0, 0, 0)
    return pin


class Processes:
    """What was started, by name, each in a session of its own."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}

    def start(self, name, core, command, port=None, env=()):
        path = self.folder / f"{name}.log"
        environment = {k: v for k, v in os.environ.items() if not k.upper().startswith(FOREIGN)} | dict(env)
        with open(path, "w") as log:
            process = subprocess.Popen([str(c) for c in command], cwd=self.folder, stdin=subprocess.PIPE, stdout=log, stderr=log,
                                       env=environment, start_new_session=True, preexec_fn=pinned(core))
        self.running[name] = process
        if port:
            try:
                wait_for(port, process, path)
            except RuntimeError as e:
                raise RuntimeError(f"{name} {e}") from None
        return process

    def stop(self, name=None):
        for key in [name] if name else list(self.running):
            process = self.running.pop(key)
            for how in (signal.SIGTERM, signal.SIGKILL):
                if process.poll() is None:
                    try:
                        os.killpg(process.pid, how)
                        process.wait(timeout=3)
                    except (subprocess.TimeoutExpired, ProcessLookupError):
                        pass
            # What a process left behind in its session, e.g. workers that were told to finish.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def tree(pid):
    """A process and its descendants as {pid: (user ticks, system ticks)}, those of children that ended included."""
    stats, parents = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = pathlib.Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry))
            stats[int(entry)] = int(fields[11]) + int(fields[13]), int(fields[12]) + int(fields[14])
    found, todo = {}, [pid]
    while todo:
        at = todo.pop()
        if at in stats:
            found[at] = stats[at]
            todo += parents.get(at, [])
    return found


def cpu_seconds(pid):
    """User and system time of a process and its descendants, all threads."""
    times = tree(pid).values()
    return sum(t[0] for t in times) / TICKS, sum(t[1] for t in times) / TICKS


def memory(pid):
    """Bytes of a process and its descendants, pages that are shared counted once."""
    total = 0
    for each in tree(pid):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def certificate(folder, kind):
    """KIND-cert.pem, KIND-key.pem and both in KIND.pem, for bench.test and 127.0.0.1."""
    if (folder / f"{kind}.pem").exists():
        return
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ecdsa" else ["-newkey", "rsa:2048"]
    subprocess.run([program("openssl"), "req", "-x509", *new, "-nodes", "-days", "9", "-subj", "/CN=bench.test",
                    "-addext", "subjectAltName=DNS:bench.test,IP:127.0.0.1", "-keyout", folder / f"{kind}-key.pem",
                    "-out", folder / f"{kind}-cert.pem"], check=True, capture_output=True)
    (folder / f"{kind}.pem").write_text((folder / f"{kind}-cert.pem").read_text() + (folder / f"{kind}-key.pem").read_text())
    for file in folder.glob(f"{kind}*.pem"):
        file.chmod(0o600)
