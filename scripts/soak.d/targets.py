"""Targets, in a process of their own: HTTP/1.1 with pages, streams and WebSockets, TCP, and datagrams."""

import asyncio
import multiprocessing

HTTP = 6
_process = None


def start():
    global _process
    here, there = multiprocessing.Pipe()
    _process = multiprocessing.Process(target=_run, args=(there,), daemon=True)
    _process.start()
    return here.recv()


def stop():
    if _process:
        _process.terminate()
        _process.join()


def _run(pipe):
    asyncio.run(_serve(pipe))


async def _serve(pipe):
    web = [await asyncio.start_server(_web, "127.0.0.1", 0) for _ in range(HTTP)]
    echo = await asyncio.start_server(_echo, "127.0.0.1", 0)
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(_Datagrams, ("127.0.0.1", 0))
    pipe.send({"http": [server.sockets[0].getsockname()[1] for server in web], "tcp": echo.sockets[0].getsockname()[1],
               "udp": transport.get_extra_info("sockname")[1]})
    await asyncio.Event().wait()


class _Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        self.transport.sendto(data, address)


async def _echo(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def _web(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip("\r\n").split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            path = first.split()[1].split("?")[0]
            if fields.get("upgrade"):
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
                return await _echo(reader, writer)
            received = await _body(reader, fields)
            if path.endswith("/events"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                for number in range(20):
                    writer.write(b"10\r\ndata: event %02d\n\n\r\n" % number)
                    await writer.drain()
                    await asyncio.sleep(0.5)
                writer.write(b"0\r\n\r\n")
            else:
                body = b"x" * 300_000 if path.endswith("/big") else b"%d" % received
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()


async def _body(reader, fields):
    """How long it was."""
    if fields.get("transfer-encoding"):
        total = 0
        while size := int((await reader.readline()).split(b";")[0], 16):
            await reader.readexactly(size + 2)
            total += size
        while (await reader.readline()).strip():
            pass
        return total
    left = total = int(fields.get("content-length", 0))
    while left:
        left -= len(await reader.read(min(left, 65536))) or left
    return total
