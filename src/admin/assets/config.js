// Every option with its value and where that comes from.

import { count, get } from "./api.js";
import { h } from "./dom.js";

export async function show(root) {
    const all = await get("/api/config/effective");
    const search = h("input", { type: "search", placeholder: "Key, value, help", "aria-label": "Search options, key /", autocomplete: "off" });
    const changed = h("input", { type: "checkbox", id: "changed" });
    const found = h("span.found", { role: "status" });
    const body = h("div.options");

    function draw() {
        const words = search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
        const text = (one) => [one.key, one.value, one.help, one.source].join(" ").toLowerCase();
        const hits = all.filter((one) => (!changed.checked || !one.default) && words.every((word) => text(one).includes(word)));
        found.textContent = count(hits.length, "option");
        body.replaceChildren(...hits.map((one) => h(`div.option${one.default ? "" : ".set"}`, {},
            h("div", {}, h("code.key", {}, one.key), one.since === "ferrio" && h("span.badge", {}, "new"), h("p.soft", {}, one.help)),
            h("div", {}, h("code.value", {}, one.value === "" ? "\u2013" : one.value), h("p.soft", {}, one.source)))));
    }

    search.addEventListener("input", draw);
    changed.addEventListener("change", draw);
    root.append(h("h1", {}, "Config"), h("p.lead", {}, "What is in force, and where each value comes from. Secrets are masked."),
        h("div.tools", {}, search, h("label.check-label", { for: "changed" }, changed, "Only what is set"), found), body);
    draw();
    return { search };
}
