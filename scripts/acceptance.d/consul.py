"""A real Consul server with data on disk, so that it can be stopped and come back as it was, or empty."""

import http.client
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Consul:
    host, token = "127.0.0.1", None

    def __init__(self, binary, folder, dev=False):
        self.binary, self.folder = binary, pathlib.Path(folder)
        # In memory only.
        self.mode = ["-dev"] if dev else []
        self.port = free_port()
        ports = {"http": self.port, "https": -1, "grpc": -1, "dns": -1,
                 "server": free_port(), "serf_lan": free_port(), "serf_wan": free_port()}
        config = {"ports": ports, "server": True, "bootstrap_expect": 1, "bind_addr": "127.0.0.1", "node_name": "acceptance",
                  "client_addr": "127.0.0.1", "data_dir": str(self.folder / "data"), "log_level": "warn",
                  "disable_update_check": True, "performance": {"raft_multiplier": 1}}
        if dev:
            for key in ("bootstrap_expect", "data_dir"):
                del config[key]
        (self.folder / "consul.json").write_text(json.dumps(config))
        self.start()

    def start(self):
        log = open(self.folder / "consul.log", "ab")
        self.process = subprocess.Popen([self.binary, "agent", *self.mode, "-config-file", str(self.folder / "consul.json")],
                                        stdout=log, stderr=log)

    def stop(self, wipe=False):
        self.process.kill()
        self.process.wait()
        if wipe:
            shutil.rmtree(self.folder / "data")

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def call(self, method, path, body=None, port=None, timeout=10):
        connection = http.client.HTTPConnection("127.0.0.1" if port else self.host, port or self.port, timeout=timeout)
        try:
            text = body if isinstance(body, (str, type(None))) else json.dumps(body)
            connection.request(method, path, text, {"X-Consul-Token": self.token} if self.token else {})
            response = connection.getresponse()
            return response.status, response.read().decode(), response.getheader("X-Consul-Index")
        finally:
            connection.close()

    def ok(self, method, path, body=None):
        status, text, _ = self.call(method, path, body)
        if status != 200:
            raise RuntimeError(f"{method} {path}: {status} {text}")
        return text

    def wait_ready(self, port=None):
        """Until it has a leader, as seen through `port`."""
        while True:
            try:
                status, text, _ = self.call("GET", "/v1/health/node/acceptance?consistent", port=port, timeout=2)
                if status == 200 and "serfHealth" in text:
                    return time.monotonic()
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.01)

    def register(self, id, name, port, tags, keep=False):
        check = {"CheckID": f"{id}-ttl", "TTL": "24h", "Status": "passing"}
        self.ok("PUT", "/v1/agent/service/register",
                {"ID": id, "Name": name, "Address": "127.0.0.1", "Port": port, "Tags": tags, "Check": check})
        if keep:
            # Only what was reported is passing again after a restart of the agent.
            self.check(id, "pass")

    def deregister(self, id):
        self.ok("PUT", f"/v1/agent/service/deregister/{id}")

    def check(self, id, status):
        self.ok("PUT", f"/v1/agent/check/{status}/{id}-ttl")

    def maintain(self, id, enable):
        self.ok("PUT", f"/v1/agent/service/maintenance/{id}?enable={'true' if enable else 'false'}")

    def kv(self, value):
        self.ok("PUT", "/v1/kv/fabio/config", value)

    def kv_clear(self):
        self.ok("DELETE", "/v1/kv/fabio/config")


class Notice:
    """Follows one path by blocking queries, as early as anybody hears of a change."""

    def __init__(self, consul, path):
        self.consul, self.path = consul, path
        self.answers, self.lock = [], threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        index, sign = 0, "&" if "?" in self.path else "?"
        while True:
            try:
                wait = f"{sign}index={index}&wait=20s" if index else ""
                status, text, now = self.consul.call("GET", self.path + wait, timeout=30)
                at = time.monotonic()
                with self.lock:
                    self.answers.append((at, status, text))
                    del self.answers[:-50]
                index = int(now or 0) if status in (200, 404) else 0
                if status not in (200, 404):
                    time.sleep(0.2)
            except (OSError, http.client.HTTPException):
                index = 0
                time.sleep(0.2)

    def when(self, since, holds, within=10):
        """When the first answer after `since` came of which `holds` is true."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            with self.lock:
                for at, status, text in self.answers:
                    if at >= since and holds(status, text):
                        return at
            time.sleep(0.001)
        raise RuntimeError(f"Consul never told of a change below {self.path}")
