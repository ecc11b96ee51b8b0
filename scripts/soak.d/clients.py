"""Clients of every kind. Each does its thing again and again; what is not as it should be counts as failed."""

import asyncio
import random
import socket
import time

import h2.config
import h2.connection
import h2.events
import world as worlds

HERE, HOST = "127.0.0.1", "web.test"


async def listens(port, process, log):
    end = time.monotonic() + 30
    while True:
        try:
            _, writer = await asyncio.open_connection(HERE, port)
            return writer.close()
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"soak: nobody listens on {port}\n{log.read_text()[-2000:]}") from None
            await asyncio.sleep(0.05)


def all_of(world):
    """The mix. The number: how many, and the pause between two turns of one, in seconds."""
    tls = worlds.trusting()
    for kind, turn, count, pause in [
        ("kept", Kept(world), 6, 0.06), ("kept, TLS", Kept(world, tls), 3, 0.06), ("fresh", fresh, 3, 0.15), ("fresh, TLS", fresh_tls(tls), 2, 0.5),
        ("HTTP/2", http2(tls), 2, 0.3), ("HTTP/2 without TLS", http2(None), 1, 0.3), ("download", download, 1, 0.5), ("upload", upload, 1, 0.5),
        ("events", events, 4, 0.5), ("WebSocket", websocket, 4, 0.5), ("TCP", tcp, 3, 0.5), ("UDP", udp, 2, 0.3), ("slow head", slow_head, 2, 1),
        ("slow reader", slow_reader, 1, 1), ("breaks off", breaks_off, 2, 0.3), ("nonsense", nonsense, 1, 1), ("pages", pages, 1, 2),
    ]:
        for _ in range(count):
            yield again(world, kind, turn.once() if isinstance(turn, Kept) else turn, pause)


async def again(world, kind, turn, pause):
    while not world.over:
        world.open += 1
        try:
            await asyncio.wait_for(turn(world), 60)
            world.good[kind] += 1
        except Exception as error:  # Whatever it is, somebody did not get what he asked for.
            world.failed[kind] += 1
            world.why[f"{kind}: {error!r}"[:200]] += 1
        finally:
            world.open -= 1
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))


async def dial(world, where, context=None):
    return await asyncio.open_connection(HERE, world.addresses[where], ssl=context, server_hostname=HOST if context else None)


def request(path="/", method="GET", fields=""):
    return f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n".encode()


async def head(reader):
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(lines[0].split()[1]), fields


async def answer(world, reader, begun):
    status, fields = await head(reader)
    body = await reader.readexactly(int(fields["content-length"]))
    world.took.append(time.monotonic() - begun)
    assert status == 200, status
    return body, fields.get("connection") == "close"


class Kept:
    """A connection for many requests; each client has its own."""

    def __init__(self, world, context=None):
        self.where, self.context = ("tls" if context else "plain"), context

    def once(self):
        kept = []

        async def turn(world):
            if not kept:
                kept.extend(await dial(world, self.where, self.context))
            reader, writer = kept
            try:
                begun = time.monotonic()
                writer.write(request())
                _, close = await answer(world, reader, begun)
            except Exception:
                kept.clear()
                writer.close()
                raise
            if close or random.random() < 0.01:
                kept.clear()
                writer.close()

        return turn


async def one(world, where, context, message):
    reader, writer = await dial(world, where, context)
    try:
        begun = time.monotonic()
        writer.write(message)
        return (await answer(world, reader, begun))[0]
    finally:
        writer.close()


async def fresh(world):
    await one(world, "plain", None, request())


def fresh_tls(context):
    async def turn(world):
        await one(world, "tls", context, request())

    return turn


async def download(world):
    assert len(await one(world, "plain", None, request("/big"))) == 300_000


async def upload(world):
    size = random.randrange(1, 400_000)
    assert await one(world, "plain", None, request("/", "POST", f"Content-Length: {size}\r\n") + b"y" * size) == b"%d" % size


async def pages(world):
    for path in ("/api/routes", "/api/status", "/api/rejects", "/health"):
        reader, writer = await dial(world, "admin")
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        status, _ = await head(reader)
        await reader.read()
        writer.close()
        assert status == 200, (path, status)


async def events(world):
    reader, writer = await dial(world, "plain")
    writer.write(request("/events"))
    status, _ = await head(reader)
    assert status == 200, status
    if random.random() < 0.3:
        # The tab is closed.
        await asyncio.sleep(random.uniform(0, 5))
        return writer.transport.abort()
    count = 0
    while True:
        line = await reader.readline()
        count += line.startswith(b"data: ")
        if line == b"0\r\n":
            break
        assert line, f"ended after {count} events"
    writer.close()
    assert count == 20, count


async def websocket(world):
    reader, writer = await dial(world, "plain")
    writer.write(request("/ws", fields="Connection: Upgrade\r\nUpgrade: websocket\r\n"))
    status, _ = await head(reader)
    assert status == 101, status
    await echoes(reader, writer)


async def tcp(world):
    await echoes(*await dial(world, "tcp"))


async def echoes(reader, writer):
    for _ in range(random.randrange(1, 40)):
        data = b"z" * random.randrange(1, 5000)
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        await asyncio.sleep(random.uniform(0, 0.4))
    if random.random() < 0.2:
        writer.transport.abort()
    else:
        writer.close()


async def udp(world):
    def ask():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(10)
            sock.connect((HERE, world.addresses["udp"]))
            sock.send(b"datagram")
            assert sock.recv(100) == b"datagram"

    await asyncio.to_thread(ask)


async def slow_head(world):
    """A byte now and then, and sometimes never the end."""
    reader, writer = await dial(world, "plain")
    for byte in request()[: random.choice([10, 30, 1000])]:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.1)
    writer.transport.abort() if random.random() < 0.5 else writer.close()


async def slow_reader(world):
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (HERE, world.addresses["plain"]))
        await loop.sock_sendall(sock, request("/big"))
        for _ in range(random.randrange(1, 20)):
            assert await loop.sock_recv(sock, 2048)
            await asyncio.sleep(0.3)


async def breaks_off(world):
    """In the midst of a request, of an upload, or of an answer."""
    reader, writer = await dial(world, "plain")
    whole = random.choice([request()[:20], request("/", "POST", "Content-Length: 1000\r\n") + b"part", request("/big"), b""])
    writer.write(whole)
    await asyncio.sleep(random.uniform(0, 0.3))
    writer.transport.abort()


async def nonsense(world):
    reader, writer = await dial(world, random.choice(["plain", "tls"]))
    writer.write(random.randbytes(random.randrange(1, 2000)))
    await asyncio.sleep(0.2)
    writer.transport.abort()


def http2(context):
    """Some requests side by side on one connection."""

    if context:
        context = worlds.trusting()
        context.set_alpn_protocols(["h2"])

    async def turn(world):
        reader, writer = await dial(world, "tls" if context else "plain", context)
        try:
            connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
            connection.initiate_connection()
            begun, waiting = time.monotonic(), {}
            for _ in range(random.randrange(1, 12)):
                stream = connection.get_next_available_stream_id()
                path = random.choice(["/", "/", "/", "/big"])
                scheme = "https" if context else "http"
                fields = [(":method", "GET"), (":scheme", scheme), (":authority", HOST), (":path", path)]
                connection.send_headers(stream, fields, end_stream=True)
                waiting[stream] = 0
            writer.write(connection.data_to_send())
            while waiting:
                data = await reader.read(65536)
                assert data, "the connection ended"
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        assert dict(event.headers)[":status"] == "200", event.headers
                    elif isinstance(event, h2.events.DataReceived):
                        connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, h2.events.StreamEnded):
                        del waiting[event.stream_id]
                        world.took.append(time.monotonic() - begun)
                    elif isinstance(event, h2.events.StreamReset):
                        raise AssertionError("a stream was reset")
                writer.write(connection.data_to_send())
        finally:
            writer.close()

    return turn
