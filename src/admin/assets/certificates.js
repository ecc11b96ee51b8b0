// Certificates and when they end.

import { ago, clock, get, span } from "./api.js";
import { empty, h, note } from "./dom.js";

export async function show(root) {
    root.append(h("h1", {}, "Certificates"));
    let got;
    try {
        got = await get("/api/certificates");
    } catch (error) {
        if (error.status !== 404) throw error;
        got = [];
    }
    const all = (Array.isArray(got) ? got : got.certificates ?? []).slice().sort((a, b) => ends(a) - ends(b));
    if (all.length === 0) {
        root.append(empty("No certificates are in use.", "Listeners with a certificate source (proxy.cs, cs= in proxy.addr) show theirs here."));
        return {};
    }
    const errors = (got.sources ?? []).filter((source) => source.error);
    for (const source of errors) root.append(note("bad", h("strong", {}, `${source.name}: `), source.error));
    const search = h("input", { type: "search", placeholder: "Name, source", "aria-label": "Search certificates, key /", autocomplete: "off" });
    const body = h("tbody");
    const draw = () => body.replaceChildren(...all.filter((one) => JSON.stringify(one).toLowerCase().includes(search.value.toLowerCase())).map(row));
    search.addEventListener("input", draw);
    root.append(h("div.tools", {}, search), h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Certificates" }, h("table", {},
        h("thead", {}, h("tr", {}, ["Names", "Ends", "Source", "Issuer"].map((name) => h("th", { scope: "col" }, name)))), body)));
    draw();
    return { search };
}

// Seconds since 1970, in whatever form it is given.
function ends(one) {
    const at = one.not_after ?? one.expires ?? one.end;
    return typeof at === "number" ? at : Date.parse(at) / 1000;
}

function row(one) {
    const left = ends(one) - Date.now() / 1000;
    const kind = left < 3 * 86400 ? "bad" : left < 21 * 86400 ? "warn" : "good";
    const names = one.names ?? one.sans ?? (one.name ? [one.name] : [one.subject ?? "?"]);
    return h("tr", {},
        h("td", {}, names.map((name) => h("div", {}, h("code", {}, name)))),
        h("td", {}, Number.isFinite(left) ? [h(`span.dot.${kind}`, { "aria-hidden": "true" }), ` ${left < 0 ? `ended ${ago(-left)}` : `in ${span(left)}`}`, h("div.soft", {}, clock(ends(one)))] : "unknown"),
        h("td", {}, one.source ?? ""),
        h("td", {}, one.issuer ?? ""));
}
