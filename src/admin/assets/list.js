// A list of rows of one height, of which only those that can be seen exist.

import { h } from "./dom.js";

// `row(item, index)` makes an element; `height()` is that of a row in pixels.
export class List {
    constructor({ label, row, height, columns, open }) {
        this.row = row;
        this.height = height;
        this.items = [];
        this.first = -1;
        this.last = -1;
        this.selected = -1;
        this.open = open;
        this.rows = h("div.rows", { role: "rowgroup" });
        this.space = h("div.space", { role: "presentation" }, this.rows);
        this.node = h("div.list", { role: "table", "aria-label": label, "aria-colcount": columns?.length },
            columns && h("div.list-head", { role: "rowgroup" }, h("div.row.head", { role: "row", "aria-rowindex": "1" }, columns)), this.space);
        this.onscroll = () => this.draw();
        addEventListener("scroll", this.onscroll, { passive: true });
        addEventListener("resize", this.onscroll, { passive: true });
    }

    end() {
        removeEventListener("scroll", this.onscroll);
        removeEventListener("resize", this.onscroll);
    }

    show(items) {
        this.items = items;
        if (this.selected >= items.length) this.selected = items.length - 1;
        this.node.setAttribute("aria-rowcount", String(items.length + 1));
        this.refresh();
    }

    // Makes the rows anew that can be seen.
    refresh() {
        this.first = -1;
        this.draw();
    }

    draw() {
        const height = this.height();
        this.space.style.height = `${this.items.length * height}px`;
        const top = -this.space.getBoundingClientRect().top;
        const first = Math.max(0, Math.floor(top / height) - 4);
        const last = Math.min(this.items.length, Math.ceil((top + innerHeight) / height) + 4);
        if (first === this.first && last === this.last) return;
        const focused = this.rows.contains(document.activeElement);
        this.first = first;
        this.last = last;
        this.rows.style.transform = `translateY(${first * height}px)`;
        this.rows.replaceChildren(...this.items.slice(first, last).map((item, at) => {
            const index = first + at;
            const node = this.row(item, index);
            node.setAttribute("role", "row");
            node.setAttribute("aria-rowindex", String(index + 2));
            node.tabIndex = index === Math.max(this.selected, 0) ? 0 : -1;
            node.classList.toggle("selected", index === this.selected);
            node.addEventListener("click", (event) => {
                if (event.target.closest("a, button")) return;
                this.selected = index;
                this.open?.(item);
            });
            node.addEventListener("focus", () => this.mark(index));
            return node;
        }));
        if (focused) this.at(this.selected)?.focus({ preventScroll: true });
    }

    at(index) {
        return this.rows.children[index - this.first];
    }

    mark(index) {
        this.at(this.selected)?.classList.remove("selected");
        this.selected = index;
        this.at(index)?.classList.add("selected");
    }

    move(step) {
        if (this.items.length === 0) return;
        const next = Math.min(this.items.length - 1, Math.max(0, this.selected + step));
        const height = this.height();
        const top = this.space.getBoundingClientRect().top + next * height;
        if (top < 120) scrollBy(0, top - 120);
        else if (top + height > innerHeight - 8) scrollBy(0, top + height - innerHeight + 8);
        this.draw();
        this.mark(next);
        this.at(next)?.focus({ preventScroll: true });
    }

    choose() {
        if (this.selected >= 0) this.open?.(this.items[this.selected]);
    }
}
