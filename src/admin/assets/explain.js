// Where a URL goes, and why.

import { get, percent } from "./api.js";
import { h, note } from "./dom.js";

const KINDS = { forward: ["good", "Forwarded"], redirect: ["good", "Redirected"], denied: ["bad", "403 Forbidden"], "no-target": ["warn", "503, no target"], "no-route": ["bad", "No route"], answered: ["warn", "Answered by ferrio"] };

export async function show(root) {
    const query = new URLSearchParams(location.search);
    const input = h("input", { type: "text", inputmode: "url", id: "url", autocomplete: "off", spellcheck: "false", placeholder: "https://www.example.com/path?query", value: query.get("url") ?? "", required: true });
    const method = h("select", { id: "method" }, ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"].map((name) => h("option", { value: name, selected: name === query.get("method") }, name)));
    const client = h("input", { type: "text", id: "client", autocomplete: "off", placeholder: "10.0.0.7", value: query.get("client") ?? "" });
    const headers = h("textarea", { id: "headers", rows: "2", spellcheck: "false", placeholder: "Name: value", value: query.getAll("header").join("\n") });
    const result = h("div", { "aria-live": "polite" });
    let latest = 0;

    async function explain() {
        const asked = new URLSearchParams({ url: input.value });
        if (method.value !== "GET") asked.set("method", method.value);
        if (client.value.trim() !== "") asked.set("client", client.value.trim());
        for (const line of headers.value.split("\n").filter((line) => line.trim() !== "")) asked.append("header", line);
        history.replaceState(null, "", `${location.pathname}?${asked}`);
        const mine = ++latest;
        let shown;
        try {
            shown = answer(await get(`/api/explain?${asked}`));
        } catch (error) {
            shown = [note("bad", error.message)];
        }
        if (mine === latest) result.replaceChildren(...shown);
    }

    const form = h("form.panel", { onsubmit: (event) => {
        event.preventDefault();
        explain();
    } },
        h("label.field.wide", { for: "url" }, "URL", input),
        h("details.more", { open: client.value !== "" || headers.value !== "" }, h("summary", {}, "Client, method, headers"),
            h("div.fields", {},
                h("label.field", { for: "method" }, "Method", method),
                h("label.field", { for: "client" }, "Client address", client),
                h("label.field.wide", { for: "headers" }, "Headers, one per line", headers))),
        h("div.buttons", {}, h("button.primary", { type: "submit" }, "Explain")));
    root.append(h("h1", {}, "Explain"), h("p.lead", {}, "Which route takes a request, why, and which came close."), form, result);
    if (input.value !== "") await explain();
    return { search: input, start: () => input.focus({ preventScroll: true }) };
}

function answer(got) {
    const [kind, title] = KINDS[got.outcome] ?? ["warn", got.outcome];
    return [
        h(`div.outcome.${kind}`, {}, h("h2", {}, title), h("p", {}, got.summary)),
        h("dl.facts.inline", {},
            h("dt", {}, "Host"), h("dd", {}, h("code", {}, got.host || "none")),
            h("dt", {}, "Path"), h("dd", {}, h("code", {}, got.path)),
            got.query !== null && [h("dt", {}, "Query"), h("dd", {}, h("code", {}, got.query))],
            h("dt", {}, "TLS"), h("dd", {}, got.tls ? "yes" : "no")),
        got.candidates.length > 0 && h("section", {}, h("h2", {}, "Routes that fit, in order"), h("ol.cards.plain-list", {}, got.candidates.map((one, at) => h("li", {}, candidate(one, at === got.chosen))))),
        got.close.length > 0 && h("section", {}, h("h2", {}, "Came close"), h("ul.cards.plain-list", {}, got.close.map((one) => h("li", {}, candidate(one, false))))),
        got.candidates.length + got.close.length === 0 && note("plain", "No route comes close, either."),
    ].filter(Boolean);
}

function candidate(one, chosen) {
    return h(`article.card${chosen ? ".chosen" : ""}`, {},
        h("header", {}, h("code.source", {}, `${one.host}${one.path}`), one.class !== "http" && h("span.badge", {}, one.class), chosen && h("span.badge.good", {}, "taken")),
        h("p", {}, `${one.reason.charAt(0).toUpperCase()}${one.reason.slice(1)}.`),
        h("ul.targets", {}, one.targets.slice(0, SHOWN).map(target)),
        one.targets.length > SHOWN && h("p.soft", {}, `and ${one.targets.length - SHOWN} more targets`));
}

function target(one) {
    const facts = [...one.notes];
    if (one.location !== null) facts.unshift(`redirects to ${one.location}`);
    else if (one.forward !== null) facts.unshift(`is asked for ${one.forward}`);
    return h("li", {},
        h("div", {}, h("span.share", {}, percent(one.share)), " ", h("strong", {}, one.service), " ", h("code", {}, one.destination), one.instance && h("span.soft", {}, ` ${one.instance}`)),
        facts.length > 0 && h("div.soft", {}, facts.join("; ")));
}

const SHOWN = 20;
