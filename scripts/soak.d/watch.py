"""What was seen over time: bounds, words, and a plot."""

from xml.sax.saxutils import escape

GROWTH = 1.0
WIDTH, HEIGHT, LEFT = 900, 110, 90
ROWS = [("memory", "MB resident"), ("descriptors", "descriptors"), ("threads", "threads"), ("open", "open connections of clients"),
        ("p99", "ms, 99 of 100 requests"), ("rate", "requests a second")]


def slope(samples, key):
    """Of the line with the least squares, per hour."""
    at = [sample["at"] / 3600 for sample in samples]
    of = [sample[key] for sample in samples]
    middle, mean = sum(at) / len(at), sum(of) / len(of)
    spread = sum((x - middle) ** 2 for x in at)
    return sum((x - middle) * (y - mean) for x, y in zip(at, of)) / spread if spread else 0.0


def judge(seen, warm):
    samples = [sample for sample in seen["samples"] if sample["at"] >= warm]
    if len(samples) < 10:
        samples = seen["samples"][len(seen["samples"]) // 3:]
    tenth = max(1, len(samples) // 10)
    first = max(sample["descriptors"] for sample in samples[:tenth])
    last = min(sample["descriptors"] for sample in samples[-tenth:])
    growth, broken = slope(samples, "memory"), []
    if growth >= GROWTH:
        broken.append(f"memory grows by {growth:.2f} MB an hour")
    if last > first:
        broken.append(f"{last} descriptors at the end at least, {first} at first at most")
    if seen["failed"]:
        broken.append(f"{sum(seen['failed'].values())} failures")
    return {"memory_per_hour": round(growth, 3), "descriptors_first": first, "descriptors_last": last, "judged_from": samples[0]["at"],
            "p99_per_hour": round(slope(samples, "p99"), 3), "broken": broken}


def words(verdict, seen):
    last = seen["samples"][-1]
    lines = [f"{kind:22} {count:9,} good {seen['failed'].get(kind, 0):6} failed" for kind, count in sorted(seen["good"].items())]
    lines += [f"  {count} x {why}" for why, count in sorted(seen["why"].items())]
    lines.append(f"{seen['changes']:,} changes in Consul, {seen['certificates']} certificates, {last['at'] / 60:.0f} minutes")
    lines.append(f"memory {last['memory']:.1f} MB, {verdict['memory_per_hour']:+.2f} MB an hour after {verdict['judged_from'] / 60:.0f} minutes; "
                 f"descriptors {verdict['descriptors_first']} -> {verdict['descriptors_last']}; p99 {verdict['p99_per_hour']:+.2f} ms an hour")
    lines.append("bounds kept" if not verdict["broken"] else "BROKEN: " + "; ".join(verdict["broken"]))
    return "\n".join(lines)


def plot(seen, verdict):
    samples, parts = seen["samples"], []
    end = samples[-1]["at"] or 1
    for number, (key, label) in enumerate(ROWS):
        top = 40 + number * (HEIGHT + 24)
        most = max(sample[key] for sample in samples) or 1
        points = " ".join(f"{LEFT + WIDTH * sample['at'] / end:.1f},{top + HEIGHT * (1 - sample[key] / most):.1f}" for sample in samples)
        parts.append(f'<path d="M{LEFT} {top}v{HEIGHT}h{WIDTH}" class="axis"/><polyline points="{points}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{most:,.1f}</text><text x="{LEFT + 6}" y="{top + 10}">{escape(label)}</text>')
    head = f"{end / 3600:.2f} hours; memory {verdict['memory_per_hour']:+.2f} MB an hour after {verdict['judged_from'] / 60:.0f} minutes"
    height = 50 + len(ROWS) * (HEIGHT + 24)
    style = "text{font:12px sans-serif;fill:#222}polyline{fill:none;stroke:#d1495b}.axis{fill:none;stroke:#999}"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + LEFT + 20} {height}"><style>{style}</style>'
            f'<rect width="100%" height="100%" fill="#fff"/><text x="{LEFT}" y="22">{escape(head)}</text>\n' + "\n".join(parts) + "\n</svg>\n")
