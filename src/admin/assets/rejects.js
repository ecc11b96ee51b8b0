// What could not be used, why, and how to write it right.

import { get, count } from "./api.js";
import { empty, h } from "./dom.js";
import { listen } from "./live.js";

function place(reject) {
    switch (reject.origin) {
        case "tag": return ["tag of service", reject.service, reject.instance];
        case "key": return ["override", reject.key, `line ${reject.line}`];
        case "file": return ["file", reject.file, `line ${reject.line}`];
        case "static": return ["property", "registry.static.routes", `line ${reject.line}`];
        case "custom": return ["custom registry", `element ${reject.index}`, ""];
        default: return [reject.origin, "", ""];
    }
}

// The override page of a key, if it is one.
function editor(reject) {
    return reject.origin === "key" ? `${document.body.dataset.base}/manual` : null;
}

export async function show(root) {
    const search = h("input", { type: "search", placeholder: "Service, tag, reason", "aria-label": "Search rejects, key /", autocomplete: "off" });
    const found = h("span.found", { role: "status" });
    const body = h("div.cards");
    let rejects = [];

    function draw() {
        const words = search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
        const text = (reject) => [...place(reject), reject.text, reject.reason, reject.tag ?? ""].join(" ").toLowerCase();
        const hits = rejects.filter((reject) => words.every((word) => text(reject).includes(word)));
        found.textContent = `${count(hits.length, "reject")}${hits.length > SHOWN ? `, the first ${SHOWN} are shown` : ""}`;
        body.replaceChildren(...(rejects.length === 0
            ? [empty("Everything is usable.", "Tags and lines that cannot be used appear here with the reason; they cost nothing but themselves.")]
            : hits.slice(0, SHOWN).map(card)));
    }

    function card(reject) {
        const [kind, name, detail] = place(reject);
        const href = editor(reject);
        return h("article.card", {},
            h("header", {}, h("span.badge", {}, kind), " ", href ? h("a", { href }, name) : h("strong", {}, name), h("span.soft", {}, detail && ` ${detail}`)),
            h("pre", { tabindex: "0", role: "group", "aria-label": "As written" }, reject.text),
            h("p", {}, reject.reason));
    }

    async function load() {
        rejects = await get("/api/rejects");
        draw();
    }

    search.addEventListener("input", draw);
    root.append(h("h1", {}, "Rejects"), h("p.lead", {}, "Tags and lines that are not served as written. Everything else is."), h("div.tools", {}, search, found), body);
    await load();
    const stop = listen((kind) => { if (kind === "table") load(); });
    return { search, end: stop };
}

const SHOWN = 300;
