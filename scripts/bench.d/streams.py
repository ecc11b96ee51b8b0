"""Raw TCP, without copying bytes at either end, so that the proxy is what is measured; run as a program of its own.

    streams.py source PORT                      sends for ever to whoever connects, with sendfile
    streams.py sink ADDR STREAMS SECONDS        reads and throws away, with MSG_TRUNC; prints the bytes
    streams.py idle PORT N TLS                  opens N connections, asks once on each, and holds them until stdin ends
"""

import json
import os
import selectors
import socket
import sys
import threading
import time


def source(port):
    memory = os.memfd_create("bytes")
    os.ftruncate(memory, 1 << 20)
    os.write(memory, os.urandom(1 << 20))

    def serve(peer):
        try:
            while True:
                sent = 0
                while sent < 1 << 20:
                    sent += os.sendfile(peer.fileno(), memory, sent, (1 << 20) - sent)
        except OSError:
            peer.close()

    listener = socket.create_server(("127.0.0.1", port), backlog=4096)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


def sink(port, streams, seconds):
    total, chooser = 0, selectors.DefaultSelector()
    for _ in range(streams):
        stream = socket.create_connection(("127.0.0.1", port))
        stream.setblocking(False)
        chooser.register(stream, selectors.EVENT_READ)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for key, _ in chooser.select(1):
            try:
                # The kernel counts and drops; the buffer is never filled.
                n = key.fileobj.recv_into(BUFFER, len(BUFFER), socket.MSG_TRUNC)
            except BlockingIOError:
                continue
            if n == 0:
                sys.exit("streams: the proxy ended a stream")
            total += n
    print(json.dumps({"count": total / 1e6, "failed": 0}))


BUFFER = bytearray(1 << 20)


def idle(port, count):
    held = []
    for _ in range(count):
        stream = socket.create_connection(("127.0.0.1", port), timeout=10)
        stream.sendall(b"GET / HTTP/1.1\r\nHost: bench.test\r\n\r\n")
        if not stream.recv(65536).startswith(b"HTTP/1.1 200"):
            sys.exit("streams: refused")
        held.append(stream)
    print(json.dumps({"count": len(held)}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "source":
        source(int(rest[0]))
    elif what == "sink":
        sink(int(rest[0]), int(rest[1]), float(rest[2]))
    else:
        idle(int(rest[0]), int(rest[1]))
