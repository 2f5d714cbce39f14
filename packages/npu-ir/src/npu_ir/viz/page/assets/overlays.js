"use strict";
// What another command measured, and what changed: the value of each box and of each group.

const STATUS_MARKS = { added: "+ ", removed: "− ", changed: "~ " };

// An overlay of one graph: the value of each box, and of groups by its rule.
class Overlay {
  constructor(data, model) {
    Object.assign(this, { name: data.name, rule: data.rule, unit: data.unit, missing: data.missing });
    this.values = new Map(data.values.map(([at, value, remark]) => [model.boxes[at], { value, remark }]));
    this.groups = new Map();
  }

  // The value of a box or a group; null if nothing is known. Of words, a Map of their counts.
  of(item) {
    if (!item.isGroup && this.rule !== "most") return this.values.has(item) ? this.values.get(item).value : null;
    if (!this.groups.has(item)) this.groups.set(item, this.total(item));
    return this.groups.get(item);
  }

  total(item) {
    const measured = [...item.leaves()].filter((leaf) => this.values.has(leaf));
    const found = measured.map((leaf) => this.values.get(leaf).value);
    if (!found.length) return null;
    if (this.rule === "sum") return found.reduce((sum, value) => sum + value, 0);
    if (this.rule === "max") return found.reduce((most, value) => Math.max(most, value), 0);
    return countWords(found);
  }

  words() {
    if (!this.known) this.known = [...new Set([...this.values.values()].map(({ value }) => value))].sort();
    return this.known;
  }

  // Set the scale by the boxes that are shown, so that differences among these are seen.
  fitScale(boxes) {
    const shown = boxes.filter((box) => !box.isOpen).map((box) => this.of(box.item));
    const numbers = shown.filter((value) => typeof value === "number" && value > 0);
    this.high = numbers.reduce((most, value) => Math.max(most, value), 0);
    this.low = numbers.reduce((least, value) => Math.min(least, value), this.high);
  }

  // From 0 to 1: linear for sums, logarithmic for differences, whose sizes are.
  heat(value) {
    if (!this.high || !value) return 0;
    if (this.rule === "sum" || this.unit) return value / this.high;
    if (this.low === this.high) return 1;
    return 0.12 + 0.88 * (Math.log(value / this.low) / Math.log(this.high / this.low));
  }

  text(item) {
    const value = this.of(item);
    if (value === null) return "";
    if (value instanceof Map) {
      return [...value].map(([word, count]) => (value.size > 1 ? `${word} ${count}` : word)).join(", ");
    }
    const all = this.rule === "sum" ? this.of(item.model.root) : 0;
    return formatValue(value, this.unit) + (all ? ` · ${percent(value / all)}` : "");
  }
}

// How often each word is in a list, the most frequent first.
function countWords(words) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) || 0) + 1);
  return new Map([...counts].sort((a, b) => b[1] - a[1]));
}

function percent(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;
}

function formatValue(value, unit) {
  if (unit === "s") return scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]);
  if (unit === "bytes") return scaled(value, [[1e9, "GB"], [1e6, "MB"], [1e3, "KB"], [1, "B"]]);
  if (value >= 1e300) return "inf or nan";
  const text = value.toPrecision(3);
  return text.includes(".") ? text.replace(/\.?0+(e|$)/, "$1") : text;
}

function scaled(value, units) {
  const [size, name] = units.find(([unit]) => value >= 0.9995 * unit) || units[units.length - 1];
  return `${+(value / size).toPrecision(3)} ${name}`;
}

// The result sizes, which need no file.
function resultSizes(model) {
  const values = model.boxes.map((item, at) => [at, item.record.bytes || 0, ""]).filter(([, value]) => value);
  return new Overlay({ name: "size of results", rule: "sum", unit: "bytes", missing: 0, values }, model);
}

function overlaysFor(model) {
  return [...model.graph.overlays.map((item) => new Overlay(item, model)), resultSizes(model)];
}

// The status of a box, or of a group by what is in it: "" where there is one graph.
function statusOf(item) {
  if (item.status === undefined) {
    const found = item.isGroup ? item.children.map(statusOf) : [item.record.status || ""];
    const [first] = found;
    item.status = found.every((status) => status === first) ? first : found.some(Boolean) ? "changed" : "";
  }
  return item.status;
}

function statusMark(item) {
  return STATUS_MARKS[statusOf(item)] || "";
}
