// Looks at every page as people do, and as a checker for accessibility does.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

import { crowded, furnished, sleep, until } from "./world.mjs";

const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = path.join(path.dirname(fileURLToPath(import.meta.url)), "shots");
const SIZES = { desktop: { width: 1280, height: 800 }, phone: { width: 360, height: 740 } };
const only = process.argv.slice(2);
const faults = [];
let looked = 0;

function fault(where, what) {
    faults.push(`${where}: ${what}`);
    console.log(`FAULT ${where}: ${what}`);
}

// What each page does before it is looked at.
const PAGES = {
    routes: ["/routes", async (page) => {
        await page.waitForSelector(".row:not(.head)");
        await page.waitForFunction(() => document.querySelectorAll(".spark .line").length > 2, null, { timeout: 20000 });
    }],
    "routes-grouped": ["/routes?group=service&sort=service", (page) => page.waitForSelector(".row.group")],
    "routes-impaired": ["/routes?filter=gone", async (page) => {
        await page.waitForSelector("text=Ejected", { timeout: 20000 });
        await page.waitForSelector("text=Starting");
    }],
    "routes-details": ["/routes?filter=shop", async (page) => {
        await page.waitForSelector(".row:not(.head)");
        await page.evaluate(() => document.activeElement.blur());
        await page.keyboard.press("j");
        await page.keyboard.press("Enter");
        await page.waitForSelector("dialog[open]");
    }],
    rejects: ["/rejects", (page) => page.waitForSelector(".card")],
    explain: [`/explain?url=${encodeURIComponent("http://www.example.com/shop/cart?id=1")}`, (page) => page.waitForSelector(".outcome")],
    "explain-close": [`/explain?url=${encodeURIComponent("https://www.exmaple.com:8443/Shop")}`, (page) => page.waitForSelector(".outcome")],
    manual: ["/manual", (page) => page.waitForSelector(".note.bad")],
    "manual-edited": ["/manual/maintenance", async (page) => {
        await page.fill("#text", "route del shop\nroute add spare shop.example.com/ http://10.9.9.9:80/\nroute oops\n");
        await page.waitForSelector(".diff .plus");
    }],
    certificates: ["/certificates", (page) => page.waitForSelector(".empty, table")],
    consul: ["/consul", (page) => page.waitForSelector("table")],
    timeline: ["/timeline", async (page) => {
        await page.click(".timeline summary");
        await page.waitForSelector(".diff");
    }],
    control: ["/control", (page) => page.waitForSelector(".setting")],
    config: ["/config", (page) => page.waitForSelector(".option")],
    help: ["/routes", async (page) => {
        await page.waitForSelector(".row:not(.head)");
        await page.evaluate(() => document.activeElement.blur());
        await page.keyboard.press("?");
        await page.waitForSelector("dialog[open]");
    }],
    plain: ["/plain", (page) => page.waitForSelector("table")],
};

// A tab in which nothing that goes wrong stays unseen.
async function tab(browser, url, where, options) {
    const context = await browser.newContext(options);
    const page = await context.newPage();
    page.on("console", (message) => {
        // The refusal of a version is what the browser calls an error.
        if (message.type() === "error" && !message.text().includes("409 (Conflict)")) fault(where(), `console: ${message.text()}`);
    });
    page.on("pageerror", (error) => fault(where(), `script: ${error.message}`));
    page.on("request", (request) => {
        if (new URL(request.url()).origin !== new URL(url).origin) fault(where(), `asks ${request.url()}`);
    });
    return { context, page };
}

async function look(page, name) {
    await sleep(250);
    await page.screenshot({ path: path.join(shots, `${name}.png`) });
    // Outside of the policy of the page, as the checker is no part of it.
    const session = await page.context().newCDPSession(page);
    await session.send("Runtime.evaluate", { expression: axe });
    const { result } = await session.send("Runtime.evaluate", {
        expression: "axe.run(document, { resultTypes: ['violations'] }).then((r) => JSON.stringify(r.violations.map((v) => [v.id, v.impact, v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + ' ' + (n.any[0]?.message ?? n.all[0]?.message ?? ''))])))",
        awaitPromise: true, returnByValue: true,
    });
    await session.detach();
    for (const [id, impact, nodes] of JSON.parse(result.value)) {
        if (["serious", "critical"].includes(impact)) fault(name, `${id} (${impact}): ${nodes.join(" | ")}`);
        else console.log(`note ${name}: ${id} (${impact}): ${nodes[0]}`);
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) fault(name, `is ${wide} pixels too wide`);
    looked++;
}

async function walk(browser, url) {
    for (const [size, viewport] of Object.entries(SIZES)) {
        for (const colorScheme of ["light", "dark"]) {
            let name = "";
            const { context, page } = await tab(browser, url, () => name, { viewport, colorScheme, reducedMotion: "reduce", hasTouch: size === "phone" });
            for (const [title, [where, prepare]] of Object.entries(PAGES)) {
                if (only.length > 0 && !only.includes(title)) continue;
                name = `${title}-${size}-${colorScheme}`;
                try {
                    await page.goto(url + where);
                    await prepare(page);
                } catch (error) {
                    fault(name, error.message.split("\n")[0]);
                }
                await look(page, name);
                await page.evaluate(() => document.querySelector("dialog")?.close());
            }
            await context.close();
        }
    }
}

// What is done with the pages, not how they look.
async function use(browser, url) {
    let name = "use";
    const { context, page } = await tab(browser, url, () => name, { viewport: SIZES.desktop });
    page.on("dialog", (dialog) => dialog.accept());
    await page.goto(`${url}/routes`);
    await page.waitForSelector(".row:not(.head)");
    const step = async (what, act) => {
        name = what;
        try {
            await act();
        } catch (error) {
            fault(what, error.message.split("\n")[0]);
        }
    };
    const text = (selector) => page.textContent(selector);
    await step("keys", async () => {
        await page.evaluate(() => document.activeElement.blur());
        await page.keyboard.press("/");
        if (await page.evaluate(() => document.activeElement.id) !== "filter") throw new Error("/ does not lead to the search");
        await page.keyboard.type("shop");
        await page.waitForFunction(() => location.search === "?filter=shop");
        await page.keyboard.press("Escape");
        await page.keyboard.press("g");
        await page.keyboard.press("t");
        await page.waitForSelector(".timeline");
        await page.goBack();
        await page.waitForSelector(".row:not(.head)");
    });
    await step("theme", async () => {
        await page.click("#theme-button");
        await page.click("#theme-button");
        if (await page.evaluate(() => document.documentElement.dataset.theme) !== "dark") throw new Error("not dark");
        await page.click("#theme-button");
    });
    await step("disable and enable", async () => {
        await page.goto(`${url}/control`);
        await page.click("text=Disable\u2026");
        await page.fill("#disable-service", "api");
        await page.fill("#disable-reason", "a test");
        await page.click("dialog .primary");
        await page.waitForSelector("li.card");
        await until("the routes are gone", async () => !(await (await fetch(`${url}/api/routes`)).text()).includes("\"api\""));
        await page.click("li.card button");
        await page.waitForSelector("li.card", { state: "detached" });
        await until("the routes are back", async () => (await (await fetch(`${url}/api/routes`)).text()).includes("\"api\""));
    });
    await step("drain", async () => {
        await page.click("button:text-is('Drain')");
        await page.waitForSelector("text=Stop draining");
        if ((await fetch(`${new URL(url).origin}/health`)).status !== 503) throw new Error("/health is well");
        await page.click("text=Stop draining");
        await page.waitForSelector("button:text-is('Drain')");
    });
    await step("edit", async () => {
        await page.goto(`${url}/manual/maintenance`);
        await page.waitForSelector("#text");
        await page.fill("#text", "route add spare spare.example.com/ http://10.9.9.9:80/\n");
        await page.keyboard.press("Control+s");
        await page.waitForSelector(".note.good");
        await page.waitForSelector(".versions button");
        // Somebody else is faster.
        const version = (await (await fetch(`${url}/api/manual/maintenance`)).json()).version;
        await fetch(`${url}/api/manual/maintenance`, { method: "PUT", body: JSON.stringify({ value: "# theirs", version }) });
        await page.fill("#text", "# mine\n");
        await page.click("button:text-is('Save')");
    });
    await step("conflict", async () => {
        await page.waitForSelector("text=Somebody else has changed");
        await page.click("text=Take theirs");
        if (await page.inputValue("#text") !== "# theirs") throw new Error("not theirs");
    });
    await step("text stays text", async () => {
        await page.goto(`${url}/routes?filter=alert`);
        await page.waitForSelector(".row:not(.head)");
        if (await page.$("main script")) throw new Error("a tag became markup");
        if (!(await text("main")).includes("<script>")) throw new Error("the tag is not shown");
    });
    await context.close();
}

async function fluid(browser) {
    const { world, url } = await crowded();
    try {
        const { context, page } = await tab(browser, url, () => "5000 routes", { viewport: SIZES.desktop });
        await page.goto(`${url}/routes`);
        await page.waitForSelector(".row:not(.head)");
        await page.screenshot({ path: path.join(shots, "crowded.png") });
        const rows = await page.$$eval(".row", (rows) => rows.length);
        if (rows > 80) fault("5000 routes", `${rows} rows exist at once`);
        const [usual, filter] = await page.evaluate(async () => {
            const frame = () => new Promise((done) => requestAnimationFrame(() => done(performance.now())));
            const frames = [];
            let last = await frame();
            for (let at = 0; at < 90; at++) {
                scrollBy(0, 2000);
                const now = await frame();
                frames.push(now - last);
                last = now;
            }
            scrollTo(0, 0);
            const began = performance.now();
            const search = document.getElementById("filter");
            search.value = "path/4321";
            search.dispatchEvent(new Event("input"));
            await frame();
            frames.sort((a, b) => a - b);
            return [frames[Math.floor(frames.length * 0.9)], performance.now() - began];
        });
        console.log(`5000 routes: nine of ten frames within ${usual.toFixed(0)} ms, a search ${filter.toFixed(0)} ms, ${rows} rows exist`);
        if (usual > 100 || filter > 300) fault("5000 routes", "not fluid");
        await page.waitForFunction(() => document.querySelector(".found").textContent.startsWith("1 of"));
        await context.close();
    } finally {
        world.end();
    }
}

fs.mkdirSync(shots, { recursive: true });
const { world, url } = await furnished();
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
try {
    await walk(browser, url);
    if (only.length === 0) {
        await use(browser, url);
        await fluid(browser);
    }
} finally {
    await browser.close();
    world.end();
}
console.log(`${looked} views in ${shots}, ${faults.length} faults`);
process.exit(faults.length > 0 ? 1 : 0);
