"use strict";
// Texts of boxes: what they say, how wide they are, and the size of a closed box around them.

const TITLE_FONT = "600 13px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const LINE_FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const MAX_TEXT = 230;

const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();

function textWidth(text, font) {
  const key = font + text;
  if (!widths.has(key)) {
    ruler.font = font;
    widths.set(key, ruler.measureText(text).width);
  }
  return widths.get(key);
}

// The text, with its end left out if it is wider than `room`.
function fitText(text, font, room) {
  if (textWidth(text, font) <= room) return text;
  let length = Math.max(1, Math.floor((text.length * room) / textWidth(text, font)));
  while (length > 1 && textWidth(text.slice(0, length) + "…", font) > room) length -= 1;
  return text.slice(0, length) + "…";
}

function titleOf(item) {
  const copies = item.isRepeat ? `  ×${copiesOf(item)}` : "";
  return statusMark(item) + item.record.title + copies;
}

function copiesOf(item) {
  return item.children.reduce((sum, child) => sum + (child.kind === "part" ? copiesOf(child) : 1), 0);
}

function linesOf(item) {
  if (!item.isGroup) return item.record.line ? [item.record.line] : [];
  return item.record.lines || [];
}

// Set the size of a closed item and its texts, cut to fit.
function measure(item) {
  if (item.closed) return item.closed;
  const chip = item.isGroup ? 22 : 0;
  const title = fitText(titleOf(item), TITLE_FONT, MAX_TEXT);
  const lines = linesOf(item).map((line) => fitText(line, LINE_FONT, MAX_TEXT));
  const text = Math.max(textWidth(title, TITLE_FONT) + chip, ...lines.map((line) => textWidth(line, LINE_FONT)), 44);
  item.closed = { title, lines, w: Math.ceil(text) + 26, h: 30 + 15 * lines.length };
  return item.closed;
}
