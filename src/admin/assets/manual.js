// The overrides: text that is checked while it is written, what it would change, and what it was before.

import { Failure, base, clock, count, encodePath, get, send, writable } from "./api.js";
import { dialog, h, lines, note } from "./dom.js";

export async function show(root, { suffix, go }) {
    if (!writable) {
        root.append(h("h1", {}, "Overrides"), note("plain", "Overrides can be seen and changed only with ui.access=rw."));
        return {};
    }
    const path = `/api/manual${encodePath(suffix)}`;
    const title = suffix === "" ? "default" : suffix;
    let [{ value: saved, version }, paths, past] = await Promise.all([get(path), get("/api/paths"), get(`/api/history${encodePath(suffix)}`)]);
    let asking = null;
    let timer = 0;

    const text = document.getElementById("editor").content.firstElementChild.cloneNode(true);
    text.value = saved;
    const numbers = h("pre.numbers", { "aria-hidden": "true" });
    const check = h("p.check", { id: "check", role: "status" });
    const mistakes = h("div");
    const preview = h("div");
    const said = h("div", { "aria-live": "polite" });
    const saving = h("button.primary", { type: "button", onclick: () => save(false), title: "Ctrl S" }, "Save");
    const forcing = h("button", { type: "button", hidden: true, onclick: () => save(true) }, "Save all the same");
    const versions = h("ol.plain-list.versions");
    const changed = () => text.value !== saved;

    function number() {
        const lines = text.value.split("\n").length;
        if (numbers.childElementCount !== lines) numbers.replaceChildren(...Array.from({ length: lines }, (_, at) => h("span", {}, `${at + 1}\n`)));
        numbers.scrollTop = text.scrollTop;
    }

    function edited() {
        number();
        saving.disabled = !changed();
        forcing.hidden = true;
        clearTimeout(timer);
        timer = setTimeout(look, 500);
    }

    // What this text would change, and which of its lines are wrong.
    async function look() {
        asking?.abort();
        asking = new AbortController();
        check.textContent = "Checking\u2026";
        try {
            const got = await send("POST", "/api/manual/preview", { suffix, value: text.value }, asking.signal);
            for (const node of numbers.children) node.className = "";
            for (const reject of got.rejects) if (numbers.children[reject.line - 1]) numbers.children[reject.line - 1].className = "wrong";
            mistakes.replaceChildren(...got.rejects.slice(0, 20).map((reject) => note("bad", h("strong", {}, `Line ${reject.line}: `), reject.reason)));
            const wrong = got.rejects.length === 0 ? "Every line can be used." : `${count(got.rejects.length, "line")} cannot be used.`;
            check.textContent = got.added + got.removed === 0 ? `${wrong} Nothing would change in the table.` : `${wrong} ${got.added} added, ${got.removed} removed:`;
            preview.replaceChildren(...(got.lines.length > 0 ? [lines(got.lines)] : []));
        } catch (error) {
            if (error instanceof Failure && error.status === 0 && asking.signal.aborted) return;
            check.textContent = error.message;
        }
    }

    async function save(force) {
        if (!changed() && !force) return;
        saving.disabled = true;
        said.replaceChildren();
        try {
            await send("PUT", path + (force ? "?force=true" : ""), { value: text.value, version });
            ({ value: saved, version } = await get(path));
            text.value = saved;
            edited();
            said.replaceChildren(note("good", `Saved at ${new Date().toLocaleTimeString()}.`));
            past = await get(`/api/history${encodePath(suffix)}`);
            list();
        } catch (error) {
            if (error.status === 409) await conflict();
            else said.replaceChildren(note("bad", error.message));
            forcing.hidden = error.status !== 400;
        } finally {
            saving.disabled = !changed();
        }
    }

    async function conflict() {
        const theirs = await get(path);
        said.replaceChildren(note("bad", "Somebody else has changed this text meanwhile. "),
            difference(saved, theirs.value, "What they changed"),
            h("div.buttons", {},
                h("button", { type: "button", onclick: () => {
                    ({ value: saved, version } = theirs);
                    text.value = saved;
                    said.replaceChildren();
                    edited();
                } }, "Take theirs"),
                h("button", { type: "button", onclick: () => {
                    ({ value: saved, version } = theirs);
                    said.replaceChildren(note("warn", "Yours is kept. Saving it now replaces theirs."));
                    edited();
                } }, "Keep mine")));
    }

    function list() {
        versions.replaceChildren(...(past.length === 0 ? [h("li.soft", {}, "Nothing yet. Every text that is saved here is kept.")] : past.map((one, at) =>
            h("li", {}, h("button.link", { type: "button", onclick: () => look_back(one) }, clock(one.at)), at === 0 && h("span.soft", {}, " newest")))));
    }

    async function look_back(one) {
        try {
            const { value } = await get(`/api/history${encodePath(suffix)}?id=${encodeURIComponent(one.id)}`);
            const box = dialog(`As saved at ${clock(one.at)}`, h("pre", { tabindex: "0", role: "group", "aria-label": "The text" }, value || "(empty)"), difference(text.value, value, "Against the editor"),
                h("div.buttons", {}, h("button.primary", { type: "button", onclick: () => {
                    text.value = value;
                    box.close();
                    edited();
                    text.focus();
                } }, "Put into the editor")));
        } catch (error) {
            said.replaceChildren(note("bad", error.message));
        }
    }

    text.addEventListener("input", edited);
    text.addEventListener("scroll", () => { numbers.scrollTop = text.scrollTop; });
    text.addEventListener("keydown", (event) => {
        if (event.key === "s" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            save(false);
        }
    });

    const all = [...new Set(["", ...(paths ?? []), suffix])];
    const chooser = h("select", { "aria-label": "Override", onchange: (event) => go(`/manual${encodePath(event.target.value)}`) },
        all.map((one) => h("option", { value: one, selected: one === suffix }, one === "" ? "default" : one)));
    const fresh = h("button", { type: "button", onclick: () => {
        const name = h("input", { type: "text", id: "new-name", required: true, pattern: "/?[^\\s?#]+", autocomplete: "off" });
        const box = dialog("New override", h("form", { onsubmit: (event) => {
            event.preventDefault();
            box.close();
            go(`/manual/${encodePath(name.value.replace(/^\//, ""))}`);
        } }, h("label.field", { for: "new-name" }, "Name, below the key of the overrides", name), h("div.buttons", {}, h("button.primary", { type: "submit" }, "Open"))));
        name.focus();
    } }, "New\u2026");

    root.append(h("h1", {}, "Overrides ", h("code", {}, title)),
        h("p.lead", {}, "Route commands, applied in order after the tags of all services. ", h("a", { href: `${base}/explain` }, "Explain a URL")),
        h("div.tools", {}, chooser, fresh),
        h("div.split", {},
            h("div", {},
                h("label.sr", { for: "text" }, "Route commands"),
                h("div.edit", {}, numbers, text),
                said,
                h("div.buttons", {}, saving, forcing, h("button", { type: "button", onclick: () => {
                    text.value = saved;
                    said.replaceChildren();
                    edited();
                } }, "Undo all")),
                h("h2", {}, "What would change"), check, mistakes, preview),
            h("aside", {}, h("section.panel", { "aria-label": "History" }, h("h2", {}, "History"), versions), help())));
    saving.disabled = true;
    list();
    number();
    look();
    return {
        leave: (quietly) => !changed() || (!quietly && confirm("Discard your changes?")),
        start: () => text.focus({ preventScroll: true }),
        end: () => {
            clearTimeout(timer);
            asking?.abort();
        },
    };
}

function difference(before, after, title) {
    const [a, b] = [before.split("\n"), after.split("\n")];
    const left = new Map();
    for (const line of b) left.set(line, (left.get(line) ?? 0) + 1);
    const gone = a.filter((line) => {
        const n = left.get(line) ?? 0;
        left.set(line, n - 1);
        return n <= 0;
    });
    const known = new Map();
    for (const line of a) known.set(line, (known.get(line) ?? 0) + 1);
    const come = b.filter((line) => {
        const n = known.get(line) ?? 0;
        known.set(line, n - 1);
        return n <= 0;
    });
    const diff = [...gone.map((line) => `- ${line}`), ...come.map((line) => `+ ${line}`)];
    return diff.length === 0 ? h("p.soft", {}, "No difference.") : h("section", {}, h("h3", {}, title), lines(diff));
}

function help() {
    const entry = (command, text) => [h("dt", {}, h("code", {}, command)), h("dd", {}, text)];
    return h("details.panel", {}, h("summary", {}, "The commands"),
        h("p", {}, "One per line. Lines that begin with # and empty lines are ignored."),
        h("dl.commands", {},
            entry("route add <service> <source> <destination> [weight <w>] [tags \"<t1>,<t2>\"] [opts \"<k=v> <k=v>\"]", "Adds a target. The source is host/path, /path, or :port for TCP; it has no scheme. The weight is a share from 0 to 1; without one the target shares what is left."),
            entry("route del <service> [<source> [<destination>]]", "Removes the targets of a service: all of them, those of a source, or one."),
            entry("route del [<service>] tags \"<t1>,<t2>\"", "Removes the targets that have all of these tags."),
            entry("route weight <service> <source> weight <w> [tags \"<t1>,<t2>\"]", "Gives the targets of a service for a source a share that they divide among themselves."),
            entry("route weight <source> weight <w> tags \"<t1>,<t2>\"", "The same for the targets of any service.")));
}
