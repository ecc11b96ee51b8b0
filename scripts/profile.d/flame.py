"""A flame graph: stacks from perf, folded, and drawn as SVG by hand."""

import pathlib
import re
import subprocess
import sys
import tempfile
from xml.sax.saxutils import escape

import stand

WIDTH, ROW = 1400, 16
SHARE = 0.001


def record(binary, seconds, out):
    stand.install(["nginx", "wrk"])
    data = out / "perf.data"
    with tempfile.TemporaryDirectory(prefix="ferrio-profile-") as name:
        folder = pathlib.Path(name)
        processes = stand.Processes(folder)
        origin, proxy = stand.free_port(), stand.free_port()
        try:
            processes.start("origin", stand.LOAD_CORE, [sys.executable, stand.ROOT / "scripts/profile.d/origin.py", origin], origin)
            flags = ["-registry.backend=static", f"-registry.static.routes=route add bench / http://127.0.0.1:{origin}/",
                     f"-proxy.addr=127.0.0.1:{proxy}", f"-ui.addr=127.0.0.1:{stand.free_port()}", "-runtime.gomaxprocs=1"]
            ferrio = processes.start("ferrio", stand.PROXY_CORE, [binary, *flags], proxy)
            load = subprocess.Popen([stand.program("wrk"), "-t1", "-c64", f"-d{seconds + 1}s", f"http://127.0.0.1:{proxy}/"], stdout=subprocess.DEVNULL,
                                    preexec_fn=stand.pinned(stand.LOAD_CORE))
            subprocess.run(["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", "997", "--call-graph", "dwarf,16384", "--pid", str(ferrio.pid),
                            "--output", data, "--", "sleep", str(seconds)], check=True)
            load.wait()
        finally:
            processes.stop()
    script = subprocess.run(["perf", "script", "--input", data, "--fields", "comm,ip,sym"], capture_output=True, text=True).stdout
    stacks = folded(script)
    if not stacks:
        sys.exit("profile: perf saw no stacks")
    (out / "stacks.txt").write_text("".join(f"{';'.join(stack)} {count}\n" for stack, count in sorted(stacks.items())))
    (out / "flame.svg").write_text(drawn(stacks))
    print(f"{sum(stacks.values())} samples\n{out / 'flame.svg'}")


def folded(script):
    stacks = {}
    for block in script.split("\n\n"):
        lines = [line for line in block.splitlines() if line.strip()]
        if len(lines) < 2:
            continue
        frames = [re.sub(r"::h[0-9a-f]{16}$", "", line.strip().partition(" ")[2]) or "?" for line in lines[1:]]
        stack = (lines[0].strip(), *reversed(frames))
        stacks[stack] = stacks.get(stack, 0) + 1
    return stacks


def drawn(stacks):
    total, boxes = sum(stacks.values()), []

    def level(entries, depth, left):
        """Boxes of all stacks that share what is below this depth."""
        groups = {}
        for stack, count in entries:
            if len(stack) > depth:
                groups.setdefault(stack[depth], []).append((stack, count))
        for name, group in sorted(groups.items()):
            share = sum(count for _, count in group)
            if share / total >= SHARE:
                boxes.append((name, depth, left, share))
                level(group, depth + 1, left)
            left += share

    sys.setrecursionlimit(10_000)
    level(list(stacks.items()), 0, 0)
    deep = max(depth for _, depth, _, _ in boxes) + 1
    parts = []
    for name, depth, left, share in boxes:
        x, width, y = left / total * WIDTH, share / total * WIDTH, (deep - depth - 1) * ROW
        tone = sum(name.encode()) % 60
        letters = int(width / 6.5)
        label = f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(name[:letters])}</text>' if letters > 3 else ""
        parts.append(f'<g><title>{escape(name)} ({share / total:.1%})</title><rect x="{x:.1f}" y="{y}" width="{max(width - 0.3, 0.2):.1f}" height="{ROW - 1}" '
                     f'fill="rgb({200 + tone % 55},{90 + tone * 2},60)"/>{label}</g>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{deep * ROW}"><style>text{{font:11px monospace}}</style>' + "\n".join(parts) + "</svg>\n")
