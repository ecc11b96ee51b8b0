// Where routes come from, and how that is.

import { ago, get, span } from "./api.js";
import { empty, h, note } from "./dom.js";
import { listen } from "./live.js";

const full = (source) => (source.datacenter ? `${source.name} of ${source.datacenter}` : source.name);

export async function show(root) {
    const body = h("div");
    root.append(h("h1", {}, "Consul and other sources"), body);

    async function load() {
        const status = await get("/api/status");
        const { table, consul, sources, datacenters = [] } = status;
        const fact = (name, value, kind = "") => h("div.tile", {}, h("span.name", {}, name), h(`span.value${kind && `.${kind}`}`, {}, value));
        const seconds = (value) => (value === null ? "\u2013" : span(value));
        body.replaceChildren(
            h("div.tiles", {},
                consul && fact("Leader", consul.known_leader ? "known" : "none", consul.known_leader ? "good" : "bad"),
                consul && fact("Last contact", consul.last_contact === 0 ? "0 ms" : seconds(consul.last_contact), consul.last_contact > 5 ? "warn" : ""),
                fact("News to table", seconds(table.lag)),
                fact("Build", seconds(table.build)),
                fact("Table changed", table.age === null ? "never" : ago(table.age)),
                fact("Services", table.services.toLocaleString("en")),
                fact("Instances", table.instances.toLocaleString("en"))),
            ...(datacenters.length < 2 ? [] : [h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Datacenters" }, h("table", {},
                h("thead", {}, h("tr", {}, ["Datacenter", "State", "Last answer", "Last contact with its leader", "Services", "Instances"].map((name) => h("th", { scope: "col" }, name)))),
                h("tbody", {}, datacenters.map((one) => h("tr", {},
                    h("th", { scope: "row" }, one.name, one.own && h("span.soft", {}, " ours, preferred")),
                    h("td.state", {}, h(`span.dot.${one.state === "failing" ? "bad" : one.state === "unknown" ? "off" : "good"}`, { "aria-hidden": "true" }),
                        one.state === "unknown" ? " no answer yet" : ` ${one.state}`),
                    h("td", {}, ago(one.age)),
                    h("td.number", {}, one.last_contact === undefined ? "\u2013" : one.known_leader ? one.last_contact === 0 ? "0 ms" : span(one.last_contact) : "no leader"),
                    h("td.number", {}, one.services.toLocaleString("en")),
                    h("td.number", {}, one.instances.toLocaleString("en")))))))]),
            sources.length === 0 ? empty("Routes come from the configuration.", "There is no source that could fail.")
                : h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Sources" }, h("table", {},
                    h("thead", {}, h("tr", {}, ["Source", "State", "Last answer", "Index", "Failures"].map((name) => h("th", { scope: "col" }, name)))),
                    h("tbody", {}, sources.map((source) => h("tr", {},
                        h("th", { scope: "row" }, full(source)),
                        h("td.state", {}, h(`span.dot.${source.failures > 0 ? "bad" : source.age === null ? "off" : source.warning ? "warn" : "good"}`, { "aria-hidden": "true" }),
                            source.failures > 0 ? " failing" : source.age === null ? " no answer yet" : " well"),
                        h("td", {}, ago(source.age)),
                        h("td.number", {}, source.index === 0 ? "\u2013" : String(source.index)),
                        h("td.number", {}, String(source.failures))))))),
            ...(status.stale ? [note("warn", `Routes in force were kept on disk and were right ${ago(status.stale_age)}.`)] : []),
            ...sources.filter((source) => source.error).map((source) => note("bad", h("strong", {}, `${full(source)}: `), source.error)),
            ...sources.filter((source) => source.warning).map((source) => note("warn", h("strong", {}, `${full(source)}: `), source.warning)),
            h("p.soft", {}, "A blocking query that waits for news answers at least every few minutes, so an old last answer alone is no trouble. What was last known stays in force while a source fails."));
    }

    await load();
    const timer = setInterval(() => load().catch(() => {}), 5000);
    const stop = listen((kind) => { if (kind === "table") load().catch(() => {}); });
    return { end: () => {
        clearInterval(timer);
        stop();
    } };
}
