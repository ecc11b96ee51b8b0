"""The load: as fast as the proxy goes (closed loop), and at a fixed rate (open loop). Each returns {"count", "failed", ...}.

Tools: wrk for HTTP/1.1, h2load for HTTP/2 and gRPC, openssl for handshakes, load.rs and streams.py for the rest.
"""

import json
import math
import re
import subprocess
import sys

import stand


def run(command, seconds, stdin=None):
    done = subprocess.run([str(c) for c in command], input=stdin, capture_output=True, text=True, timeout=seconds * 3 + 60,
                          preexec_fn=stand.pinned(stand.LOAD_CORE))
    if done.returncode:
        raise RuntimeError(f"load was not clean: {' '.join(map(str, command))}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout + done.stderr


def tool():
    """load.rs as a program."""
    source, binary = stand.HERE / "load.rs", stand.TARGET / "bench/load"
    if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
        binary.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["rustc", "-O", "--edition", "2024", "-o", binary, source], check=True)
    return binary


def url(scenario, port):
    return f"{'https' if scenario.front == 'https' else 'http'}://127.0.0.1:{port}{scenario.path}"


def wrk(scenario, port, seconds, folder):
    headers = [part for name, value in scenario.headers for part in ("-H", f"{name}: {value}")]
    script = []
    if scenario.routes:
        # All requests are made before the first is sent: their order is the same for everybody.
        file = folder / f"spread-{scenario.hosts}.lua"
        file.write_text(f"""local all, at = {{}}, 0
            function init() for n = 0, {scenario.hosts - 1} do
              all[n + 1] = wrk.format("GET", "/", {{Host = "h" .. (n * 104729) % {scenario.hosts} .. ".bench.test"}}) end end
            function request() at = at % #all + 1; return all[at] end\n""")
        script = ["-s", file]
    elif scenario.upload:
        file = folder / f"upload-{scenario.upload}.lua"
        file.write_text(f'wrk.method = "POST"; wrk.body = string.rep("x", {scenario.upload})\n')
        script = ["-s", file]
    text = run([stand.program("wrk"), "-t1", f"-c{scenario.connections}", f"-d{max(1, round(seconds))}s", "--timeout", "10", *headers, *script,
                url(scenario, port)], seconds)
    failed = sum(int(n) for n in re.findall(r"Non-2xx or 3xx responses: (\d+)", text))
    if errors := re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text):
        failed += sum(map(int, errors.groups()))
    return {"count": int(re.search(r"(\d+) requests in", text)[1]) - failed, "failed": failed}


def h2load_command(scenario, port, seconds, folder):
    command = [stand.program("h2load"), "-t1", f"-c{scenario.connections}", f"-m{scenario.streams}", "-D", f"{seconds:g}"]
    if scenario.load == "wrk":
        command.append("--h1")
    for name, value in scenario.headers:
        command += ["-H", f"{name}: {value}"]
    if scenario.back == "h2c":
        frame = folder / "call"
        frame.write_bytes(b"\0\0\0\0\x05\n\x03you")
        command += ["-d", frame, "-H", "content-type: application/grpc", "-H", "te: trailers"]
    return command + [url(scenario, port)]


def h2load(scenario, port, seconds, folder):
    text = run(h2load_command(scenario, port, seconds, folder), seconds)
    ok, failed = h2load_counts(text)
    return {"count": ok, "failed": failed}


def h2load_counts(text):
    counts = re.search(r"requests: \d+ total, \d+ started, \d+ done, (\d+) succeeded, (\d+) failed, (\d+) errored", text)
    status = re.search(r"status codes: (\d+) 2xx", text)
    if not counts or not status:
        raise RuntimeError(f"h2load said:\n{text[-1500:]}")
    return int(status[1]), max(0, int(counts[2]) + int(counts[1]) - int(status[1]))


def handshakes(scenario, port, seconds, folder):
    text = run([stand.program("openssl"), "s_time", "-connect", f"127.0.0.1:{port}", "-new", "-time", max(1, round(seconds))], seconds)
    counts = re.findall(r"(\d+) connections in \d+ real seconds", text)
    if not counts:
        raise RuntimeError(f"s_time said:\n{text[-1500:]}")
    return {"count": int(counts[0]), "failed": 0}


def echo(scenario, port, seconds, folder):
    return json.loads(run([tool(), "echo", f"127.0.0.1:{port}", scenario.connections, seconds, 64], seconds))


def connect(scenario, port, seconds, folder):
    return json.loads(run([tool(), "connect", f"127.0.0.1:{port}", scenario.connections, seconds], seconds))


def bulk(scenario, port, seconds, folder):
    return json.loads(run([sys.executable, stand.HERE / "streams.py", "sink", port, scenario.connections, seconds], seconds))


def hold(port, count):
    """A process that holds so many idle connections, once it has them all."""
    process = subprocess.Popen([sys.executable, stand.HERE / "streams.py", "idle", str(port), str(count)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=stand.pinned(stand.LOAD_CORE))
    if not process.stdout.readline():
        raise RuntimeError(f"idle connections: {process.stderr.read().decode()[-800:]}")
    return process


def fixed_rate(scenario, port, seconds, rate, folder):
    """Percentiles in microseconds, of a load that does not slow down when the proxy does."""
    return (steady if scenario.latency == "steady" else paced)(scenario, port, seconds, rate, folder)


def steady(scenario, port, seconds, rate, folder):
    host = "h{host}.bench.test" if scenario.routes else "127.0.0.1"
    lines = [f"{'POST' if scenario.upload else 'GET'} {scenario.path} HTTP/1.1", f"Host: {host}", *(f"{n}: {v}" for n, v in scenario.headers)]
    if scenario.upload:
        lines.append(f"Content-Length: {scenario.upload}")
    request = "\r\n".join(lines) + "\r\n\r\n" + "x" * scenario.upload
    command = [tool(), "steady", f"127.0.0.1:{port}", scenario.connections, seconds, rate, scenario.hosts]
    return json.loads(run(command, seconds, stdin=request))


def paced(scenario, port, seconds, rate, folder):
    """h2load sends by the clock, but waits for a free stream; what that hides is put back as HdrHistogram does: an answer that
    took longer than the gap between two requests of its stream stands for those that would have been sent meanwhile.
    """
    log = folder / "h2load.log"
    log.unlink(missing_ok=True)
    command = h2load_command(scenario, port, max(1, seconds), folder)
    text = run([command[0], f"--rps={rate / scenario.connections:.3f}", f"--log-file={log}", *command[1:]], seconds)
    _, failed = h2load_counts(text)
    gap = 1e6 * scenario.connections * scenario.streams / rate
    times = []
    for line in log.read_text().splitlines():
        took = float(line.split("\t")[2])
        while took > 0:
            times.append(took)
            took -= gap
            if took < gap:
                break
    times.sort()
    at = [times[min(len(times) - 1, math.floor(len(times) * part))] if times else 0 for part in (0.5, 0.99, 0.999)]
    return {"count": len(times), "failed": failed, "p50_us": at[0], "p99_us": at[1], "p999_us": at[2]}
