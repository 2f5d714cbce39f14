"use strict";
// Colours of boxes: by kind, by what changed, or by what another command measured.

const WORD_HUES = [212, 28, 145, 280, 340, 60, 185, 0];

// Colours come from the style sheet, so that both themes are in one place.
class Palette {
  constructor() {
    this.known = new Map();
  }
  get(name) {
    if (!this.known.has(name)) {
      this.known.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
    }
    return this.known.get(name);
  }
  get isDark() { return this.get("scheme") === "dark"; }

  // Fill and border of a closed box.
  of(item, overlay) {
    if (overlay) return this.measured(item, overlay);
    const slug = statusOf(item) || (BOX_SLUGS[item.kind] || "module");
    return [this.get(`${slug}-fill`), this.get(`${slug}-line`)];
  }

  measured(item, overlay) {
    const value = overlay.of(item);
    if (value === null) return [this.get("unknown-fill"), this.get("unknown-line")];
    if (value instanceof Map) return this.word(overlay, [...value.keys()][0]);
    return this.heat(overlay.heat(value));
  }

  heat(share) {
    const t = Math.sqrt(clamp(share, 0, 1));
    const hue = 48 - 40 * t;
    const light = this.isDark ? 18 + 26 * t : 99 - 37 * t;
    return [`hsl(${hue} ${20 + 70 * t}% ${light}%)`, `hsl(${hue} ${25 + 45 * t}% ${this.isDark ? 45 : 42}%)`];
  }

  word(overlay, word) {
    const hue = WORD_HUES[overlay.words().indexOf(word) % WORD_HUES.length];
    if (this.isDark) return [`hsl(${hue} 45% 24%)`, `hsl(${hue} 55% 60%)`];
    return [`hsl(${hue} 80% 91%)`, `hsl(${hue} 60% 40%)`];
  }
}

const BOX_SLUGS = {
  "input": "input", "op": "op", "op with weights": "weighted", "output": "output", "update": "update",
  "inputs": "input", "results": "output", "updates": "update",
  "part": "more", "prologue": "more", "node": "op", "region": "more",
};
