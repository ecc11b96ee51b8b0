"""A relay in front of Consul that can make it look ill.

It adds a large number to every index, so that taking that number away lets the index go back as after the restore of a
snapshot, while the content stays.
"""

import asyncio
import collections
import re
import threading
import time

HIGH = 1_000_000


class Relay:
    def __init__(self, consul_port):
        self.consul_port, self.fault, self.offset = consul_port, None, HIGH
        # Seconds that every answer is held back.
        self.delay = 0
        self.recent, self.writers = collections.deque(maxlen=10_000), set()
        self.tasks = set()
        started = threading.Event()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, args=(started,), daemon=True).start()
        started.wait()

    def _run(self, started):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self.loop.run_forever()

    def set(self, fault=None, offset=HIGH, cut=False):
        """`fault` gets a path and says whether it is answered with 500. `cut` ends all connections."""
        def change():
            self.fault, self.offset = fault, offset
            if cut:
                for writer in list(self.writers):
                    writer.transport.abort()
        self.loop.call_soon_threadsafe(change)

    async def _serve(self, reader, writer):
        self.writers.add(writer)
        # Or a task that waits could be collected.
        task = asyncio.current_task()
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        upstream = None
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                offset = self.offset
                body = await reader.readexactly(length(head))
                target = head.split(b" ", 2)[1].decode()
                self.recent.append((time.monotonic(), target))
                if self.fault and self.fault(target):
                    text = b"rpc error: No cluster leader"
                    writer.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
                    continue
                # An index from before it went back is passed on as it is, and Consul waits on it.
                head = re.sub(rb"([?&]index=)(\d+)", lambda m: m[1] + b"%d" % lowered(int(m[2]), offset), head, count=1)
                if upstream is None:
                    upstream = await asyncio.open_connection("127.0.0.1", self.consul_port)
                upstream[1].write(head + body)
                answer = await upstream[0].readuntil(b"\r\n\r\n")
                raised = re.sub(rb"(?i)(x-consul-index: )(\d+)", lambda m: m[1] + b"%d" % (int(m[2]) + offset), answer)
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(raised)
                if b"chunked" in answer.lower():
                    await copy_chunks(upstream[0], writer)
                else:
                    writer.write(await upstream[0].readexactly(length(answer)))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()
            if upstream:
                upstream[1].close()


def lowered(index, offset):
    return index - offset if index >= HIGH else index


def length(head):
    found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return int(found[1]) if found else 0


async def copy_chunks(reader, writer):
    while True:
        line = await reader.readline()
        size = int(line.strip() or b"0", 16)
        writer.write(line + await reader.readexactly(size + 2))
        if size == 0:
            return
