// What there is to look at: a Consul with services, a ferrio, targets, and some traffic.

import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import net from "node:net";
import os from "node:os";
import path from "node:path";

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export async function until(what, holds, seconds = 30) {
    const end = Date.now() + seconds * 1000;
    for (;;) {
        try {
            const value = await holds();
            if (value) return value;
        } catch {
            // Not yet.
        }
        if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
        await sleep(100);
    }
}

function port() {
    return new Promise((done) => {
        const server = net.createServer().listen(0, "127.0.0.1", () => {
            const { port } = server.address();
            server.close(() => done(port));
        });
    });
}

export class World {
    constructor() {
        this.dir = fs.mkdtempSync(path.join(os.tmpdir(), "ferrio-ui-"));
        this.ends = [];
    }

    run(program, args) {
        const log = fs.openSync(path.join(this.dir, `${path.basename(program)}-${this.ends.length}.log`), "w");
        const child = spawn(program, args, { cwd: this.dir, stdio: ["ignore", log, log] });
        this.ends.push(() => child.kill("SIGKILL"));
    }

    // An admin address with these properties.
    async ferrio(properties) {
        const [admin, proxy] = [await port(), await port()];
        const file = path.join(this.dir, `${admin}.properties`);
        const all = { "proxy.addr": `127.0.0.1:${proxy}`, "ui.addr": `127.0.0.1:${admin}`, ...properties };
        fs.writeFileSync(file, Object.entries(all).map(([key, value]) => `${key} = ${value}\n`).join(""));
        this.run(process.env.FERRIO, ["-cfg", file]);
        const url = `http://127.0.0.1:${admin}`;
        await until("ferrio is ready", async () => (await fetch(`${url}/health`)).ok);
        return { admin: url, proxy };
    }

    async consul() {
        const [httpPort, dns, serf, wan, server, grpc] = await Promise.all(Array.from({ length: 6 }, port));
        const config = { ports: { http: httpPort, dns: -1, serf_lan: serf, serf_wan: wan, server, grpc: -1 } };
        fs.writeFileSync(path.join(this.dir, "agent.json"), JSON.stringify(config));
        this.run(process.env.CONSUL, ["agent", "-dev", "-config-file", path.join(this.dir, "agent.json")]);
        this.consulUrl = `http://127.0.0.1:${httpPort}`;
        await until("Consul has a leader", async () => (await (await fetch(`${this.consulUrl}/v1/status/leader`)).json()) !== "");
        return `127.0.0.1:${httpPort}`;
    }

    async put(pathname, body) {
        const response = await fetch(this.consulUrl + pathname, { method: "PUT", body: typeof body === "string" ? body : JSON.stringify(body) });
        if (!response.ok) throw new Error(`${pathname}: ${response.status} ${await response.text()}`);
    }

    register(service, number, port, tags) {
        return this.put("/v1/agent/service/register", { ID: `${service}-${number}`, Name: service, Address: "127.0.0.1", Port: port, Tags: tags, Check: { TTL: "1h", Status: "passing" } });
    }

    origin(answer) {
        return new Promise((done) => {
            const server = http.createServer(answer).listen(0, "127.0.0.1", () => done(server.address().port));
            this.ends.push(() => server.closeAllConnections() ?? server.close());
        });
    }

    // About `rate` requests a second for these [host, path] until the end.
    traffic(proxy, places, rate) {
        const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
        let at = 0;
        const timer = setInterval(() => {
            const [host, pathname] = places[at++ % places.length];
            const request = http.get({ agent, port: proxy, host: "127.0.0.1", path: pathname, headers: { host } }, (response) => response.resume());
            request.on("error", () => {});
        }, 1000 / rate);
        this.ends.push(() => {
            clearInterval(timer);
            agent.destroy();
        });
    }

    end() {
        for (const end of this.ends.reverse()) end();
        fs.rmSync(this.dir, { recursive: true, force: true });
    }
}

// Something of everything.
export async function furnished() {
    const world = new World();
    const consul = await world.consul();
    const slowly = (ms) => (request, response) => setTimeout(() => response.end("ok"), ms * (0.5 + Math.random()));
    const [quick, slow, broken] = [await world.origin(slowly(2)), await world.origin(slowly(60)), await world.origin((request, response) => {
        response.statusCode = Math.random() < 0.3 ? 502 : 200;
        response.end("x");
    })];
    await world.register("web", 1, quick, ["urlprefix-www.example.com/ weight=0.7", "blue"]);
    await world.register("web", 2, slow, ["urlprefix-www.example.com/", "green"]);
    await world.register("shop", 1, broken, ["urlprefix-www.example.com/shop strip=/shop", "urlprefix-shop.example.com/"]);
    await world.register("api", 1, quick, ["urlprefix-api.example.com/v1 allow=ip:127.0.0.0/8", "urlprefix-api.example.com/v2"]);
    await world.register("search", 1, slow, ["urlprefix-*.search.example.com/", "urlprefix-/search"]);
    await world.register("old", 1, quick, ["urlprefix-old.example.com/ redirect=301,https://www.example.com$path"]);
    // Nobody listens there: it is ejected. The other one has just begun.
    await world.register("gone", 1, await port(), ["urlprefix-gone.example.com/ retry=off eject=1 ejecttime=5m"]);
    await world.register("gone", 2, quick, ["urlprefix-gone.example.com/ slowstart=1h"]);
    await world.register("queue", 1, quick, ["urlprefix-:7777 proto=tcp"]);
    await world.register("bad", 1, quick, ["urlprefix-bad.example.com/ redirect=999,http://x/", "urlprefix-bad.example.com/x allow=ip:10.0.0.0/99", "urlprefix-<script>alert(1)</script>"]);
    for (let n = 0; n < 24; n++) await world.register(`job-${n}`, 1, quick, [`urlprefix-jobs.example.com/run/${n}`]);
    await world.put("/v1/kv/fabio/config", "# canary\nroute weight web www.example.com/ weight 0.6 tags \"blue\"\nroute ad oops\n");
    await world.put("/v1/kv/fabio/config/maintenance", "# nothing here yet\n");
    const { admin, proxy } = await world.ferrio({
        "registry.consul.addr": consul, "registry.consul.register.enabled": "false", "registry.consul.token": "secret",
        "ui.title": "staging", "ui.color": "teal darken-2", "ui.path": "/lb", "ui.routingtable.source.linkenabled": "true",
    });
    world.traffic(proxy, [["www.example.com", "/a"], ["www.example.com", "/b"], ["www.example.com", "/shop/1"], ["api.example.com", "/v1/x"], ["shop.example.com", "/"], ["a.search.example.com", "/q"], ["gone.example.com", "/"]], 120);
    await until("routes are there", async () => (await (await fetch(`${admin}/lb/api/routes`)).json()).length > 20);
    return { world, url: `${admin}/lb` };
}

// Five thousand routes from a file.
export async function crowded() {
    const world = new World();
    const file = path.join(world.dir, "routes");
    const line = (n) => `route add service-${n % 400} host-${n % 50}.example.com/path/${n} http://10.${n >> 8}.${n & 255}.1:8080/ opts "strip=/path/${n}"\n`;
    fs.writeFileSync(file, Array.from({ length: 5000 }, (_, n) => line(n)).join(""));
    const { admin } = await world.ferrio({ "registry.backend": "file", "registry.file.path": file });
    return { world, url: admin };
}
