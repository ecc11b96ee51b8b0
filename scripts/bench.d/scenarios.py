"""What is measured. A scenario says what stands before and behind the proxy, and which load runs through it."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    # Function of load.py.
    load: str = "wrk"
    # What the proxy offers: http, https (with HTTP/1.1 and HTTP/2), h2c, tcp.
    front: str = "http"
    # What is behind it: http, h2c (gRPC), websocket, source (bytes without end), greeter (one byte back, then the end).
    back: str = "http"
    certificate: str = "ecdsa"
    connections: int = 64
    # Streams at a time on each connection of HTTP/2.
    streams: int = 1
    path: str = "/"
    headers: tuple = ()
    # Bytes of a request body.
    upload: int = 0
    # Hosts in the table, and of how many of them the requests are.
    routes: int = 0
    hosts: int = 1
    changing: bool = False
    unit: str = "requests"
    # How latency at a fixed rate is measured: steady, h2load, or not at all.
    latency: str = "steady"


REQUEST_HEADERS = tuple(
    [("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"), ("Accept", "text/html,application/xhtml+xml"),
     ("Accept-Language", "en-GB,en;q=0.7,de;q=0.3"), ("Accept-Encoding", "gzip, deflate, br"), ("Referer", "http://bench.test/shop/basket?page=3"),
     ("Cookie", "session=4f3c9a1e77d24b02; theme=dark; consent=all"), ("Sec-Fetch-Dest", "document"), ("Sec-Fetch-Mode", "navigate"),
     ("Sec-Fetch-Site", "same-origin"), ("Cache-Control", "no-cache"), ("Pragma", "no-cache")]
    # Host is the twentieth.
    + [(f"X-Custom-Header-{n}", f"value-of-header-number-{n}") for n in range(8)])

ALL = [
    Scenario("small", "HTTP/1.1, small answers"),
    Scenario("headers", "HTTP/1.1, 20 request and 15 response headers", path="/headers", headers=REQUEST_HEADERS),
    Scenario("body-10k", "HTTP/1.1, answers of 10 kB", path="/10k"),
    Scenario("body-100k", "HTTP/1.1, answers of 100 kB", path="/100k"),
    Scenario("body-1m", "HTTP/1.1, answers of 1 MB", path="/1m", connections=16),
    Scenario("upload-10k", "HTTP/1.1, uploads of 10 kB", path="/upload", upload=10_000),
    Scenario("upload-1m", "HTTP/1.1, uploads of 1 MB", path="/upload", upload=1_000_000, connections=16),
    Scenario("tls-keepalive", "HTTP/1.1 over TLS, kept connections", front="https", latency="h2load"),
    Scenario("tls-ecdsa", "full TLS 1.3 handshakes, ECDSA P-256", load="handshakes", front="https", unit="handshakes", latency=""),
    Scenario("tls-rsa", "full TLS 1.3 handshakes, RSA 2048", load="handshakes", front="https", certificate="rsa", unit="handshakes", latency=""),
    Scenario("h2-1", "HTTP/2 over TLS, 1 connection with 64 streams", load="h2load", front="https", connections=1, streams=64, latency="h2load"),
    Scenario("h2-64", "HTTP/2 over TLS, 64 connections with 4 streams", load="h2load", front="https", streams=4, latency="h2load"),
    Scenario("grpc", "gRPC, unary calls, 16 connections with 16 streams", load="h2load", front="h2c", back="h2c", connections=16, streams=16,
             path="/bench.Echo/Unary", latency="h2load"),
    Scenario("websocket", "WebSocket, echo of messages of 64 bytes", load="echo", back="websocket", unit="messages", latency=""),
    Scenario("tcp-1", "TCP, bulk, 1 stream", load="bulk", front="tcp", back="source", connections=1, unit="MB", latency=""),
    Scenario("tcp-64", "TCP, bulk, 64 streams", load="bulk", front="tcp", back="source", unit="MB", latency=""),
    Scenario("tcp-connections", "TCP, a byte there and back on a new connection", load="connect", front="tcp", back="greeter", connections=16,
             unit="connections", latency=""),
    Scenario("connections-1000", "HTTP/1.1, 1,000 connections", connections=1000),
    Scenario("new-connections", "HTTP/1.1, a new connection for each request", headers=(("Connection", "close"),), latency=""),
    Scenario("routes-1", "table of 1 host", routes=1),
    Scenario("routes-1k-hot", "table of 1,000 hosts, requests for one", routes=1000),
    Scenario("routes-1k-spread", "table of 1,000 hosts, requests for all", routes=1000, hosts=1000),
    Scenario("routes-50k-hot", "table of 50,000 hosts, requests for one", routes=50_000),
    Scenario("routes-50k-spread", "table of 50,000 hosts, requests for all", routes=50_000, hosts=50_000),
    Scenario("changing", "table of 1,000 hosts that changes 10 times a second", routes=1000, hosts=1000, changing=True),
    Scenario("idle", "memory of idle connections", load="idle", connections=10_000, unit="bytes per connection", latency=""),
]
