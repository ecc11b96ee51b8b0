"""Everything around the ferrio that is watched: Consul and its changes, targets, clients."""

import asyncio
import collections
import itertools
import pathlib
import random
import ssl
import subprocess
import time

import clients
import consul as consuls
import targets

SAMPLE = 10


class World:
    def __init__(self, folder):
        self.folder, self.over = folder, False
        self.good, self.failed, self.why = collections.Counter(), collections.Counter(), collections.Counter()
        self.took, self.open = [], 0
        self.changes = self.certificates = 0


async def live(binary, consul_binary, folder, seconds):
    world = World(folder)
    consul = consuls.Consul(consul_binary, folder, dev=True)
    ferrio = None
    try:
        await asyncio.to_thread(consul.wait_ready)
        # Targets of their own process: what they cost is not to slow down the clients.
        ports = targets.start()
        for number, port in enumerate(ports["http"][:3]):
            consul.register(f"web-{number}", "web", port, ["urlprefix-/", "urlprefix-web.test/"])
        consul.register("echo", "echo", ports["tcp"], [f"urlprefix-:{(tcp := consuls.free_port())} proto=tcp"])
        consul.register("datagrams", "datagrams", ports["udp"], [f"urlprefix-:{(udp := consuls.free_port())} proto=udp"])
        certificate(folder)
        plain, tls, admin = (consuls.free_port() for _ in range(3))
        here = "127.0.0.1"
        (folder / "ferrio.properties").write_text(
            f"proxy.addr = {here}:{plain};rt=20s;h2c=true,{here}:{tls};cs=c,{here}:{tcp};proto=tcp;rt=30s,{here}:{udp};proto=udp;rt=2s\n"
            f"proxy.cs = cs=c;type=path;cert={folder}/certs;refresh=1s\nui.addr = {here}:{admin}\nlog.level = WARN\n"
            f"registry.consul.addr = {here}:{consul.port}\nregistry.consul.register.enabled = false\n"
            f"log.access.format = combined\nlog.access.target = file:{folder}/access.log\nlog.access.rotate = 10m\n")
        with open(folder / "ferrio.log", "wb") as log:
            ferrio = subprocess.Popen([binary, "-cfg", folder / "ferrio.properties"], stdout=log, stderr=log)
        for port in (plain, tls, tcp, admin):
            await clients.listens(port, ferrio, folder / "ferrio.log")
        world.addresses = {"plain": plain, "tls": tls, "tcp": tcp, "udp": udp, "admin": admin}
        tasks = [asyncio.create_task(task) for task in clients.all_of(world)]
        tasks += [asyncio.create_task(churn(world, consul, ports)), asyncio.create_task(renew(world))]
        samples = await watch(world, ferrio, folder, seconds)
        world.over = True
        await asyncio.wait(tasks, timeout=40)
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error
        return {"samples": samples, "good": dict(world.good), "failed": dict(world.failed), "why": dict(world.why),
                "changes": world.changes, "certificates": world.certificates}
    finally:
        targets.stop()
        for process in (ferrio, consul.process):
            if process:
                process.kill()
                process.wait()


async def watch(world, ferrio, folder, seconds):
    """Samples until the time is over, or it has ended."""
    begun, samples = time.monotonic(), []
    while (at := time.monotonic() - begun) < seconds:
        await asyncio.sleep(SAMPLE)
        if ferrio.poll() is not None:
            raise SystemExit(f"soak: ferrio has ended\n{(folder / 'ferrio.log').read_text()[-2000:]}")
        status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{ferrio.pid}/status").read_text().splitlines())
        took, world.took = sorted(world.took), []
        samples.append({
            "at": round(time.monotonic() - begun, 1), "memory": int(status["VmRSS"].split()[0]) / 1024, "threads": int(status["Threads"]),
            "descriptors": sum(1 for _ in pathlib.Path(f"/proc/{ferrio.pid}/fd").iterdir()), "open": world.open,
            "p99": round(took[len(took) * 99 // 100] * 1e3, 2) if took else 0.0, "rate": len(took) / SAMPLE})
        # Only the end of the log is of interest, and a run may take days.
        if (folder / "ferrio.log").stat().st_size > 50_000_000:
            (folder / "ferrio.log").write_bytes(b"")
    return samples


async def churn(world, consul, ports):
    """One change a second or so. Two instances of what the clients use stay as they are."""
    spare, kinds = ports["http"][3:], itertools.cycle(["come", "fail", "pass", "maintain", "back", "retag", "move", "write", "break", "fix", "go"])
    number = 0

    def change(kind):
        id = f"churn-{number // 11 % 40}"
        tags = [f"urlprefix-churn{number % 40}.test/", "urlprefix-/churn"]
        if kind in ("come", "move"):
            consul.register(id, id.replace("-", ""), random.choice(spare), tags)
        elif kind == "retag":
            consul.register(id, id.replace("-", ""), spare[0], [f"urlprefix-/tag{number % 100} strip=/tag", "urlprefix-/ bad=1 weight=x"])
        elif kind in ("fail", "pass"):
            consul.check(id, kind)
            consul.check("web-2", kind)
        elif kind in ("maintain", "back"):
            consul.maintain(id, kind == "maintain")
        elif kind == "write":
            consul.kv("\n".join(f"route add kv{i} kv{number + i}.test/ http://127.0.0.1:{spare[0]}/" for i in range(20)))
        elif kind == "break":
            consul.kv("route nonsense\nroute add x")
        elif kind == "fix":
            consul.kv_clear()
        else:
            consul.deregister(id)

    while not world.over:
        await asyncio.to_thread(change, next(kinds))
        world.changes += 1
        number += 1
        await asyncio.sleep(random.uniform(0.2, 1.8))


async def renew(world):
    while not world.over:
        for _ in range(60):
            if world.over:
                return
            await asyncio.sleep(0.5)
        await asyncio.to_thread(certificate, world.folder)
        world.certificates += 1


def certificate(folder):
    (folder / "certs").mkdir(exist_ok=True)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=web.test", "-addext", "subjectAltName=DNS:web.test", "-keyout", folder / "new-key.pem", "-out", folder / "new-cert.pem"],
                   check=True, capture_output=True)
    # Whoever looks between the two sees a pair that does not match, and keeps what it has.
    (folder / "new-key.pem").replace(folder / "certs/web-key.pem")
    (folder / "new-cert.pem").replace(folder / "certs/web-cert.pem")


def trusting():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
