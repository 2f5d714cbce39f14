"use strict";
// One graph in a pane: the window onto its picture, and what pointers and keys do to it.

const ZOOM_RANGE = [0.02, 3];
const OPEN_AT_FIRST = 42; // modules are opened while no more boxes than this are shown

class View {
  constructor(element, model, page) {
    this.element = element;
    this.canvas = element.querySelector("canvas");
    this.model = model;
    this.page = page;
    this.painter = new Painter(this.canvas, page.palette);
    this.window = { x: 0, y: 0, k: 1 };
    this.hovered = null;
    this.pointers = new Map();
    this.openAtFirst();
    this.relayout();
    this.listen();
  }

  // The size of the pane in CSS pixels.
  get size() { return { w: this.canvas.clientWidth, h: this.canvas.clientHeight }; }

  openAtFirst() {
    const waiting = [...this.model.root.children];
    let count = waiting.length;
    while (waiting.length) {
      const group = waiting.shift();
      if (!group.isGroup || group.isRepeat || count + group.children.length > OPEN_AT_FIRST) continue;
      if (group.kind === "prologue" || statusOf(group) === "unchanged") continue;
      group.open = true;
      count += group.children.length - 1;
      waiting.push(...group.children);
    }
  }

  // Compute places anew; the top of the item `anchor` stays where it is on the screen.
  relayout(anchor = null) {
    const before = anchor && this.shown ? this.shown.place.get(anchor) : null;
    this.shown = flatten(this.model.root);
    const after = anchor ? this.shown.place.get(anchor) : null;
    if (before && after) {
      this.window.x += after.x - before.x + (after.w - before.w) / 2;
      this.window.y += after.y - before.y;
    }
    this.page.fitScale(this);
    this.redraw();
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.paint();
    });
  }

  paint() {
    const ratio = window.devicePixelRatio || 1;
    const { w, h } = this.size;
    if (this.canvas.width !== Math.round(w * ratio) || this.canvas.height !== Math.round(h * ratio)) {
      this.canvas.width = Math.round(w * ratio);
      this.canvas.height = Math.round(h * ratio);
    }
    this.painter.draw(this.shown, this.window, this.page.marks(this));
  }

  // Show all of it if it can be read then, or else its beginning.
  fit(isAll = false) {
    const { w, h } = this.shown.boxes[0];
    const size = this.size;
    this.isUnseen = !size.w || !size.h; // a pane of a hidden tab or frame: fit it once it has a size
    if (this.isUnseen) return;
    const whole = Math.min(size.w / (w + 30), size.h / (h + 30), 1);
    const k = isAll || whole > 0.6 ? Math.max(whole, ZOOM_RANGE[0]) : clamp(size.w / (w + 30), 0.6, 1);
    const isTall = h * k > size.h;
    this.window = { k, x: w / 2 - size.w / 2 / k, y: isTall ? -15 : h / 2 - size.h / 2 / k };
    if (!isAll && w * k > size.w) this.window.x = this.firstBoxX() - size.w / 2 / k;
    this.redraw();
  }

  firstBoxX() {
    const first = this.shown.boxes.find((box) => !box.isOpen);
    return first ? first.x + first.w / 2 : 0;
  }

  setOpen(group, isOpen) {
    if (!group.isGroup || group.open === isOpen || !group.parent) return;
    group.open = isOpen;
    forgetLayout(group);
    this.relayout(group);
  }

  setAllOpen(isOpen) {
    for (const item of this.model.items) {
      if (!item.isGroup) continue;
      item.layout = null;
      item.open = isOpen || !item.parent;
    }
    this.relayout();
    this.fit(isOpen);
  }

  // Open the groups around an item, and bring it to the middle.
  reveal(item, zoom = this.window.k) {
    for (const group of item.ancestors()) {
      if (!group.open) {
        group.open = true;
        forgetLayout(group);
      }
    }
    this.relayout();
    const box = this.shown.place.get(item);
    const size = this.size;
    const k = Math.max(zoom, 0.8);
    const middle = box.y + Math.min(box.h, size.h / k - 60) / 2;
    this.window = { k, x: box.x + box.w / 2 - size.w / 2 / k, y: middle - size.h / 2 / k };
    this.redraw();
  }

  zoomAt(x, y, factor) {
    const { window: old } = this;
    const k = clamp(old.k * factor, ...ZOOM_RANGE);
    this.window = { k, x: old.x + x / old.k - x / k, y: old.y + y / old.k - y / k };
    this.redraw();
  }

  panBy(dx, dy) {
    this.window.x -= dx / this.window.k;
    this.window.y -= dy / this.window.k;
    this.redraw();
  }

  // The innermost box at a point of the pane; null on the background.
  boxAt(px, py) {
    const x = this.window.x + px / this.window.k, y = this.window.y + py / this.window.k;
    for (let at = this.shown.boxes.length - 1; at > 0; at -= 1) {
      const box = this.shown.boxes[at];
      if (x >= box.x && x <= box.x + box.w && y >= box.y && y <= box.y + box.h) return box;
    }
    return null;
  }

  isOnChip(box, px, py) {
    if (!box.item.isGroup) return false;
    const x = this.window.x + px / this.window.k, y = this.window.y + py / this.window.k;
    const [cx, cy] = box.isOpen ? [box.x + 19, box.y + 16] : [box.x + box.w - 15, box.y + 15];
    return Math.hypot(x - cx, y - cy) < 11;
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerup", (event) => this.onUp(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("dblclick", (event) => this.onDouble(event));
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => (this.isUnseen ? this.fit() : this.redraw())).observe(canvas);
  }

  onWheel(event) {
    // In a notebook, the wheel scrolls the notebook until the picture was clicked.
    if (window.parent !== window && document.activeElement !== this.canvas && !event.ctrlKey) return;
    event.preventDefault();
    const step = event.deltaMode === 1 ? 18 * event.deltaY : event.deltaY;
    if (event.shiftKey) this.panBy(-step, 0);
    else {
      const speed = event.ctrlKey ? 0.01 : 0.0022; // a pinch of a trackpad comes as small steps with Ctrl
      this.zoomAt(event.offsetX, event.offsetY, Math.exp(-clamp(step, -120, 120) * speed));
    }
  }

  onDown(event) {
    if (event.isTrusted) this.canvas.setPointerCapture(event.pointerId); // those of a script have no pointer
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.dragged = this.pointers.size > 1;
  }

  onMove(event) {
    const old = this.pointers.get(event.pointerId);
    if (!old) return this.hover(this.boxAt(event.offsetX, event.offsetY));
    const dx = event.offsetX - old.x, dy = event.offsetY - old.y;
    if (!this.dragged && Math.hypot(dx, dy) < 4) return undefined;
    this.dragged = true;
    if (this.pointers.size === 2) this.pinch(event, old);
    else this.panBy(dx, dy);
    Object.assign(old, { x: event.offsetX, y: event.offsetY });
    return undefined;
  }

  pinch(event, old) {
    const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    const before = Math.hypot(old.x - other.x, old.y - other.y);
    const after = Math.hypot(event.offsetX - other.x, event.offsetY - other.y);
    this.zoomAt((event.offsetX + other.x) / 2, (event.offsetY + other.y) / 2, after / Math.max(before, 1));
  }

  onUp(event) {
    const isClick = this.pointers.delete(event.pointerId) && !this.dragged;
    if (!isClick) return;
    const box = this.boxAt(event.offsetX, event.offsetY);
    if (box && this.isOnChip(box, event.offsetX, event.offsetY)) this.page.toggle(box.item);
    else this.page.select(box ? box.item : null);
  }

  onDouble(event) {
    const box = this.boxAt(event.offsetX, event.offsetY);
    if (box && !this.isOnChip(box, event.offsetX, event.offsetY)) this.page.toggle(box.item);
  }

  hover(box) {
    const item = box ? box.item : null;
    this.canvas.style.cursor = item ? "pointer" : "grab";
    if (item === this.hovered) return;
    this.hovered = item;
    this.canvas.title = item ? `${item.name}${item.isGroup ? " (double click opens or closes it)" : ""}` : "";
    this.redraw();
  }

  onKey(event) {
    const moves = { ArrowUp: "sources", ArrowDown: "users" };
    const pans = { ArrowLeft: [80, 0], ArrowRight: [-80, 0], ArrowUp: [0, 80], ArrowDown: [0, -80] };
    const { selected } = this.page;
    if (event.key === "Enter" && selected) this.page.toggle(selected);
    else if (event.key === "+" || event.key === "=") this.zoomAt(this.size.w / 2, this.size.h / 2, 1.25);
    else if (event.key === "-") this.zoomAt(this.size.w / 2, this.size.h / 2, 0.8);
    else if (event.key === "0") this.fit(true);
    else if (moves[event.key] && selected && !selected.isGroup && selected[moves[event.key]].length) {
      this.page.go(selected[moves[event.key]][0]);
    } else if (pans[event.key]) this.panBy(...pans[event.key]);
    else return;
    event.preventDefault();
  }
}
