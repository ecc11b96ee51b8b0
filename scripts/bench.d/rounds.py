"""Runs one scenario: origin, every proxy, interleaved rounds at full speed, then at a fixed rate."""

import contextlib
import ssl
import statistics
import subprocess
import sys
import time
import urllib.request

import load
import peers
import stand
import table

BODY = "x" * 128


def run(scenario, proxies, args, folder):
    print(f"\n{scenario.name}: {scenario.title}")
    stage = Stage(scenario, args, folder)
    try:
        stage.origin()
        for peer in proxies.values():
            if peer.serves(scenario):
                stage.proxy(peer)
        if scenario.load == "idle":
            stage.idle()
        else:
            stage.full_speed()
            if scenario.latency and args.rate and stage.names:
                stage.fixed_rate()
    finally:
        stage.stop()
    return {"title": scenario.title, "unit": scenario.unit, "rate": stage.rate, "rounds": stage.rounds, "latency": stage.latency, "left_out": stage.left_out}


class Stage:
    def __init__(self, scenario, args, folder):
        self.scenario, self.args, self.folder = scenario, args, folder
        self.processes = stand.Processes(folder)
        self.names, self.places, self.rounds, self.latency, self.left_out = [], {}, [], [], {}
        self.behind, self.rate, self.tables = None, 0, None

    def origin(self):
        """Starts what is behind the proxies."""
        scenario, port = self.scenario, stand.free_port()
        if scenario.front == "https":
            stand.certificate(self.folder, scenario.certificate)
        if scenario.back == "source":
            command = [sys.executable, stand.HERE / "streams.py", "source", port]
        elif scenario.back in ("websocket", "greeter"):
            command = [load.tool(), scenario.back, port]
        else:
            www = self.folder / "www"
            www.mkdir(exist_ok=True)
            for name, size in (("10k", 10_000), ("100k", 100_000), ("1m", 1_000_000)):
                (www / name).write_bytes(b"x" * size)
            (www / "grpc").write_bytes(b"\0\0\0\0\x05\n\x03you")
            grpc = stand.free_port()
            place = peers.Place(scenario, self.folder, 0, port)
            command = [stand.program("nginx"), "-p", self.folder, "-c", place.render("origin.conf", grpc=grpc, body=BODY)]
            if scenario.back == "h2c":
                port = grpc
        self.processes.start("origin", stand.LOAD_CORE, command, port)
        self.behind = port

    def proxy(self, peer):
        """Starts it; one that does not do what the scenario asks for is named and left out."""
        name = peer.name
        folder = self.folder / f"{self.scenario.name}-{name}"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        place = peers.Place(self.scenario, folder, stand.free_port(), self.behind)
        if self.scenario.changing:
            self.tables = self.tables or table.Server(place)
            place.table_port = self.tables.port
        try:
            self.processes.start(name, stand.PROXY_CORE, peer.command(place), place.port)
            self.places[name] = place
            self.answers(name)
        except RuntimeError as e:
            self.left_out[name] = str(e).splitlines()[0][:200]
            print(f"  {name} is left out: {str(e)[:600]}")
            with contextlib.suppress(KeyError):
                self.processes.stop(name)
            return
        self.names.append(name)

    def answers(self, name):
        """The right answer, or the figures would be those of an error page."""
        scenario, port = self.scenario, self.places[name].port
        if scenario.load in ("bulk", "connect", "echo", "h2load"):
            end, quick = time.monotonic() + 10, 0.2
            while True:
                try:
                    got = getattr(load, scenario.load)(scenario, port, quick if scenario.load != "h2load" else 1, self.folder)
                    if got["count"] and not got["failed"]:
                        return
                    problem = got
                except RuntimeError as e:
                    problem = e
                if time.monotonic() > end:
                    raise RuntimeError(f"no good answer through {name}: {problem}")
                time.sleep(0.2)
        anything = ssl.create_default_context()
        anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
        scheme = "https" if scenario.front == "https" else "http"
        last = f"h{scenario.routes - 1}.bench.test" if scenario.routes else "bench.test"
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}/", headers={"Host": last})
        end = time.monotonic() + 60
        while True:
            problem = "another body"
            try:
                with urllib.request.urlopen(request, timeout=2, context=anything if scheme == "https" else None) as response:
                    if response.read().decode() == BODY:
                        return
            except OSError as e:
                problem = e
            if time.monotonic() > end:
                raise RuntimeError(f"no good answer through {name}: {problem}")
            time.sleep(0.05)

    def turns(self):
        """Rounds with a rotating order. Who is left out meanwhile is so from the next round on."""
        for number in range(self.args.rounds if self.names else 0):
            turn = number % len(self.names)
            for name in self.names[turn:] + self.names[:turn]:
                yield number, name

    def full_speed(self):
        for name in list(self.names):
            self.guarded(name, lambda name=name: self.one(name, min(1, self.args.seconds)))
        for number, name in self.turns():
            if name in self.left_out:
                continue
            got = self.guarded(name, lambda name=name: self.one(name, self.args.seconds))
            if got is None:
                continue
            self.rounds.append({"round": number, "proxy": name, **got})
            print(f"  round {number + 1}  {name:8} {got['per_second']:11.0f}/s {got['per_cpu_second']:11.0f}/cpu-s {got['memory'] / 1e6:8.1f} MB"
                  + (f"  {got['failed']} failed" if got["failed"] else ""))

    def guarded(self, name, what):
        """A load that does not come to an end is the proxy's fault as a rule: it is left out, and it is said."""
        try:
            return what()
        except (RuntimeError, OSError, subprocess.SubprocessError) as e:
            self.left_out[name] = str(e).splitlines()[0][:200]
            self.names = [n for n in self.names if n != name]
            print(f"  {name} is left out: {str(e)[:600]}")

    def one(self, name, seconds):
        pid, place = self.processes.running[name].pid, self.places[name]
        with table.changes(self.scenario, name, place, self.processes.running[name], self.tables) as changed:
            before, began = stand.cpu_seconds(pid), time.monotonic()
            got = getattr(load, self.scenario.load)(self.scenario, place.port, seconds, self.folder)
            wall, after = time.monotonic() - began, stand.cpu_seconds(pid)
        user, system = after[0] - before[0], after[1] - before[1]
        if got["failed"] > 0.001 * got["count"] and not self.scenario.changing:
            raise RuntimeError(f"{got['failed']} of {got['count']} {self.scenario.unit} through {name} failed")
        return got | {"seconds": wall, "user": user, "system": system, "per_second": got["count"] / wall,
                      "per_cpu_second": got["count"] / max(user + system, 1 / stand.TICKS), "memory": stand.memory(pid), "changes": changed()}

    def fixed_rate(self):
        slowest = min(statistics.median(r["per_second"] for r in self.rounds if r["proxy"] == n) for n in self.names)
        self.rate = round(slowest * self.args.rate)
        print(f"  at {self.rate}/s")
        for number, name in self.turns():
            if name in self.left_out:
                continue
            got = self.guarded(name, lambda name=name: self.paced(name))
            if got is None:
                continue
            self.latency.append({"round": number, "proxy": name, **got})
            print(f"  round {number + 1}  {name:8} p50 {got['p50_us']:7.0f} us  p99 {got['p99_us']:7.0f} us  p99.9 {got['p999_us']:7.0f} us"
                  + (f"  {got['failed']} failed" if got["failed"] else ""))

    def paced(self, name):
        place = self.places[name]
        with table.changes(self.scenario, name, place, self.processes.running[name], self.tables):
            return load.fixed_rate(self.scenario, place.port, self.args.seconds, self.rate, self.folder)

    def idle(self):
        """What each connection costs a proxy that has nothing to do; one count per proxy, it does not vary."""
        # Two descriptors of every third one are spoken for: those of the proxy itself, and its connections to the origin.
        count = min(self.scenario.connections, stand.descriptors() // 2 - 300)
        for name in list(self.names):
            pid, place = self.processes.running[name].pid, self.places[name]
            before = stand.memory(pid)
            holder = self.guarded(name, lambda place=place: load.hold(place.port, count))
            if not holder:
                continue
            after = stand.memory(pid)
            holder.stdin.close()
            holder.wait()
            self.rounds.append({"round": 0, "proxy": name, "count": count, "failed": 0, "before": before, "memory": after, "each": (after - before) / count})
            print(f"  {name:8} {count} connections: {(after - before) / count:8.0f} bytes each, {after / 1e6:.1f} MB in all")

    def stop(self):
        self.processes.stop()
        if self.tables:
            self.tables.stop()
