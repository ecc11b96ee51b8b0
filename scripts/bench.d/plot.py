"""The plot: for each scenario a bar per proxy, as long as what it does in a CPU-second, with the spread; SVG by hand."""

from xml.sax.saxutils import escape

COLOURS = {"nginx": "#4c9f70", "haproxy": "#4f7cac", "envoy": "#a15c9c", "traefik": "#4fb3bf", "caddy": "#8a8d91", "aralez": "#b0884f", "fabio": "#c9b037",
           "ferrio": "#d1495b"}
LEFT, LENGTH, BAR, GAP, TOP = 250, 480, 14, 16, 64


def svg(stored):
    parts, y = [], TOP
    for name, scenario in stored["scenarios"].items():
        figure = "each" if scenario["unit"].startswith("bytes") else "per_cpu_second"
        rows = {proxy: row[figure] for proxy, row in scenario["summary"].items() if figure in row}
        if not rows:
            continue
        longest = max(row["max"] for row in rows.values()) or 1
        parts.append(text(LEFT - 90, y + BAR - 3, name, "end", "bold"))
        parts.append(text(LEFT - 90, y + 2 * BAR - 2, "bytes per connection" if figure == "each" else f"{scenario['unit']} a CPU-second", "end", "small"))
        for proxy, row in rows.items():
            at = [LEFT + LENGTH * row[k] / longest for k in ("median", "min", "max")]
            middle = y + BAR / 2 - 1
            parts.append(text(LEFT - 6, y + BAR - 4, proxy, "end", "name"))
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{at[0] - LEFT:.1f}" height="{BAR - 2}" fill="{COLOURS[proxy]}"/>')
            parts.append(f'<path d="M{at[1]:.1f} {middle}H{at[2]:.1f}M{at[1]:.1f} {middle - 3}v6M{at[2]:.1f} {middle - 3}v6" class="spread"/>')
            label = f"{row['median']:,.0f}" + (f"  x{row['ratio']:.2f}" if "ratio" in row else "")
            parts.append(text(LEFT + LENGTH + 10, y + BAR - 4, label, "start", "name"))
            y += BAR
        y += max(0, 2 * BAR - len(rows) * BAR) + GAP
    machine = stored["machine"]
    head = [text(10, 22, "What proxies do in a second of their own CPU time (x: to the best peer)", "start", "title"),
            text(10, 40, f"{stored['when'][:10]}, {machine['cpu']}, Linux {machine['kernel']}; " + "; ".join(stored["versions"].values()), "start", "small")]
    style = ("text{font:12px sans-serif;fill:#222}.bold{font-weight:bold}.title{font:bold 15px sans-serif}.small{font-size:10px;fill:#666}"
             ".name{font-size:11px}.spread{stroke:#222;fill:none}")
    width = LEFT + LENGTH + 140
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}"><style>{style}</style>'
            f'<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(head + parts) + "\n</svg>\n")


def text(x, y, words, anchor, kind):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'
