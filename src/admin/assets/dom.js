// Making elements. Everything that comes from the API enters a page as text, never as markup.

export function h(name, attributes, ...children) {
    const [tag, ...classes] = name.split(".");
    const node = document.createElement(tag || "div");
    if (classes.length > 0) node.className = classes.join(" ");
    for (const [key, value] of Object.entries(attributes ?? {})) {
        if (value === undefined || value === null || value === false) continue;
        if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
        else if (key === "value" || key === "checked" || key === "disabled" || key === "hidden" || key === "selected") node[key] = value;
        else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return node;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes, ...children) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes ?? {})) node.setAttribute(key, value);
    node.append(...children);
    return node;
}

// A line through the last values, from 0 to the greatest of them.
export function sparkline(values, width = 72, height = 20) {
    const picture = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    draw(picture, values, width, height);
    return picture;
}

function draw(picture, values, width, height) {
    const top = Math.max(...values, 0);
    if (values.length < 2 || top === 0) {
        picture.replaceChildren(svg("path", { d: `M0 ${height - 1.5}H${width}`, class: "flat" }));
        return;
    }
    const step = width / (SAMPLES - 1);
    const from = width - step * (values.length - 1);
    const points = values.map((value, index) => {
        const x = from + index * step;
        const y = height - 1.5 - (value / top) * (height - 3);
        return `${x.toFixed(1)} ${y.toFixed(1)}`;
    });
    picture.replaceChildren(
        svg("path", { d: `M${points.join("L")}L${width} ${height}L${from.toFixed(1)} ${height}Z`, class: "area" }),
        svg("path", { d: `M${points.join("L")}`, class: "line" }),
    );
}

export const SAMPLES = 60;

export function dialog(title, ...content) {
    const box = h("dialog", { "aria-label": title },
        h("header.dialog-head", {}, h("h2", {}, title), h("button.plain", { type: "button", "aria-label": "Close", onclick: () => box.close() }, "\u00d7")),
        ...content);
    box.addEventListener("close", () => box.remove());
    box.addEventListener("click", (event) => {
        if (event.target === box) box.close();
    });
    document.body.append(box);
    box.showModal();
    return box;
}

export function note(kind, ...content) {
    return h(`p.note.${kind}`, kind === "bad" ? { role: "alert" } : {}, ...content);
}

export function empty(title, text) {
    return h("div.empty", {}, h("p", {}, h("strong", {}, title)), h("p", {}, text));
}

export function lines(diff) {
    return h("pre.diff", { tabindex: "0", role: "group", "aria-label": "Changed lines" }, diff.map((line) =>
        h(line.startsWith("+") ? "span.plus" : line.startsWith("-") ? "span.minus" : "span", {}, `${line}\n`)));
}
