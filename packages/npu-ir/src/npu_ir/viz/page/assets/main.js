"use strict";
// The page: its panes, the selection that they share, the controls around them, and its address.

class Page {
  constructor(data) {
    this.palette = new Palette();
    this.isDiff = data.graphs.length > 1;
    this.selected = null;
    this.overlayName = "";
    const models = data.graphs.map((graph, side) => new Model(graph, side));
    this.overlays = new Map(models.map((model) => [model, overlaysFor(model)]));
    this.views = [];
    this.details = new Details(byId("details"), this);
    models.forEach((model) => this.views.push(new View(this.pane(model), model, this)));
    this.search = new Search(byId("search"), byId("results"), this);
    this.describe(data);
    this.fillOverlays();
    this.listen();
    for (const view of this.views) view.fit();
    this.readAddress();
    this.legend();
  }

  pane(model) {
    const label = `${this.isDiff ? ["before: ", "after: "][model.side] : ""}${model.graph.name}`;
    const spoken = `picture of the graph ${label}`;
    const canvas = element("canvas", { tabindex: "0", role: "application", "aria-label": spoken });
    const head = this.isDiff ? element("h2", {}, label, element("small", {}, model.graph.summary)) : "";
    const made = element("div", { class: "pane" }, head, canvas);
    byId("panes").append(made);
    return made;
  }

  describe(data) {
    const [first] = data.graphs;
    byId("title").textContent = document.title;
    byId("summary").textContent = data.summary || first.summary;
  }

  overlaysOf(model) { return this.overlays.get(model); }

  overlayOf(model) {
    return this.overlaysOf(model).find((overlay) => overlay.name === this.overlayName) || null;
  }

  fitScale(view) {
    const overlay = this.overlayOf(view.model);
    if (overlay) overlay.fitScale(view.shown.boxes);
    if (this.search) this.legend();
  }

  // What stands out in a view: the selection, its edges, what was found.
  marks(view) {
    const { selected } = this;
    if (view.litFor !== selected || view.litIn !== view.shown) {
      Object.assign(view, { litFor: selected, litIn: view.shown });
      view.lit = new Set(selected ? view.shown.edges.filter(({ edge }) => isLit(edge, selected)) : []);
    }
    const { found, around } = this.search || { found: new Set(), around: new Set() };
    return {
      selected: this.shownSelection(view),
      hovered: view.hovered,
      lit: view.lit,
      overlay: this.overlayOf(view.model),
      isFound: (item) => found.has(item) || (!item.open && around.has(item)),
      isDim: (item) => found.size > 0 && !found.has(item) && !around.has(item),
    };
  }

  // The selected item, or its partner in the other graph; a closed group stands for what it holds.
  shownSelection(view) {
    let item = this.selected;
    if (item && item.model !== view.model) item = this.partnerOf(item);
    while (item && !view.shown.place.has(item)) item = item.parent;
    return item;
  }

  partnerOf(item) {
    const other = this.views[1 - item.model.side];
    if (!other) return null;
    if (!item.isGroup) return item.record.partner === undefined ? null : other.model.boxes[item.record.partner];
    const inside = [...item.leaves()].find((leaf) => leaf.record.partner !== undefined);
    if (!inside) return null;
    const around = other.model.boxes[inside.record.partner].ancestors();
    return around.find((group) => group.name === item.name) || null;
  }

  select(item) {
    this.selected = item;
    this.details.show(item);
    byId("live").textContent = item ? `${item.kind} ${item.name}` : "";
    const partner = item && this.partnerOf(item);
    if (partner) this.views[partner.model.side].reveal(partner, this.views[item.model.side].window.k);
    this.writeAddress();
    this.redraw();
  }

  // Select an item and bring it into sight.
  go(item) {
    this.select(item);
    this.views[item.model.side].reveal(item);
  }

  toggle(group) {
    if (!group.isGroup) return;
    const isOpen = !group.open;
    this.views[group.model.side].setOpen(group, isOpen);
    const partner = this.isDiff ? this.partnerOf(group) : null;
    if (partner) this.views[partner.model.side].setOpen(partner, isOpen);
    if (this.selected === group) this.details.show(group);
  }

  redraw() {
    for (const view of this.views) view.redraw();
  }

  fillOverlays() {
    const names = new Set([...this.overlays.values()].flat().map((overlay) => overlay.name));
    const base = this.isDiff ? "what changed" : "kind of box";
    byId("overlay").append(new Option(base, ""), ...[...names].map((name) => new Option(name, name)));
  }

  setOverlay(name) {
    this.overlayName = name;
    byId("overlay").value = name;
    for (const view of this.views) this.fitScale(view);
    this.legend();
    this.redraw();
  }

  legend() {
    const overlays = this.views.map((view) => this.overlayOf(view.model)).filter(Boolean);
    const last = overlays[overlays.length - 1];
    const rows = last ? measuredLegend(last, this.palette) : kindLegend(this.views, this.palette);
    byId("legend").replaceChildren(...rows);
  }

  setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    this.palette.known.clear();
    this.legend();
    this.redraw();
  }

  // The address names the selection: #node=NAME, and the side of a difference.
  writeAddress() {
    const { selected } = this;
    const side = this.isDiff && selected ? `&side=${selected.model.side ? "b" : "a"}` : "";
    const text = selected ? `#node=${encodeURIComponent(selected.name)}${side}` : "#";
    try { history.replaceState(null, "", text); } catch { /* a page in a frame has no address */ }
  }

  readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    if (given.get("overlay")) this.setOverlay(given.get("overlay"));
    const sides = given.get("side") === "b" ? [...this.views].reverse() : this.views;
    const view = sides.find(({ model }) => model.byName.has(given.get("node")));
    if (view) this.go(view.model.byName.get(given.get("node")));
  }

  listen() {
    const act = {
      fit: () => this.views.forEach((view) => view.fit(true)),
      open: () => this.views.forEach((view) => view.setAllOpen(true)),
      close: () => this.views.forEach((view) => view.setAllOpen(false)),
      theme: () => this.setTheme(this.palette.isDark ? "light" : "dark"),
      help: () => byId("help").showModal(),
    };
    for (const [id, run] of Object.entries(act)) byId(`do-${id}`).addEventListener("click", run);
    byId("overlay").addEventListener("change", (event) => this.setOverlay(event.target.value));
    const preference = matchMedia("(prefers-color-scheme: dark)");
    preference.addEventListener("change", () => this.setTheme(document.documentElement.dataset.theme || ""));
    addEventListener("hashchange", () => this.readAddress());
    addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    if (event.key === "Escape" && !byId("help").open) this.select(null);
    const isTyping = ["INPUT", "SELECT"].includes(document.activeElement.tagName);
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") byId("search").focus();
    else if (event.key === "?") byId("help").showModal();
    else return;
    event.preventDefault();
  }
}

function byId(id) {
  return document.getElementById(id);
}

// An edge is lit if one of its values enters or leaves the selection.
function isLit(edge, selected) {
  const reads = new Set(selected.isGroup ? [] : selected.sources);
  return edge.pairs.some(([source, target]) => {
    if (target === null) return selected.contains(source) ? source.model === selected.model : reads.has(source);
    return source.model === selected.model && selected.contains(source) !== selected.contains(target);
  });
}

const page = new Page(JSON.parse(byId("data").textContent));
requestAnimationFrame(() => requestAnimationFrame(() => {
  document.documentElement.dataset.firstPicture = performance.now().toFixed(0);
}));
