// Certificates, when they end, what is wrong with them, and what came of handshakes.

import { ago, clock, get, span } from "./api.js";
import { empty, h, note } from "./dom.js";

const DAY = 86400;

export async function show(root) {
    const { sources, listeners } = await get("/api/certificates");
    root.append(h("h1", {}, "Certificates"));
    if (sources.length === 0) {
        root.append(empty("No certificates are in use.", "Listeners with a certificate source (proxy.cs, cs= in proxy.addr) show theirs here."));
        return {};
    }
    for (const source of sources) {
        if (source.error) root.append(note("bad", h("strong", {}, `${source.name}: `), source.error));
        for (const problem of source.problems) root.append(note("warn", h("strong", {}, `${source.name}, ${problem.name}: `), problem.reason));
        for (const one of source.waiting) {
            const again = one.next === undefined ? "" : ` (again ${clock(one.next)})`;
            root.append(note("warn", h("strong", {}, `${one.name} waits for a certificate: `), one.reason, again));
        }
    }
    const all = sources.flatMap((source) => source.certificates.map((one) => ({ ...one, source: source.name })));
    all.sort((a, b) => a.notAfter - b.notAfter);
    const search = h("input", { type: "search", placeholder: "Name, source", "aria-label": "Search certificates, key /", autocomplete: "off" });
    const body = h("tbody");
    const draw = () => {
        const wanted = search.value.toLowerCase();
        body.replaceChildren(...all.filter((one) => JSON.stringify(one).toLowerCase().includes(wanted)).map(certificate));
    };
    search.addEventListener("input", draw);
    root.append(h("div.tools", {}, search), table("Certificates", ["Names", "Ends", "Source", "Issuer", "SHA-256"], body));
    draw();
    root.append(h("h2", {}, "Sources"), table("Sources", ["Source", "Type", "Where", "Read", "Changed", "Certificates"], h("tbody", {}, sources.map(origin))));
    if (listeners.length > 0) {
        root.append(h("h2", {}, "Handshakes since the start"),
            table("Handshakes", ["Listener", "Source", "Results", "Resumed", "Versions and ciphers"], h("tbody", {}, listeners.map(listener))));
    }
    return { search };
}

function table(name, columns, body) {
    return h("div.scroll", { tabindex: "0", role: "region", "aria-label": name },
        h("table", {}, h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column)))), body));
}

function certificate(one) {
    const left = one.notAfter - Date.now() / 1000;
    const kind = one.state !== "valid" || left < 3 * DAY ? "bad" : left < 21 * DAY ? "warn" : "good";
    const when = one.state === "not yet valid" ? `not valid before ${clock(one.notBefore)}` : left < 0 ? `ended ${ago(-left)}` : `in ${span(left)}`;
    const names = one.names.length > 0 ? one.names : [one.subject || one.name];
    return h("tr", {},
        h("td", {}, names.map((name) => h("div", {}, h("code", {}, name)))),
        h("td", {}, h(`span.dot.${kind}`, { "aria-hidden": "true" }), ` ${when}`, h("div.soft", {}, clock(one.notAfter))),
        h("td", {}, one.source),
        h("td", {}, one.issuer),
        h("td", {}, h("code", { title: one.fingerprint }, one.fingerprint.slice(0, 16), "\u2026")));
}

function origin(source) {
    const kind = source.error ? "bad" : source.age === undefined ? "off" : "good";
    return h("tr", {},
        h("th", { scope: "row" }, h(`span.dot.${kind}`, { "aria-hidden": "true" }), ` ${source.name}`),
        h("td", {}, source.type),
        h("td", {}, h("code", {}, source.place)),
        h("td", {}, source.age === undefined ? "not yet" : ago(source.age)),
        h("td", {}, source.changed === undefined ? "\u2013" : clock(source.changed)),
        h("td.number", {}, String(source.certificates.length)));
}

function listener(one) {
    const count = (of) => of.count.toLocaleString("en");
    return h("tr", {},
        h("th", { scope: "row" }, one.addr),
        h("td", {}, one.source),
        h("td", {}, one.handshakes.map((of) => h("div", {}, `${of.result}: ${count(of)}`))),
        h("td.number", {}, one.resumed.toLocaleString("en")),
        h("td", {}, one.ciphers.map((of) => h("div", {}, h("code", {}, `${of.version} ${of.cipher}`), ` ${count(of)}`))));
}
