// What can be changed while the process runs.

import { clock, get, send, span, writable } from "./api.js";
import { dialog, empty, h, note } from "./dom.js";
import { listen } from "./live.js";

export async function show(root) {
    const said = h("div", { "aria-live": "polite" });
    const body = h("div");
    root.append(h("h1", {}, "Control"), !writable && note("plain", "Read only: with ui.access=rw these can be changed."), said, body);

    async function put(what, fields) {
        try {
            draw(await send("PUT", `/api/control/${what}`, fields));
            said.replaceChildren();
        } catch (error) {
            said.replaceChildren(note("bad", error.message));
        }
    }

    function draw(control) {
        const level = h("select", { "aria-label": "Log level", disabled: !writable, onchange: (event) => put("log", { level: event.target.value }) },
            LEVELS.map((name) => h("option", { value: name, selected: name === control.log_level }, name)));
        body.replaceChildren(
            h("section.panel", {}, h("h2", {}, "Disabled"),
                h("p.soft", {}, control.shared ? "Taken out of the table by hand, in every process that reads the same overrides, until the time is over." : "Taken out of the table by hand, in this process, until the time is over. Without Consul nobody else sees it."),
                control.disabled.length === 0 ? empty("Nothing is disabled.", "A service or one of its instances can be taken out for a while, as if its health check failed.")
                    : h("ul.cards.plain-list", {}, control.disabled.map((one) => h("li.card", {},
                        h("header", {}, h("strong", {}, one.service), one.instance ? h("code", {}, one.instance) : h("span.badge", {}, "the whole service")),
                        h("p", {}, `Until ${clock(one.until)}, ${span(Math.max(0, one.until - Date.now() / 1000))} more${one.reason ? `: ${one.reason}` : ""}${one.by ? ` (from ${one.by})` : ""}`),
                        writable && h("button", { type: "button", onclick: () => put("enable", { service: one.service, instance: one.instance }) }, "Enable")))),
                writable && h("div.buttons", {}, h("button", { type: "button", onclick: () => disableForm({}, draw) }, "Disable\u2026"))),
            h("section.panel", {}, h("h2", {}, "This process"),
                h("div.setting", {}, h("div", {}, h("strong", {}, control.draining ? "Draining" : "Serving"),
                    h("p.soft", {}, "While it drains, /health says so, and whoever checks it sends clients elsewhere. Requests are still served.")),
                    writable && h("button", { type: "button", onclick: () => put("drain", { on: !control.draining }) }, control.draining ? "Stop draining" : "Drain")),
                h("div.setting", {}, h("div", {}, h("strong", {}, "Log level"), h("p.soft", {}, "Until the next start.")), level),
                h("div.setting", {}, h("div", {}, h("strong", {}, "Reload"), h("p.soft", {}, "As SIGHUP: opens the file of the access log again.")),
                    writable && h("button", { type: "button", onclick: () => put("reload") }, "Reload"))));
    }

    draw(await get("/api/control"));
    const load = () => get("/api/control").then(draw, () => {});
    const stop = listen((kind) => { if (kind === "table") load(); });
    return { end: stop };
}

// Asks how long and why, and disables.
export function disableForm({ service = "", instance = "" }, done) {
    const said = h("div", { "aria-live": "polite" });
    const input = (id, value, required) => h("input", { type: "text", id, value, required, autocomplete: "off", spellcheck: "false" });
    const name = input("disable-service", service, true);
    const which = input("disable-instance", instance, false);
    const reason = input("disable-reason", "", false);
    const length = h("select", { id: "disable-for" }, ["15m", "1h", "4h", "1d", "7d"].map((text) => h("option", { value: text, selected: text === "1h" }, text)));
    const box = dialog("Disable", h("form", { onsubmit: async (event) => {
        event.preventDefault();
        try {
            const control = await send("PUT", "/api/control/disable", { service: name.value.trim(), instance: which.value.trim() || null, for: length.value, reason: reason.value.trim() });
            box.close();
            done?.(control);
        } catch (error) {
            said.replaceChildren(note("bad", error.message));
        }
    } },
        h("label.field", { for: "disable-service" }, "Service", name),
        h("label.field", { for: "disable-instance" }, "Instance: node/id or target; empty: all", which),
        h("label.field", { for: "disable-for" }, "For", length),
        h("label.field", { for: "disable-reason" }, "Reason", reason),
        said,
        h("div.buttons", {}, h("button.primary", { type: "submit" }, "Disable"))));
}

const LEVELS = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];
