"""The services: each port answers every request with its name."""

import asyncio
import multiprocessing

# Nothing is inherited: a copy of a socket would keep it open.
SPAWN = multiprocessing.get_context("spawn")


class Origin(asyncio.Protocol):
    def __init__(self, name):
        body = name.encode()
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        self.buffer = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        # Requests have no body here.
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            self.buffer = self.buffer[end + 4:]
            self.transport.write(self.answer)


def start(names):
    """Starts a process that serves them; gives it and the ports by name."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_run, args=(names, theirs), daemon=True)
    process.start()
    return process, ours.recv()


def _run(names, pipe):
    async def main():
        loop, ports = asyncio.get_running_loop(), {}
        for name in names:
            server = await loop.create_server(lambda name=name: Origin(name), "127.0.0.1", 0, backlog=1024)
            ports[name] = server.sockets[0].getsockname()[1]
        pipe.send(ports)
        await asyncio.Event().wait()

    asyncio.run(main())
