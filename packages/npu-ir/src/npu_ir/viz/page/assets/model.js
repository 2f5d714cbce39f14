"use strict";
// A graph as a tree of items: boxes (nodes, inputs, results) in groups (modules). Edges are not stored but
// found per group, among what the group shows: an item belongs to the child of the group that contains it.

class Item {
  constructor(record, parent, model) {
    this.record = record; // what Python wrote of a box or a group
    this.parent = parent;
    this.model = model;
    this.depth = parent ? parent.depth + 1 : 0;
    this.children = null; // of a group, in order
    this.order = 0; // in a walk of the tree, parents first
    this.stop = 0; // the order after the last item inside
    this.open = false; // whether a group shows its children
    this.sources = []; // of a box: the boxes it reads
    this.users = []; // of a box: the boxes that read it
    this.seen = null; // the edges among the children, once they were asked for
    this.layout = null; // sizes and places of what it shows; null after a change
  }
  get isGroup() { return this.children !== null; }
  get kind() { return this.record.kind; }
  get name() { return this.isGroup ? this.record.path || this.record.title : this.record.name; }
  get isRepeat() { return this.kind === "repeat"; }
  contains(other) { return this.order <= other.order && other.order < this.stop; }

  // The child of this group that is or contains `other`.
  childWith(other) {
    while (other.parent !== this) other = other.parent;
    return other;
  }

  // The boxes in it, itself if it is one.
  * leaves() {
    if (!this.isGroup) yield this;
    else for (const child of this.children) yield* child.leaves();
  }

  ancestors() {
    const all = [];
    for (let item = this.parent; item; item = item.parent) all.push(item);
    return all;
  }
}

// Where edges enter or leave an open group: `of` are the items outside that they come from.
class Port {
  constructor(isInput) {
    this.isInput = isInput;
    this.of = new Set();
    this.x = 0; // from the left of the group
  }
}

const MAX_PORTS = 8; // inputs of a group from more places share one

class Model {
  constructor(graph, side) {
    this.graph = graph;
    this.side = side; // 0, or 1 for the graph after a change
    this.items = [];
    this.boxes = new Array(graph.boxes.length); // the item of each record
    this.root = this.addGroup({ kind: "graph", title: graph.name, items: graph.tree }, null);
    this.root.open = true;
    this.connect();
    this.byName = new Map();
    for (const item of this.items) if (!this.byName.has(item.name) || !item.isGroup) this.byName.set(item.name, item);
  }

  addGroup(record, parent) {
    const group = this.add(record, parent);
    group.children = record.items.map((child) => {
      if (typeof child !== "number") return this.addGroup(child, group);
      return (this.boxes[child] = this.close(this.add(this.graph.boxes[child], group)));
    });
    return this.close(group);
  }

  add(record, parent) {
    const item = new Item(record, parent, this);
    item.order = this.items.length;
    this.items.push(item);
    return item;
  }

  close(item) {
    item.stop = this.items.length;
    return item;
  }

  connect() {
    for (const box of this.boxes) {
      for (const [, , , source] of box.record.inputs || []) {
        if (typeof source !== "number") continue;
        const from = this.boxes[source];
        if (!box.sources.includes(from)) {
          box.sources.push(from);
          from.users.push(box);
        }
      }
    }
  }

  // The edges that an open group shows: between children, from ports at its top, to a port at its bottom.
  edgesOf(group) {
    if (!group.seen) group.seen = new EdgeFinder(group).find();
    return group.seen;
  }
}

class EdgeFinder {
  constructor(group) {
    this.group = group;
    this.edges = new Map(); // from -> to -> edge
    this.ports = new Map(); // item outside -> port
    this.exit = null;
  }

  find() {
    for (const leaf of this.group.leaves()) {
      const target = this.group.childWith(leaf);
      for (const source of leaf.sources) {
        const from = this.group.contains(source) ? this.group.childWith(source) : this.portFrom(source);
        if (from !== target) this.add(from, target, source, leaf);
      }
      if (leaf.users.some((user) => !this.group.contains(user))) this.add(target, this.portOut(), leaf, null);
    }
    const edges = [];
    for (const targets of this.edges.values()) edges.push(...targets.values());
    return { edges, inputs: [...new Set(this.ports.values())], exit: this.exit };
  }

  add(from, to, source, target) {
    if (!this.edges.has(from)) this.edges.set(from, new Map());
    const targets = this.edges.get(from);
    if (!targets.has(to)) targets.set(to, { from, to, pairs: [] });
    targets.get(to).pairs.push([source, target]);
  }

  portFrom(source) {
    let outside = source; // the largest item around the source that does not contain the group
    while (!outside.parent.contains(this.group)) outside = outside.parent;
    if (!this.ports.has(outside)) {
      const known = [...new Set(this.ports.values())];
      this.ports.set(outside, known.length < MAX_PORTS ? new Port(true) : known[MAX_PORTS - 1]);
    }
    const port = this.ports.get(outside);
    port.of.add(outside);
    return port;
  }

  portOut() {
    if (!this.exit) this.exit = new Port(false);
    return this.exit;
  }
}
