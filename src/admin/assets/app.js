// Which page is shown, what keys do, light and dark, and the state of the connection.

import { base, rate } from "./api.js";
import { dialog, h, note } from "./dom.js";
import { listen, live } from "./live.js";

const PAGES = {
    routes: ["Routes", () => import("./routes.js")],
    rejects: ["Rejects", () => import("./rejects.js")],
    explain: ["Explain", () => import("./explain.js")],
    manual: ["Overrides", () => import("./manual.js")],
    certificates: ["Certificates", () => import("./certificates.js")],
    consul: ["Consul", () => import("./consul.js")],
    timeline: ["Timeline", () => import("./timeline.js")],
    control: ["Control", () => import("./control.js")],
    config: ["Config", () => import("./config.js")],
};
const JUMPS = { r: "routes", x: "rejects", e: "explain", o: "manual", c: "certificates", s: "consul", t: "timeline", l: "control", f: "config" };

const main = document.getElementById("main");
// What the page in sight wants to know about: { list, search, leave, end }.
let current = {};
let turn = 0;

async function show(first) {
    const [, name = "routes", ...rest] = location.pathname.slice(base.length).split("/");
    const [title, load] = PAGES[name] ?? PAGES.routes;
    const mine = ++turn;
    current.end?.();
    current = {};
    document.title = `${title} \u00b7 ${document.body.dataset.title}`;
    for (const anchor of document.querySelectorAll("#nav a")) {
        if (anchor.pathname === `${base}/${name}`) anchor.setAttribute("aria-current", "page");
        else anchor.removeAttribute("aria-current");
    }
    document.querySelector("#nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    const suffix = rest.length === 0 ? "" : `/${rest.map(decodeURIComponent).join("/")}`;
    const place = h("div.page", { "data-page": name });
    try {
        const page = await load();
        const shown = await page.show(place, { suffix, go });
        if (mine !== turn) {
            shown?.end?.();
            return;
        }
        current = shown ?? {};
    } catch (error) {
        if (mine !== turn) return;
        place.replaceChildren(h("h1", {}, title), note("bad", error.message));
    }
    main.replaceChildren(place);
    scrollTo(0, 0);
    current.start?.();
    if (!first) main.focus({ preventScroll: true });
}

// To another page, unless the one in sight has something to lose.
export function go(path) {
    if (current.leave && !current.leave()) return;
    history.pushState(null, "", base + path);
    show(false);
}

document.addEventListener("click", (event) => {
    const anchor = event.target.closest?.("a[href]");
    if (!anchor || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (anchor.target !== "" || anchor.origin !== location.origin || anchor.getAttribute("href").startsWith("#")) return;
    const path = anchor.pathname.startsWith(`${base}/`) ? anchor.pathname.slice(base.length) : "";
    if (!Object.hasOwn(PAGES, path.split("/")[1])) return;
    event.preventDefault();
    go(path + anchor.search);
});
addEventListener("popstate", () => show(false));
addEventListener("beforeunload", (event) => {
    if (current.leave && !current.leave(true)) event.preventDefault();
});

// --- keys

let jump = false;

document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select");
    if (event.key === "Escape" && typing && current.search === typing) {
        typing.blur();
        return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (jump) {
        jump = false;
        if (JUMPS[event.key]) {
            event.preventDefault();
            go(`/${JUMPS[event.key]}`);
        }
        return;
    }
    const list = current.list;
    const acts = {
        "/": () => current.search?.focus(),
        g: () => { jump = true; },
        "?": help,
        j: () => list?.move(1),
        k: () => list?.move(-1),
        ArrowDown: list && (() => list.move(1)),
        ArrowUp: list && (() => list.move(-1)),
        Enter: list?.selected >= 0 && !event.target.closest?.("a, button, summary") && (() => list.choose()),
    };
    if (acts[event.key]) {
        event.preventDefault();
        acts[event.key]();
    }
});

function help() {
    const keys = [
        ["/", "search"], ["j", "next row"], ["k", "row before"], ["Enter", "open a row"], ["Esc", "close, leave the search"],
        ["?", "this help"], ...Object.entries(JUMPS).map(([key, page]) => [`g ${key}`, PAGES[page][0]]),
        ["Ctrl S", "save an override"],
    ];
    dialog("Keys", h("dl.keys", {}, keys.map(([key, what]) => [h("dt", {}, key.split(" ").map((one) => h("kbd", {}, one))), h("dd", {}, what)])));
}

document.getElementById("help-button").addEventListener("click", help);

// --- light and dark

const THEMES = ["auto", "light", "dark"];
const themeButton = document.getElementById("theme-button");

function stored() {
    try {
        return localStorage.getItem("ferrio-theme") ?? "auto";
    } catch {
        return "auto";
    }
}

function theme(name) {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    themeButton.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[name];
    themeButton.setAttribute("aria-label", `Colours: ${name}. Change`);
}

themeButton.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(stored()) + 1) % THEMES.length];
    try {
        localStorage.setItem("ferrio-theme", next);
    } catch {
        // Without storage it lasts for this page.
    }
    theme(next);
});
theme(stored());

// --- the state of the connection

const sign = document.getElementById("live");

listen((kind) => {
    if (kind === "stats") {
        const text = `${rate(live.total.rate)} req/s`;
        if (sign.firstChild?.nodeValue !== text) sign.textContent = text;
    } else if (kind === "state" && !live.connected) {
        sign.textContent = "not live";
    }
    sign.classList.toggle("on", live.connected);
});

show(true);
