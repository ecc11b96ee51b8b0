// The table: every target of every route, with what it does now.

import { ago, count, get, link, percent, rate, time, writable } from "./api.js";
import { dialog, h, note, sparkline } from "./dom.js";
import { List } from "./list.js";
import { listen, live } from "./live.js";
import { disableForm } from "./control.js";

const SORTS = {
    table: ["Table order", null],
    service: ["Service", (a, b) => order(a.service, b.service)],
    rate: ["Requests", (a, b) => now(b)[0] - now(a)[0]],
    errors: ["Errors", (a, b) => now(b)[1] - now(a)[1]],
    p99: ["p99", (a, b) => (now(b)[3] ?? -1) - (now(a)[3] ?? -1)],
    share: ["Share", (a, b) => b.share - a.share],
};
const GROUPS = { none: "No groups", host: "By host", service: "By service" };
const QUIET = [0, 0, null, null, null];

// Targets that do not get their usual share, by what names them. Asked for as often as the numbers come.
let conditions = new Map();
const name = (one) => `${one.host}${one.path} ${one.service} ${one.target}`;

async function watch() {
    try {
        conditions = new Map((await get("/api/targets")).map((one) => [name(one), one]));
    } catch {
        // An answer that is missing says nothing about targets: the next one comes in two seconds.
    }
}

const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const now = (target) => live.targets.get(target.id)?.row ?? QUIET;
const narrow = matchMedia("(max-width: 760px)");

export async function show(place, { go }) {
    let [targets, status, control] = await Promise.all([load(), get("/api/status"), get("/api/control"), watch()]);
    const query = new URLSearchParams(location.search);
    let sort = SORTS[query.get("sort")] ? query.get("sort") : "table";
    let group = GROUPS[query.get("group")] ? query.get("group") : "none";

    const search = h("input", { type: "search", id: "filter", autocomplete: "off", spellcheck: "false", placeholder: "Service, host, path, target, tag", "aria-label": "Search routes, key /", value: query.get("filter") ?? "" });
    const sorting = select("Sort", Object.entries(SORTS).map(([key, [name]]) => [key, name]), sort);
    const grouping = select("Group", Object.entries(GROUPS), group);
    const found = h("span.found", { role: "status" });
    const tiles = h("div.tiles");
    const banner = h("div");
    const body = h("div");

    const list = new List({
        label: "Routes",
        height: () => (narrow.matches ? 84 : 38),
        columns: ["Source", "Service", "Target", "Share", "Health", "Requests/s", "Errors", "p50", "p99"].map((name, at) =>
            h(at > 4 || at === 3 ? "span.cell.number" : "span.cell", { role: "columnheader" }, name)),
        row: (item) => (item.group ? groupRow(item) : targetRow(item)),
        open: (item) => { if (!item.group) details(item, go); },
    });

    function select(name, options, value) {
        const node = h("select", { "aria-label": name }, options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
        node.addEventListener("change", () => draw(true));
        return node;
    }

    function draw(keep) {
        sort = sorting.value;
        group = grouping.value;
        const words = search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
        let hits = targets.filter((target) => words.every((word) => target.text.includes(word)));
        if (SORTS[sort][1]) hits = hits.slice().sort(SORTS[sort][1]);
        found.textContent = words.length === 0 ? count(targets.length, "target") : `${hits.length.toLocaleString("en")} of ${count(targets.length, "target")}`;
        list.show(group === "none" ? hits : grouped(hits, group));
        const nothing = targets.length === 0 ? note("plain", "The table is empty. A service that registers with a tag like ", h("code", {}, "urlprefix-/path"), " appears here.")
            : hits.length === 0 ? note("plain", "Nothing fits the search.") : null;
        body.replaceChildren(...(nothing ? [nothing] : [list.node]));
        if (!nothing) list.refresh();
        if (keep) {
            const state = new URLSearchParams();
            if (search.value !== "") state.set("filter", search.value);
            if (sort !== "table") state.set("sort", sort);
            if (group !== "none") state.set("group", group);
            const text = state.toString();
            history.replaceState(null, "", location.pathname + (text === "" ? "" : `?${text}`));
        }
    }

    function facts() {
        const total = live.total;
        tiles.replaceChildren(
            tile("Requests/s", rate(total?.rate), sparkline(live.totals, 96, 28)),
            tile("Errors", total ? percent(total.error_rate) : "\u2013", null, total?.error_rate > 0.05 ? "bad" : total?.error_rate > 0.01 ? "warn" : ""),
            tile("p50", time(total?.p50, live.resolution)),
            tile("p99", time(total?.p99, live.resolution)),
            tile("Routes", status.table.routes.toLocaleString("en")),
            tile("Targets", status.table.targets.toLocaleString("en")),
            tile("Rejects", status.table.rejects.toLocaleString("en"), null, status.table.rejects > 0 ? "warn" : "", "/rejects"),
        );
        const said = [];
        if (!status.ready) said.push(note("bad", `Not ready: ${status.reason}.`));
        if (status.stale) said.push(note("warn", `These are routes that were kept on disk, right ${ago(status.stale_age)}: Consul has not said yet what they are. `, h("a", { href: pageUrl("/consul") }, "See why")));
        const down = status.sources.filter((source) => !source.up && source.failures > 0);
        if (down.length > 0) said.push(note("bad", `No answer about ${down.map((source) => (source.datacenter ? `${source.name} of ${source.datacenter}` : source.name)).join(", ")}. The table stays as it was last known. `, h("a", { href: pageUrl("/consul") }, "See why")));
        const out = [...conditions.values()].filter((one) => one.state === "ejected").length;
        if (out > 0) said.push(note("warn", `${count(out, "target is", "targets are")} passed over because of failures; ferrio tries again by itself.`));
        if (control.disabled.length > 0) said.push(note("warn", `${count(control.disabled.length, "service or instance is", "services or instances are")} disabled by hand. `, h("a", { href: pageUrl("/control") }, "See which")));
        banner.replaceChildren(...said);
    }

    search.addEventListener("input", () => draw(true));
    place.append(h("h1", {}, "Routes"), tiles, banner, h("div.tools", {}, search, sorting, grouping, found), body);

    let drawn = Date.now();
    const stop = listen(async (kind) => {
        if (kind === "stats") {
            await watch();
            facts();
            // A list that is sorted by what moves is sorted anew now and then, or nothing in it could be read.
            if (["rate", "errors", "p99"].includes(sort) && Date.now() - drawn > 6000) {
                drawn = Date.now();
                draw(false);
            } else {
                list.refresh();
            }
        } else if (kind === "table") {
            [targets, status, control] = await Promise.all([load(), get("/api/status"), get("/api/control"), watch()]);
            facts();
            draw(false);
        }
    });
    facts();
    const resized = () => list.refresh();
    narrow.addEventListener("change", resized);
    return {
        list,
        search,
        start: () => {
            draw(false);
            if (!narrow.matches) search.focus({ preventScroll: true });
        },
        end: () => {
            stop();
            list.end();
            narrow.removeEventListener("change", resized);
        },
    };
}

const pageUrl = (path) => document.body.dataset.base + path;

function tile(name, value, extra, kind = "", href) {
    const inside = [h("span.name", {}, name), h(`span.value${kind && `.${kind}`}`, {}, value ?? "\u2013"), extra];
    return href ? h("a.tile", { href: pageUrl(href) }, inside) : h("div.tile", {}, inside);
}

async function load() {
    const routes = await get("/api/table");
    return routes.flatMap((route) => route.targets.map((target, index) => {
        const src = route.host + route.path;
        const text = [src, target.service, target.dst, target.opts ?? "", target.instance ?? "", ...(target.tags ?? [])].join(" ").toLowerCase();
        return { ...target, route, src, text, first: index === 0 };
    }));
}

function grouped(targets, by) {
    const groups = new Map();
    for (const target of targets) {
        const key = by === "host" ? target.route.host || "every host" : target.service;
        const members = groups.get(key);
        if (members) members.push(target);
        else groups.set(key, [target]);
    }
    return [...groups].flatMap(([key, members]) => [{ group: key, members }, ...members]);
}

function groupRow({ group, members }) {
    const total = members.reduce((sum, member) => sum + now(member)[0], 0);
    return h("div.row.group", {}, h("span.cell.wide", { role: "rowheader" }, h("strong", {}, group), h("span.soft", {}, ` ${count(members.length, "target")}`)),
        h("span.cell.number", { role: "cell" }, rate(total)));
}

function health(target) {
    const [requests, errors] = now(target);
    if (target.share === 0) return ["off", "Off", "weight 0: gets no requests"];
    const condition = conditions.get(`${target.src} ${target.service} ${target.dst}`);
    if (condition) return impaired(condition);
    if (requests > 0 && errors >= 0.05) return ["bad", "Failing", `${percent(errors)} of the answers are 500 or above`];
    if (requests > 0 && errors >= 0.01) return ["warn", "Errors", `${percent(errors)} of the answers are 500 or above`];
    return ["good", "Healthy", "in the table, and no more than 1% errors"];
}

const REASONS = { connections: "connections to it fail", gateway_errors: "it answers 502, 503 or 504, or not in time", success_rate: "too few of its answers are good", probe: "its own check fails" };

function impaired({ state, reason, left, share, in_flight: busy, waiting }) {
    const rest = left === null ? "" : `, for ${Math.max(1, Math.round(left))} s more`;
    if (state === "ejected") return ["bad", "Ejected", `passed over: ${REASONS[reason] ?? reason}${rest}`];
    if (state === "full") return ["warn", "Full", `${count(busy, "request")} under way, ${waiting.toLocaleString("en")} waiting: maxconn lets in no more`];
    return ["warn", "Starting", `gets ${percent(share)} of its share (slowstart)${rest}`];
}

function targetRow(target) {
    const [requests, errors, p50, p99] = now(target);
    const [kind, word, title] = health(target);
    const past = live.targets.get(target.id)?.past ?? [];
    const wrong = /^https?:\//i.test(target.src);
    return h("div.row", { title: wrong ? "The source must not contain a scheme: write host/path" : undefined },
        h(`span.cell.source${wrong ? ".wrong" : ""}`, { role: "cell", title: target.src }, h("span.text", {}, wrong ? "\u26a0 " : "", sourceLink(target)), target.route.class !== "http" && h("span.badge", {}, target.route.class)),
        h("span.cell.service", { role: "cell", title: target.service }, target.service),
        h("span.cell.dst", { role: "cell", title: target.dst }, h("span.text", {}, target.dst.replace(/(?<=[^/])\/$/, "")), target.opts && h("span.badge", { title: target.opts }, "opts")),
        h("span.cell.number.share", { role: "cell" }, target.share < 1 && meter(target.share), h("span", {}, percent(target.share))),
        h("span.cell.health", { role: "cell", title }, h(`span.dot.${kind}`, { "aria-hidden": "true" }), h("span", {}, word)),
        h("span.cell.number.requests", { role: "cell" }, past.length > 0 && sparkline(past, 56, 18), h(requests === 0 ? "span.soft" : "span", {}, rate(requests))),
        h(`span.cell.number.errors${errors >= 0.05 ? ".bad" : errors >= 0.01 ? ".warn" : ""}`, { role: "cell" }, p50 === null && requests === 0 ? "\u2013" : percent(errors)),
        h("span.cell.number.p50", { role: "cell" }, time(p50, live.resolution)),
        h("span.cell.number.p99", { role: "cell" }, time(p99, live.resolution)));
}

function meter(share) {
    const bar = h("span.fill");
    bar.style.width = `${Math.round(share * 100)}%`;
    return h("span.meter", { "aria-hidden": "true" }, bar);
}

function webLink(text, href, newTab) {
    let to;
    try {
        to = new URL(href, location.href);
    } catch {
        return text;
    }
    if (to.protocol !== "http:" && to.protocol !== "https:") return text;
    return h("a", { href: to.href, rel: "noreferrer noopener", target: newTab ? "_blank" : "_self", tabindex: "-1" }, text);
}

function sourceLink(target) {
    const { src, dst } = target;
    if (!link.enabled || /^https?:\//i.test(src) || !/^https?:\/\//i.test(dst)) return src;
    const scheme = link.scheme === "" ? "" : `${link.scheme}:`;
    if (!src.startsWith("/")) return webLink(src, `${scheme}//${src}`, link.newTab);
    const host = link.host === "" ? location.hostname : link.host;
    const port = link.port === "" || src.includes(":") ? "" : `:${link.port}`;
    return webLink(src, `${scheme}//${host}${port}${src}`, link.newTab);
}

function details(target, go) {
    const [requests, errors, p50, p99, mean] = now(target);
    const row = (name, ...value) => [h("dt", {}, name), h("dd", {}, ...value)];
    const box = dialog(target.src,
        h("dl.facts", {},
            row("Service", target.service),
            row("Target", h("code", {}, target.dst)),
            target.instance && row("Instance", h("code", {}, target.instance)),
            target.datacenter && row("Datacenter", `${target.datacenter}, asked while ours has no target that can be used`),
            row("Share", `${percent(target.share, 2)}${target.fixed === undefined ? "" : `, fixed at ${target.fixed}`}`),
            target.opts && row("Options", h("code", {}, target.opts)),
            target.tags && row("Tags", target.tags.map((tag) => h("span.badge", {}, tag))),
            row("Health", health(target)[2]),
            row("Requests/s", rate(requests)),
            row("Errors", percent(errors)),
            row("Times", `p50 ${time(p50, live.resolution)}, p99 ${time(p99, live.resolution)}, mean ${mean === null ? "\u2013" : `${(mean * 1000).toFixed(1)} ms`}`)),
        h("div.buttons", {},
            target.route.class === "http" && h("button", { type: "button", onclick: () => {
                box.close();
                go(`/explain?url=${encodeURIComponent(`http://${target.src}`)}`);
            } }, "Explain"),
            h("button", { type: "button", onclick: () => {
                box.close();
                go(`/routes?filter=${encodeURIComponent(target.service)}`);
            } }, "Only this service"),
            writable && h("button", { type: "button", onclick: () => {
                box.close();
                disableForm({ service: target.service, instance: target.instance ?? target.dst });
            } }, "Disable\u2026")));
}
