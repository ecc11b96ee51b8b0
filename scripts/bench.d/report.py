"""The outcome: medians with spread, as a table, as JSON, as Markdown, and as a plot."""

import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import time

import plot
import stand

FIGURES = ("per_second", "per_cpu_second", "memory", "each")
LATENCY = ("p50_us", "p99_us", "p999_us")


def finish(args, results, versions):
    summaries = {name: summary(result) for name, result in results.items()}
    stored = {"when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": commit(), "machine": machine(), "versions": versions,
              "arguments": {"rounds": args.rounds, "seconds": args.seconds, "rate": args.rate, "profile": "given" if args.binary else args.profile, "set": args.set},
              "scenarios": {name: {"title": r["title"], "unit": r["unit"], "rate": r["rate"], "left_out": r["left_out"], "summary": summaries[name],
                                   "rounds": r["rounds"], "latency": r["latency"]} for name, r in results.items()}}
    folder = stand.TARGET / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = stored["when"].replace(":", "")
    files = {"json": json.dumps(stored, indent=1) + "\n", "md": markdown(stored), "svg": plot.svg(stored)}
    print("\n" + text(stored))
    for end, content in files.items():
        file = folder / f"{stamp}.{end}"
        file.write_text(content)
        shutil.copy(file, folder / f"latest.{end}")
        print(file)
    if args.store:
        place = stand.ROOT / "docs/bench"
        place.mkdir(parents=True, exist_ok=True)
        for end, content in files.items():
            (place / f"results.{end}").write_text(content)
            print(place / f"results.{end}")


def summary(result):
    rows = {}
    for name in dict.fromkeys(r["proxy"] for r in result["rounds"]):
        mine = [r for r in result["rounds"] if r["proxy"] == name]
        row = rows[name] = {f: spread([r[f] for r in mine]) for f in FIGURES if f in mine[0]}
        if count := sum(r["count"] for r in mine if "user" in r):
            row["user_us"] = sum(r["user"] for r in mine) / count * 1e6
            row["system_us"] = sum(r["system"] for r in mine) / count * 1e6
        row["failed"] = sum(r["failed"] for r in mine)
        timed = [r for r in result["latency"] if r["proxy"] == name]
        row |= {f: spread([r[f] for r in timed]) for f in LATENCY if timed}
    # Of ferrio and every peer to the best peer: more is better, except for what is counted in bytes.
    for figure in ("per_second", "per_cpu_second", "each"):
        choose = min if figure == "each" else max
        best = choose((row[figure]["median"] for name, row in rows.items() if name != "ferrio" and figure in row), default=0)
        for row in rows.values():
            if best and figure in row:
                row[figure]["ratio"] = row[figure]["median"] / best
    return rows


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def columns(row):
    """One proxy's line, as texts."""
    def cell(figure, scale=1):
        if figure not in row:
            return "-"
        v = row[figure]
        digits = 0 if v["median"] / scale >= 10 else 2
        return f"{v['median'] / scale:.{digits}f} ({v['min'] / scale:.{digits}f}-{v['max'] / scale:.{digits}f})"

    def ratio(figure):
        return f"x{row[figure]['ratio']:.2f}" if "ratio" in row.get(figure, {}) else "-"

    if "each" in row:
        return [cell("each"), ratio("each"), "-", "-", "-", "-", "-", "-", "-", cell("memory", 1e6)]
    return [cell("per_second"), ratio("per_second"), cell("per_cpu_second"), ratio("per_cpu_second"), f"{row['user_us']:.1f}", f"{row['system_us']:.1f}",
            *(cell(f) for f in LATENCY), cell("memory", 1e6)]


HEAD = ["a second", "", "a CPU-second", "", "user us", "sys us", "p50 us", "p99 us", "p99.9 us", "memory MB"]


def headline(stored):
    m, a = stored["machine"], stored["arguments"]
    return [f"{stored['when']}, commit {stored['commit']}; {a['rounds']} rounds of {a['seconds']:g} s; median (spread), x: ratio to the best peer",
            f"{m['cpu']}, {m['cores']} cores, {m['memory_gb']} GB, Linux {m['kernel']}, load before: {m['load']}",
            "; ".join(f"{name}: {version}" for name, version in stored["versions"].items())]


def text(stored):
    out = headline(stored)
    for name, scenario in stored["scenarios"].items():
        out.append(f"\n{name}: {scenario['title']} ({scenario['unit']}; latency at {scenario['rate']}/s)")
        lines = [["", *HEAD]] + [[proxy, *columns(row)] for proxy, row in scenario["summary"].items()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        out += ["  " + "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))) for line in lines]
        out += [f"  {proxy}: left out, {why}" for proxy, why in scenario["left_out"].items()]
    return "\n".join(out) + "\n"


def markdown(stored):
    out = ["# Figures", "", "Made by `scripts/bench --store`; what the columns mean stands in [README.md](README.md).", ""]
    out += [f"- {line}" for line in headline(stored)] + ["", "![requests per CPU-second](results.svg)", ""]
    for name, scenario in stored["scenarios"].items():
        out += [f"## {name}: {scenario['title']}", "", f"Unit: {scenario['unit']}. Latency at {scenario['rate']} a second." if scenario["rate"] else f"Unit: {scenario['unit']}.", "",
                "| proxy | " + " | ".join(h or "x" for h in HEAD) + " |", "| --- " * (len(HEAD) + 1) + "|"]
        out += ["| " + " | ".join([proxy, *columns(row)]) + " |" for proxy, row in scenario["summary"].items()]
        out += ["", *[f"Left out: {proxy}, {why}" for proxy, why in scenario["left_out"].items()]] + ([""] if scenario["left_out"] else [])
    return "\n".join(out)


def commit():
    return subprocess.run(["git", "describe", "--always", "--dirty"], cwd=stand.ROOT, capture_output=True, text=True).stdout.strip()


def machine():
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = int(re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())[1])
    return {"cpu": cpu[1] if cpu else platform.machine(), "cores": os.cpu_count(), "memory_gb": round(memory / 1e6), "kernel": platform.release(),
            "load": " ".join(f"{n:.1f}" for n in os.getloadavg()), "descriptors": stand.descriptors()}
