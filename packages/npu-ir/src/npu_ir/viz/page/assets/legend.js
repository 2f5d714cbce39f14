"use strict";
// The legend: the colours that are shown, and what they stand for.

function swatch(fill, line, text) {
  const chip = element("i", {});
  Object.assign(chip.style, { background: fill, borderColor: line });
  return element("span", { class: "swatch" }, chip, text);
}

function kindLegend(views, palette) {
  const closed = views.flatMap((view) => view.shown.boxes.filter((box) => !box.isOpen));
  const shown = closed.map((box) => box.item);
  const labels = new Map(shown.map((item) => [statusOf(item) || (item.isRepeat ? "module" : item.kind), item]));
  return [...labels].map(([label, item]) => swatch(...palette.of(item, null), label));
}

function measuredLegend(overlay, palette) {
  const note = `${overlay.missing} measured nodes are not in this graph`;
  const missing = overlay.missing ? [element("span", {}, note)] : [];
  if (overlay.rule === "most") {
    return [...overlay.words().map((word) => swatch(...palette.word(overlay, word), word)), ...missing];
  }
  const scale = element("i", { class: "scale" });
  const colours = [0, 0.1, 0.3, 0.6, 1].map((share) => palette.heat(share)[0]);
  scale.style.background = `linear-gradient(90deg, ${colours.join(",")})`;
  const high = formatValue(overlay.high || 0, overlay.unit);
  return [element("span", {}, "0"), scale, element("span", {}, high), ...missing];
}
