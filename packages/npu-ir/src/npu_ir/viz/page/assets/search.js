"use strict";
// Search by name, op, module, source line and type; all words must be found.

const MAX_RESULTS = 40;

class Search {
  constructor(input, list, page) {
    Object.assign(this, { input, list, page, found: new Set(), around: new Set(), results: [], active: 0 });
    input.addEventListener("input", () => this.update());
    input.addEventListener("keydown", (event) => this.onKey(event));
    input.addEventListener("focus", () => this.update());
    input.addEventListener("blur", () => setTimeout(() => { this.list.hidden = true; }, 150));
  }

  textOf(item) {
    if (item.words === undefined) {
      const { record } = item;
      const types = (record.outputs || []).flat().join(" ");
      const texts = [item.name, record.title, record.op, record.module, record.source, types];
      item.words = texts.filter(Boolean).join(" ").toLowerCase();
    }
    return item.words;
  }

  update() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const items = words.length ? this.page.views.flatMap((view) => view.model.items.slice(1)) : [];
    const matching = items.filter((item) => words.every((word) => this.textOf(item).includes(word)));
    this.found = new Set(matching);
    this.around = new Set(matching.flatMap((item) => item.ancestors())); // groups that hold what was found
    this.count = matching.length;
    this.results = matching.sort((a, b) => this.rank(a, words) - this.rank(b, words)).slice(0, MAX_RESULTS);
    this.active = 0;
    this.render();
    this.page.redraw();
  }

  // Names before other texts, and the beginning of a name before its middle.
  rank(item, words) {
    const at = item.name.toLowerCase().indexOf(words[0]);
    return at < 0 ? 1e6 : at * 1000 + Math.min(item.name.length, 999);
  }

  render() {
    this.list.hidden = !this.input.value.trim() || document.activeElement !== this.input;
    const rows = this.results.map((item, at) => {
      const side = this.page.isDiff ? ` (${item.model.side ? "after" : "before"})` : "";
      const what = element("span", {}, `${item.isGroup ? item.kind : item.record.title}${side}`);
      const row = element("li", { role: "option", "aria-selected": String(at === this.active) },
        element("b", {}, item.name), what, element("small", {}, item.record.module || ""));
      row.addEventListener("pointerdown", (event) => { event.preventDefault(); this.pick(at); });
      return row;
    });
    const left = this.count - this.results.length;
    const note = !rows.length ? "nothing found" : left > 0 ? `and ${left} more` : "";
    this.list.replaceChildren(...rows, ...(note ? [element("li", { class: "rest" }, note)] : []));
    const active = this.list.children[this.active];
    if (active) active.scrollIntoView({ block: "nearest" });
  }

  pick(at) {
    const item = this.results[at];
    if (!item) return;
    this.list.hidden = true;
    this.page.go(item);
  }

  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      this.active = clamp(this.active + step, 0, Math.max(this.results.length - 1, 0));
      this.render();
    } else if (event.key === "Enter") {
      this.pick(this.active);
    } else if (event.key === "Escape") {
      this.input.value = "";
      this.update();
      this.input.blur();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
