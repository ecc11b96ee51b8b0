// The two pages of the admin listener. Everything that comes from the API enters the page as text, never as markup.

const { page, base, suffix, writable, linkEnabled, linkNewTab, linkScheme, linkHost, linkPort } = document.body.dataset;
const at = (id) => document.getElementById(id);

// --- small helpers

function element(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
}

function show(node, text) {
    node.textContent = text;
    node.hidden = text === "";
}

async function get(path) {
    const response = await fetch(base + path, { cache: "no-store" });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${(await response.text()).trim()}`);
    return response.json();
}

const encodePath = (path) => path.split("/").map(encodeURIComponent).join("/");

function ago(seconds) {
    if (seconds === null || seconds === undefined) return "never";
    if (seconds < 2) return "just now";
    if (seconds < 120) return `${Math.round(seconds)} s ago`;
    if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`;
    return `${Math.round(seconds / 3600)} h ago`;
}

// --- the menu of overrides, on both pages

async function loadOverrides() {
    if (!writable) return;
    at("overrides").hidden = false;
    const paths = new Set(["", ...((await get("/api/paths")) ?? [])]);
    for (const path of paths) {
        const link = element("a", { href: `${base}/manual${encodePath(path)}` }, path === "" ? "default" : path);
        if (page === "manual" && path === suffix) link.setAttribute("aria-current", "page");
        at("override-list").append(element("li", {}, link));
    }
    document.addEventListener("keydown", (event) => {
        if (event.key === "Escape" && at("overrides").open) {
            at("overrides").open = false;
            at("overrides").querySelector("summary").focus();
        }
    });
}

// --- routes

const FIRST = 500;

function webLink(text, href, newTab) {
    let url;
    try {
        url = new URL(href, location.href);
    } catch {
        return text;
    }
    if (url.protocol !== "http:" && url.protocol !== "https:") return text;
    const link = element("a", { href: url.href, rel: "noreferrer noopener" }, text);
    if (newTab) link.target = "_blank";
    return link;
}

const isWrong = (route) => /^https?:\//i.test(route.src);

function sourceLink(route) {
    if (!linkEnabled || isWrong(route) || !/^https?:\/\//i.test(route.dst)) return route.src;
    const scheme = linkScheme === "" ? "" : `${linkScheme}:`;
    if (!route.src.startsWith("/")) return webLink(route.src, `${scheme}//${route.src}`, linkNewTab);
    const host = linkHost === "" ? location.hostname : linkHost;
    const port = linkPort === "" || route.src.includes(":") ? "" : `:${linkPort}`;
    return webLink(route.src, `${scheme}//${host}${port}${route.src}`, linkNewTab);
}

function cell(label, ...children) {
    return element("td", { "data-label": label }, ...children);
}

function routeRow(route) {
    const wrong = isWrong(route);
    const source = wrong ? [element("span", { "aria-hidden": "true" }, "\u26a0 "), route.src] : [sourceLink(route)];
    const row = element(
        "tr",
        {},
        cell("#", String(route.number)),
        cell("Service", route.service),
        cell("Source", ...source),
        cell("Dest", webLink(route.dst, route.dst, true)),
        cell("Options", route.opts),
        cell("Weight", route.percent),
    );
    if (wrong) {
        row.className = "wrong";
        row.title = "The source must not contain a scheme: write host/path";
    }
    return row;
}

async function routesPage() {
    const routes = ((await get("/api/routes")) ?? []).map((route, index) => {
        const percent = `${(route.weight * 100).toFixed(2)}%`;
        const number = index + 1;
        return { ...route, number, percent, text: [number, route.service, route.src, route.dst, route.opts, percent].join(" ") };
    });
    const filter = at("filter");
    let limit = FIRST;

    function draw() {
        const words = filter.value.split(/\s+/).filter((word) => word !== "");
        const hits = routes.filter((route) => words.every((word) => route.text.includes(word)));
        at("route-rows").replaceChildren(...hits.slice(0, limit).map(routeRow));
        at("count").textContent = words.length === 0 ? `${routes.length} targets` : `${hits.length} of ${routes.length} targets`;
        show(at("more"), hits.length > limit ? `Show all ${hits.length}` : "");
    }

    filter.value = new URLSearchParams(location.search).get("filter") ?? "";
    filter.addEventListener("input", () => {
        const query = filter.value === "" ? "" : `?filter=${encodeURIComponent(filter.value)}`;
        history.replaceState(null, "", location.pathname + query);
        limit = FIRST;
        draw();
    });
    at("more").addEventListener("click", () => {
        limit = Infinity;
        draw();
    });
    draw();
    filter.focus();
}

function place(reject) {
    switch (reject.origin) {
        case "tag": return `${reject.service} on ${reject.instance}`;
        case "key": return `${reject.key}:${reject.line}`;
        case "file": return `${reject.file}:${reject.line}`;
        case "static": return `registry.static.routes:${reject.line}`;
        case "custom": return `element ${reject.index} of the custom registry`;
        default: return reject.origin;
    }
}

async function showRejects() {
    const rejects = (await get("/api/rejects")) ?? [];
    at("rejects").hidden = rejects.length === 0;
    at("rejects-title").textContent = `Not usable (${rejects.length})`;
    at("reject-rows").replaceChildren(...rejects.slice(0, FIRST).map((reject) =>
        element("tr", {}, cell("Where", place(reject)), cell("Text", reject.text), cell("Reason", reject.reason))));
}

async function showStatus() {
    const status = await get("/api/status");
    const parts = [`${status.table.routes} routes, ${status.table.targets} targets`];
    if (status.table.age !== null) parts.push(`table changed ${ago(status.table.age)}`);
    if (!status.ready) parts.push(`not ready: ${status.reason}`);
    for (const source of status.sources.filter((source) => !source.up)) parts.push(`${source.name} does not answer`);
    at("status").textContent = parts.join(" \u00b7 ");

    at("sources").hidden = status.sources.length === 0;
    at("source-list").replaceChildren(...status.sources.map((source) => {
        const state = source.up ? element("span", { class: "good" }, "up") : element("strong", {}, "down");
        return element("li", {}, `${source.name}: `, state, `, answered ${ago(source.age)}${source.error ? `. ${source.error}` : ""}`);
    }));
    if (status.sources.some((source) => !source.up)) at("sources").open = true;

    at("changes").hidden = status.changes.length === 0;
    at("change-list").replaceChildren(...status.changes.map((change) =>
        element("li", {}, new Date(change.at * 1000).toLocaleString(), element("pre", { class: "diff" }, change.lines.join("\n")))));
}

// --- the editor

async function manualPage() {
    const path = `/api/manual${encodePath(suffix)}`;
    const text = at("text");
    let version = "0";
    let saved = "";

    async function load() {
        ({ value: saved, version } = await get(path));
        text.value = saved;
        text.disabled = false;
        at("save").disabled = false;
        show(at("error"), "");
        at("force").hidden = true;
    }

    async function save(force) {
        at("save").disabled = true;
        show(at("error"), "");
        at("status").textContent = "";
        try {
            const response = await fetch(base + path + (force ? "?force=true" : ""), {
                method: "PUT",
                headers: { "Content-Type": "application/json" },
                body: JSON.stringify({ value: text.value, version }),
            });
            if (response.ok) {
                await load();
                at("status").textContent = `Saved at ${new Date().toLocaleTimeString()}.`;
                return;
            }
            const reason = (await response.text()).trim();
            show(at("error"), response.status === 409
                ? `${reason}\nSomebody else has changed this text meanwhile. Copy what you need, then reload.`
                : `${response.status}: ${reason}`);
            at("force").hidden = response.status !== 400;
        } catch (error) {
            show(at("error"), String(error.message));
        } finally {
            at("save").disabled = false;
        }
    }

    at("editor").addEventListener("submit", (event) => {
        event.preventDefault();
        save(false);
    });
    at("force").addEventListener("click", () => save(true));
    at("reload").addEventListener("click", () => {
        if (text.value === saved || confirm("Discard your changes?")) report(load());
    });
    text.addEventListener("keydown", (event) => {
        if (event.key === "s" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            save(false);
        }
    });
    at("help-toggle").addEventListener("click", () => {
        at("help").hidden = !at("help").hidden;
        at("help-toggle").setAttribute("aria-expanded", String(!at("help").hidden));
    });
    addEventListener("beforeunload", (event) => {
        if (text.value !== saved) event.preventDefault();
    });
    await load();
    text.focus();
}

// --- start

function report(work) {
    return work.catch((error) => {
        const box = at("error");
        show(box, box.hidden ? error.message : `${box.textContent}\n${error.message}`);
    });
}

report(loadOverrides());
if (page === "manual") {
    report(manualPage());
} else {
    report(routesPage());
    report(showRejects());
    report(showStatus());
}
