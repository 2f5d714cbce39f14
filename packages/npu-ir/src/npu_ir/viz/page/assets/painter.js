"use strict";
// The picture of one graph on a canvas: only what is in sight is drawn, and texts only where they can be read.

const TEXT_ZOOM = 0.38; // below, boxes have no text
const LINE_ZOOM = 0.55; // below, boxes have a title only

class Painter {
  constructor(canvas, palette) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.palette = palette;
  }

  // Draw `shown` (of flatten) through a window at x, y with zoom k; `marks` says what stands out.
  draw(shown, { x, y, k }, marks) {
    const ratio = window.devicePixelRatio || 1;
    const { width, height } = this.canvas;
    const c = this.context;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = this.palette.get("page");
    c.fillRect(0, 0, width, height);
    c.setTransform(k * ratio, 0, 0, k * ratio, -x * k * ratio, -y * k * ratio);
    this.zoom = k;
    this.marks = marks;
    const sight = [x - 20, y - 20, x + width / ratio / k + 20, y + height / ratio / k + 20];
    const visible = shown.boxes.filter((box) => overlaps(sight, [box.x, box.y, box.x + box.w, box.y + box.h]));
    for (const box of visible) if (box.isOpen && box.item.parent) this.frame(box);
    this.edges(shown.edges.filter((edge) => overlaps(sight, edge.bounds)));
    for (const box of visible) {
      if (!box.isOpen) this.closed(box);
      else if (box.item.parent) this.frameTitle(box);
    }
  }

  frame(box) {
    const c = this.context;
    c.fillStyle = this.palette.get(box.item.depth % 2 ? "frame-odd" : "frame-even");
    c.strokeStyle = statusOf(box.item) && statusOf(box.item) !== "unchanged"
      ? this.palette.get(`${statusOf(box.item)}-line`) : this.palette.get("frame-line");
    c.lineWidth = 1.2;
    roundRect(c, box.x, box.y, box.w, box.h, 10);
    c.fill();
    c.stroke();
    this.outline(box, 10);
  }

  frameTitle(box) {
    if (this.zoom < 0.2) return;
    const c = this.context;
    this.text(titleOf(box.item), box.x + 34, box.y + 20, TITLE_FONT, this.palette.get("muted"));
    this.chip(box, box.x + 19, box.y + 16, false);
    const overlay = this.marks.overlay;
    const value = overlay ? overlay.text(box.item) : "";
    const start = box.x + 34 + textWidth(titleOf(box.item), TITLE_FONT) + 10;
    if (value && start + textWidth(value, LINE_FONT) < box.x + box.w - 8) {
      this.text(value, start, box.y + 20, LINE_FONT, this.palette.get("muted"));
    }
    c.textAlign = "left";
  }

  edges(edges) {
    const c = this.context;
    const lit = [], plain = [];
    for (const edge of edges) (this.marks.lit.has(edge) ? lit : plain).push(edge);
    c.lineWidth = Math.max(1.3, 0.7 / this.zoom);
    this.strokeEdges(plain, "own", this.palette.get(lit.length ? "edge-dim" : "edge"));
    c.lineWidth = Math.max(2.2, 1.4 / this.zoom);
    this.strokeEdges(lit, "path", this.palette.get("accent"));
  }

  strokeEdges(edges, path, colour) {
    const c = this.context;
    c.strokeStyle = c.fillStyle = colour;
    for (const edge of edges) c.stroke(edge[path]);
    if (this.zoom < 0.3) return;
    c.beginPath();
    for (const edge of edges) if (edge.tip) tip(c, edge.points);
    c.fill();
    c.beginPath();
    for (const edge of edges) if (!edge.tip || edge.edge.from instanceof Port) dot(c, edge);
    c.fill();
  }

  closed(box) {
    const c = this.context;
    const { item, x, y, w, h } = box;
    const [fill, line] = this.palette.of(item, this.marks.overlay);
    const radius = ["input", "output"].includes(item.kind) ? h / 2 : 7;
    c.fillStyle = fill;
    c.strokeStyle = line;
    c.lineWidth = 1.3;
    c.globalAlpha = this.marks.isDim(item) ? 0.35 : 1;
    if (item.isGroup && this.zoom > TEXT_ZOOM) this.stack(box, radius);
    if (statusOf(item) === "removed") c.setLineDash([5, 4]);
    roundRect(c, x, y, w, h, radius);
    c.fill();
    c.stroke();
    c.setLineDash([]);
    if (this.zoom >= TEXT_ZOOM) this.label(box);
    this.outline(box, radius);
    c.globalAlpha = 1;
  }

  // The edges of more sheets below a group, two for repeated modules.
  stack({ item, x, y, w, h }, radius) {
    const c = this.context;
    for (let sheet = item.isRepeat ? 2 : 1; sheet > 0; sheet -= 1) {
      roundRect(c, x + 4 * sheet, y + 4 * sheet, w, h, radius);
      c.fill();
      c.stroke();
    }
  }

  label(box) {
    const { item, x, y, w, h } = box;
    const c = this.context;
    const { title, lines } = measure(item);
    const overlay = this.marks.overlay;
    const value = overlay ? fitValue(overlay.text(item), w - 14) : "";
    const shown = this.zoom < LINE_ZOOM ? [] : value ? [value, ...lines.slice(1)] : lines;
    c.textAlign = "center";
    const middle = x + w / 2 - (item.isGroup ? 9 : 0);
    const top = y + (h - 15 * shown.length) / 2 + 4.5;
    this.text(title, middle, top, TITLE_FONT, this.palette.get("text"));
    const muted = this.palette.get("muted");
    shown.forEach((line, at) => this.text(line, x + w / 2, top + 15 * (at + 1), LINE_FONT, muted));
    c.textAlign = "left";
    if (item.isGroup) this.chip(box, x + w - 15, y + 15, true);
    if (overlay && overlay.of(item) instanceof Map && item.isGroup) this.shares(box, overlay);
  }

  // The shares of words, as a bar along the bottom.
  shares({ item, x, y, w, h }, overlay) {
    const counts = overlay.of(item);
    const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
    let at = x + 8;
    for (const [word, count] of counts) {
      const length = ((w - 16) * count) / total;
      this.context.fillStyle = this.palette.word(overlay, word)[1];
      this.context.fillRect(at, y + h - 6, length, 3);
      at += length;
    }
  }

  chip(box, x, y, isPlus) {
    const c = this.context;
    c.strokeStyle = this.palette.get("muted");
    c.lineWidth = 1.4;
    c.beginPath();
    c.arc(x, y, 7, 0, 2 * Math.PI);
    c.moveTo(x - 3.5, y);
    c.lineTo(x + 3.5, y);
    if (isPlus) { c.moveTo(x, y - 3.5); c.lineTo(x, y + 3.5); }
    c.stroke();
  }

  outline({ item, x, y, w, h }, radius) {
    const { selected, hovered } = this.marks;
    const isFound = this.marks.isFound(item);
    if (item !== selected && item !== hovered && !isFound) return;
    const c = this.context;
    c.strokeStyle = this.palette.get(item === selected ? "accent" : isFound ? "found" : "hover");
    c.lineWidth = Math.max(2.6, (item === selected ? 2.4 : 1.6) / this.zoom);
    roundRect(c, x - 3, y - 3, w + 6, h + 6, radius + 3);
    c.stroke();
  }

  text(text, x, y, font, colour) {
    const c = this.context;
    c.font = font;
    c.fillStyle = colour;
    c.fillText(text, x, y);
  }
}

// A value without its share if there is no room for both.
function fitValue(text, room) {
  return textWidth(text, LINE_FONT) <= room ? text : fitText(text.split(" · ")[0], LINE_FONT, room);
}

function overlaps([left, top, right, bottom], [x0, y0, x1, y1]) {
  return x1 >= left && x0 <= right && y1 >= top && y0 <= bottom;
}

function roundRect(c, x, y, w, h, radius) {
  c.beginPath();
  c.roundRect(x, y, w, h, radius);
}

function tip(c, points) {
  const [x, y] = points[points.length - 1];
  c.moveTo(x, y);
  c.lineTo(x - 4, y - 7.5);
  c.lineTo(x + 4, y - 7.5);
  c.closePath();
}

function dot(c, { edge, points }) {
  const ends = [];
  if (edge.from instanceof Port) ends.push(points[0]);
  if (edge.to instanceof Port) ends.push(points[points.length - 1]);
  for (const [x, y] of ends) {
    c.moveTo(x + 3, y);
    c.arc(x, y, 3, 0, 2 * Math.PI);
  }
}
