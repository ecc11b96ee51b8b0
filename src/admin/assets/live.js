// The stream of events, and the last minutes of every number in it.

import { base } from "./api.js";
import { SAMPLES } from "./dom.js";

const listeners = new Set();
let source = null;

export const live = {
    connected: false,
    resolution: 0,
    total: null,
    totals: [],
    // id -> { row: [rate, error rate, p50, p99, mean], past: rates }
    routes: new Map(),
    targets: new Map(),
};

// `listener("stats" | "table" | "state", data)`; returns what ends it.
export function listen(listener) {
    listeners.add(listener);
    open();
    return () => listeners.delete(listener);
}

function tell(kind, data) {
    for (const listener of [...listeners]) listener(kind, data);
}

function open() {
    if (source !== null || document.hidden) return;
    source = new EventSource(`${base}/api/events`);
    source.addEventListener("open", () => state(true));
    source.addEventListener("error", () => {
        state(false);
        // A refusal ends it; a lost connection is tried again by itself.
        if (source?.readyState === EventSource.CLOSED) {
            source = null;
            setTimeout(open, 10000);
        }
    });
    source.addEventListener("stats", (event) => {
        take(JSON.parse(event.data));
        tell("stats");
    });
    source.addEventListener("table", (event) => tell("table", JSON.parse(event.data)));
}

function state(connected) {
    if (live.connected === connected) return;
    live.connected = connected;
    tell("state");
}

function take(stats) {
    live.resolution = stats.resolution;
    live.total = stats.total;
    push(live.totals, stats.total.rate);
    for (const [known, fresh] of [[live.routes, stats.routes], [live.targets, stats.targets]]) {
        for (const [id, row] of Object.entries(fresh)) {
            const entry = known.get(id) ?? { row, past: [] };
            entry.row = row;
            known.set(id, entry);
        }
        for (const [id, entry] of known) {
            const fell = !Object.hasOwn(fresh, id);
            if (fell) entry.row = [0, entry.row[1], null, null, null];
            push(entry.past, entry.row[0]);
            if (fell && !entry.past.some((value) => value > 0)) known.delete(id);
        }
    }
}

function push(past, value) {
    past.push(value);
    if (past.length > SAMPLES) past.shift();
}

// A page that nobody sees needs no stream.
document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
        source?.close();
        source = null;
    } else if (listeners.size > 0) {
        open();
    }
});
