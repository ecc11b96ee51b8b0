// What changed in the table, when, and what caused it.

import { clock, count, get } from "./api.js";
import { empty, h, lines } from "./dom.js";
import { listen } from "./live.js";

export async function show(root) {
    const search = h("input", { type: "search", placeholder: "Service, address, cause", "aria-label": "Search changes, key /", autocomplete: "off" });
    const found = h("span.found", { role: "status" });
    const body = h("ol.timeline.plain-list");
    let changes = [];

    function draw() {
        const words = search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
        const hits = changes.filter((change) => words.every((word) => change.text.includes(word)));
        found.textContent = count(hits.length, "change");
        const opened = new Set([...body.querySelectorAll("details[open]")].map((node) => node.dataset.at));
        body.replaceChildren(...(changes.length === 0 ? [empty("Nothing has changed yet.", "The first table and every later change appear here.")] : hits.slice(0, SHOWN).map((change) => entry(change, opened))));
    }

    function entry(change, opened) {
        const more = change.added + change.removed - change.lines.length;
        const details = h("details", { "data-at": String(change.at), open: opened.has(String(change.at)) },
            h("summary", {},
                h("time", { datetime: new Date(change.at * 1000).toISOString() }, clock(change.at)),
                h("span.cause", {}, change.cause),
                h("span.amount", {}, change.added > 0 && h("span.plus", {}, `+${change.added}`), " ", change.removed > 0 && h("span.minus", {}, `\u2212${change.removed}`))));
        const fill = () => {
            if (details.open && details.childElementCount === 1) details.append(lines(more > 0 ? [...change.lines, `and ${more} more`] : change.lines));
        };
        details.addEventListener("toggle", fill);
        fill();
        return h("li", {}, details);
    }

    async function load() {
        const got = await get("/api/timeline?limit=1000");
        changes = got.changes.map((change) => ({ ...change, text: [change.cause, clock(change.at), ...change.lines].join(" ").toLowerCase() }));
        draw();
    }

    search.addEventListener("input", draw);
    root.append(h("h1", {}, "Timeline"), h("p.lead", {}, "Changes of the table that this process has made, the newest first."), h("div.tools", {}, search, found), body);
    await load();
    const stop = listen((kind) => { if (kind === "table") load().catch(() => {}); });
    return { search, end: stop };
}

const SHOWN = 300;
