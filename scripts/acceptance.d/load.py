"""A steady load that counts every request, and a ledger of what came back.

The generator is a process of its own: so many requests a second, whatever becomes of them, over keep-alive connections.
Beside the load, it asks for one path over and over (the probe), whose answers are noted and never counted as failures.
"""

import asyncio
import collections
import multiprocessing
import threading
import time

CONNECTIONS = 48
# Nothing is inherited: a copy of a socket would keep it open.
SPAWN = multiprocessing.get_context("spawn")
# Seconds after which a request without an answer is a failure.
LOST = 5.0


class Connection(asyncio.Protocol):
    def __init__(self, load):
        self.load, self.buffer, self.asked = load, b"", None

    def connection_made(self, transport):
        self.transport = transport
        self.load.free(self)

    def ask(self, path, probe):
        self.asked = (time.monotonic(), path, probe)
        self.transport.write(b"GET %s HTTP/1.1\r\nHost: acceptance\r\n\r\n" % path.encode())

    def data_received(self, data):
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15:].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self.buffer) < end + 4 + length:
            return
        body = self.buffer[end + 4:end + 4 + length].decode()
        self.buffer = self.buffer[end + 4 + length:]
        self.answered(int(head[9:12]), body)
        self.load.free(self)

    def connection_lost(self, error):
        self.load.connections.discard(self)
        if self.asked:
            self.answered(0, f"connection lost: {error}")
        self.load.reconnect()

    def answered(self, status, body):
        (sent, path, probe), self.asked = self.asked, None
        self.load.records.append((sent, time.monotonic(), path, probe, status, body))


class Load:
    def __init__(self, address, paths, rate, pipe):
        self.address, self.paths, self.rate, self.pipe = address, paths, rate, pipe
        self.connections, self.idle, self.records = set(), collections.deque(), []
        self.probe, self.probing = None, None

    def free(self, connection):
        self.connections.add(connection)
        if connection is self.probing:
            return
        self.idle.append(connection)

    def reconnect(self):
        if len(self.connections) < CONNECTIONS:
            asyncio.ensure_future(self.connect())

    async def connect(self):
        try:
            await asyncio.get_running_loop().create_connection(lambda: Connection(self), *self.address)
        except OSError as error:
            self.records.append((time.monotonic(), time.monotonic(), "connect", False, 0, str(error)))
            await asyncio.sleep(0.1)
            self.reconnect()

    async def run(self):
        for _ in range(CONNECTIONS):
            await self.connect()
        start, sent, flushed, swept = time.monotonic(), 0, 0.0, 0.0
        while True:
            await asyncio.sleep(0.001)
            now = time.monotonic()
            while self.pipe.poll():
                command = self.pipe.recv()
                if command == "end":
                    self.pipe.send(self.records)
                    return
                self.probe = command[1]
            for _ in range(int((now - start) * self.rate) - sent):
                connection = self.take()
                if connection is None:
                    break
                sent += 1
                connection.ask(self.paths[sent % len(self.paths)], False)
            if self.probe and (self.probing is None or self.probing.asked is None):
                if self.probing is None or self.probing.transport.is_closing():
                    self.probing = self.take()
                if self.probing:
                    self.probing.ask(self.probe, True)
            if now - swept > 1:
                swept = now
                for connection in list(self.connections):
                    if connection.asked and now - connection.asked[0] > LOST:
                        connection.answered(0, "no answer")
                        connection.transport.abort()
            if now - flushed > 0.01 and self.records:
                flushed = now
                self.pipe.send(self.records)
                self.records = []

    def take(self):
        while self.idle:
            connection = self.idle.popleft()
            if not connection.transport.is_closing():
                return connection
        return None


def _generate(address, paths, rate, pipe):
    asyncio.run(Load(address, paths, rate, pipe).run())


class Ledger:
    """What came back. `right` says whether a body is right for a path."""

    def __init__(self, address, paths, rate, right):
        self.right, self.lock = right, threading.Lock()
        self.total, self.failures, self.latencies = 0, [], collections.deque(maxlen=200_000)
        self.seen = collections.defaultdict(lambda: collections.deque(maxlen=4000))
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=_generate, args=(address, paths, rate, theirs), daemon=True)
        self.process.start()
        self.ended = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while not self.ended.is_set():
            try:
                records = self.pipe.recv()
            except EOFError:
                return
            with self.lock:
                for sent, done, path, probe, status, body in records:
                    self.seen[(path, status, body)].append((sent, done))
                    if status == 404 and probe:
                        self.seen[(path, 404, None)].append((sent, done))
                    if probe:
                        continue
                    self.total += 1
                    self.latencies.append(done - sent)
                    if status != 200 or not self.right(path, body):
                        self.failures.append((sent, path, status, body))

    def counts(self):
        with self.lock:
            return self.total, len(self.failures)

    def probe(self, path):
        self.pipe.send(("probe", path))

    def first(self, key, since):
        """When the first request that was sent after `since` was answered like this; None if none was."""
        with self.lock:
            found = None
            for sent, done in reversed(self.seen[key]):
                if sent < since:
                    break
                found = done
            return found

    def last(self, key):
        """When the last request was sent that was answered like this."""
        with self.lock:
            return self.seen[key][-1][0] if self.seen[key] else None

    def end(self):
        self.ended.set()
        self.process.terminate()
