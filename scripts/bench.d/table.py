"""The table of 1,000 hosts that changes 10 times a second, for each proxy the way its operators would do it: a reload for
nginx, the runtime API for HAProxy, a watched file for Traefik, a polled registry for ferrio.
"""

import contextlib
import http.server
import json
import os
import signal
import socket
import threading

import peer_json

PAUSE = 0.1


class Server:
    """The registry that ferrio polls: in every answer one route is another one."""

    def __init__(self, place):
        routes = [{"cmd": "route add", "service": "bench", "src": f"{host}/", "dst": f"http://127.0.0.1:{place.origin}/"} for host in place.hosts()]
        fixed, server = json.dumps(routes)[:-1], self
        self.turn = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                server.turn += 1
                more = {"cmd": "route add", "service": "bench", "src": f"turn{server.turn}.bench.test/", "dst": f"http://127.0.0.1:{place.origin}/"}
                body = f"{fixed}, {json.dumps(more)}]".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


@contextlib.contextmanager
def changes(scenario, name, place, process, server):
    """Changes the table while the block runs; gives a function that says how often that was."""
    if not scenario.changing:
        yield lambda: 0
        return
    if name == "ferrio":
        # It asks by itself, also while others are measured: that costs the same core little, and them alike.
        before = server.turn
        yield lambda: server.turn - before
        return
    done, turn = threading.Event(), [0]

    def change():
        while not done.wait(PAUSE):
            turn[0] += 1
            CHANGE[name](place, process, turn[0])

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield lambda: turn[0]
    finally:
        done.set()
        thread.join()


def nginx(place, process, turn):
    file = place.folder / "nginx-table"
    lines = [line for line in file.read_text().splitlines(True) if not line.startswith("turn")]
    file.write_text("".join(lines) + f"turn{turn}.bench.test origin;\n")
    os.kill(process.pid, signal.SIGHUP)


def haproxy(place, process, turn):
    file = place.folder / "haproxy-table"
    lines = f"add map {file} turn{turn}.bench.test origin; del map {file} turn{turn - 1}.bench.test\n"
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(place.folder / "haproxy.sock"))
        s.sendall(lines.encode())
        while s.recv(4096):
            pass


def traefik(place, process, turn):
    new = place.folder / "traefik-table.new"
    new.write_text(peer_json.traefik(place, turn))
    new.rename(place.folder / "traefik-table.yml")


CHANGE = {"nginx": nginx, "haproxy": haproxy, "traefik": traefik}
