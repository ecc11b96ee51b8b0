// Asking the API, and putting numbers into words.

const data = document.body.dataset;

export const base = data.base;
export const writable = data.writable === "true";
export const link = {
    enabled: data.linkEnabled === "true",
    newTab: data.linkNewTab === "true",
    scheme: data.linkScheme,
    host: data.linkHost,
    port: data.linkPort,
};

export class Failure extends Error {
    constructor(status, text) {
        super(text === "" ? `The server answered ${status}.` : text);
        this.status = status;
    }
}

export async function ask(path, options = {}) {
    let response;
    try {
        response = await fetch(base + path, { cache: "no-store", ...options });
    } catch {
        throw new Failure(0, "The server does not answer.");
    }
    if (!response.ok) throw new Failure(response.status, (await response.text()).trim());
    // A server that does not know a path leads to its first page.
    if (response.redirected) throw new Failure(404, "");
    return response;
}

export async function get(path, signal) {
    return (await ask(path, { signal })).json();
}

export async function send(method, path, body, signal) {
    const response = await ask(path, {
        method,
        signal,
        headers: { "Content-Type": "application/json" },
        body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    return text === "" ? null : JSON.parse(text);
}

export const encodePath = (path) => path.split("/").map(encodeURIComponent).join("/");

export function ago(seconds) {
    if (seconds === null || seconds === undefined) return "never";
    if (seconds < 2) return "just now";
    return `${span(seconds)} ago`;
}

export function span(seconds) {
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    if (seconds < 120) return `${Math.round(seconds)} s`;
    if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
    if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
    return `${Math.round(seconds / 86400)} d`;
}

export function clock(seconds) {
    const at = new Date(seconds * 1000);
    const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
    return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
}

export function rate(value) {
    if (value === undefined || value === null || value === 0) return "0";
    if (value < 10) return value.toFixed(1);
    if (value < 10000) return Math.round(value).toLocaleString("en");
    return `${(value / 1000).toFixed(1)}k`;
}

// `resolution`: times below it are not told apart.
export function time(value, resolution = 0) {
    if (value === undefined || value === null) return "\u2013";
    if (value <= resolution) return `<${Math.round(resolution * 1000)} ms`;
    if (value < 1) return `${Math.round(value * 1000)} ms`;
    return `${value.toFixed(value < 10 ? 1 : 0)} s`;
}

export function percent(value, digits = 1) {
    if (value === undefined || value === null) return "\u2013";
    const text = (value * 100).toFixed(digits);
    return `${Number(text) === Math.round(value * 100) ? Math.round(value * 100) : text}%`;
}

export function count(n, one, many = `${one}s`) {
    return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}
