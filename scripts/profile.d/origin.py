"""Answers every request on a connection alike, one write each, so that the proxy always sees the same reads."""

import socket
import sys
import threading

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 128\r\n\r\n" + b"x" * 128


def serve(peer):
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    got = b""
    while part := peer.recv(65536):
        got += part
        if got.endswith(b"\r\n\r\n"):
            got = b""
            peer.sendall(ANSWER)


listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
