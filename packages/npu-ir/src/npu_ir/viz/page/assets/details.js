"use strict";
// The panel that says everything about the selected box or group. Texts are set as text, never as markup.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

function typeText(text) {
  return element("span", { class: "type" }, text);
}

class Details {
  constructor(panel, page) {
    this.panel = panel;
    this.page = page;
  }

  show(item) {
    this.panel.hidden = !item;
    if (!item) return;
    const parts = item.isGroup ? this.group(item) : this.box(item);
    this.panel.replaceChildren(this.heading(item), ...this.change(item), ...parts);
    this.panel.scrollTop = 0;
  }

  heading(item) {
    const look = { class: "plain", title: "close (Esc)", "aria-label": "close" };
    const close = element("button", { ...look, onclick: () => this.page.select(null) }, "✕");
    const kind = item.isRepeat ? `${copiesOf(item)} equal modules` : item.kind;
    const names = element("div", {}, element("h2", {}, item.record.title), element("small", {}, kind));
    return element("header", {}, names, close);
  }

  // A titled section; nothing where there is nothing to say.
  section(title, children) {
    return children.length ? [element("section", {}, element("h3", {}, title), ...children)] : [];
  }

  facts(pairs) {
    const known = pairs.filter(([, value]) => value);
    const rows = known.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
    return rows.length ? [element("dl", {}, ...rows)] : [];
  }

  link(item, ...more) {
    return element("li", {}, this.button(item, item.name || item.record.title), ...more.map(typeText));
  }

  button(item, text) {
    return element("button", { class: "link", onclick: () => this.page.go(item) }, text);
  }

  // An input: the argument that it fills, the value, and a link to where it is from.
  input(item, [operand, name, type, source]) {
    const label = operand ? [element("span", { class: "operand" }, `${operand} `)] : [];
    if (typeof source !== "number") return element("li", {}, ...label, name, typeText(`${type} ${source}`));
    const made = this.link(item.model.boxes[source], ...(type ? [type] : []));
    made.prepend(...label);
    return made;
  }

  box(item) {
    const record = item.record;
    const outputs = (record.outputs || []).map(([name, type]) => element("li", {}, name, typeText(type)));
    return [
      ...this.facts([
        ["op", record.op], ["name", record.name], ["module", record.module && this.moduleLink(item)], ["phase", record.phase],
        ["source", record.source], ["made from", (record.from || []).join(", ")],
        ["runs", record.once ? "once, when weights are bound" : ""],
      ]),
      ...this.measured(item),
      ...this.section("outputs", outputs),
      ...this.section("inputs", (record.inputs || []).map((input) => this.input(item, input))),
      ...this.section("attributes", this.facts(record.attrs || [])),
      ...this.section(`users (${item.users.length})`, this.some(item.users)),
    ];
  }

  some(items) {
    const links = items.slice(0, 60).map((user) => this.link(user, user.record.line || ""));
    return items.length > 60 ? [...links, element("li", {}, `and ${items.length - 60} more`)] : links;
  }

  moduleLink(item) {
    const around = item.ancestors().find((group) => group.record.path);
    if (!around) return item.record.module;
    return this.button(around, item.record.module);
  }

  group(item) {
    const toggle = element("button", { onclick: () => this.page.toggle(item) }, item.open ? "close" : "open");
    const ops = countWords([...item.leaves()].map((leaf) => leaf.record.op).filter(Boolean));
    const counts = [...ops].map(([op, count]) => [op, String(count)]);
    const outside = (items) => [...new Set(items)].filter((other) => !item.contains(other));
    const leaves = [...item.leaves()];
    return [
      element("p", {}, toggle),
      ...this.facts([["module", item.record.path], ["holds", (item.record.lines || []).join(", ")]]),
      ...this.measured(item),
      ...this.section("ops", this.facts(counts)),
      ...this.section("reads", this.some(outside(leaves.flatMap((leaf) => leaf.sources)))),
      ...this.section("is read by", this.some(outside(leaves.flatMap((leaf) => leaf.users)))),
    ];
  }

  // The status of a box, and its partner in the other graph.
  change(item) {
    const { status, changes, was, merged, partner } = item.record;
    if (!this.page.isDiff) return [];
    const other = partner === undefined ? null : this.page.views[1 - item.model.side].model.boxes[partner];
    const go = other && this.button(other, other.name);
    const word = element("span", { class: `status ${statusOf(item)}` }, statusOf(item));
    return this.section("change", this.facts([
      ["status", status || item.isGroup ? word : ""], ["what", (changes || []).join(", ")],
      [item.model.side ? "before" : "after", go], ["was", (was || []).join(", ")], ["merged into", merged],
    ]));
  }

  measured(item) {
    const overlays = this.page.overlaysOf(item.model);
    const rows = overlays.filter((overlay) => overlay.of(item) !== null).map((overlay) => {
      const { remark = "" } = overlay.values.get(item) || {};
      const value = element("span", {}, overlay.text(item), remark ? element("small", {}, remark) : "");
      return [overlay.name, value];
    });
    return this.section("measured", this.facts(rows));
  }
}
