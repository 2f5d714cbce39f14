"use strict";
// Sizes and places. Each open group is laid out on its own by dagre, children as boxes of a known size, so that
// a click lays out one group and those around it, and nothing else.

const HEAD = 30; // height of the title of an open group
const PAD = 16;
const ROW_GAP = 42;
const MIN_BRANCHES = 3; // from so many rows on, readers of one value share a trunk

function sizeOf(item) {
  return item.isGroup && item.open ? layoutOf(item) : measure(item);
}

function layoutOf(group) {
  if (!group.layout) group.layout = computeLayout(group);
  return group.layout;
}

function forgetLayout(item) {
  for (let group = item; group; group = group.parent) group.layout = null;
}

function computeLayout(group) {
  const { edges, inputs, exit } = group.model.edgesOf(group);
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  graph.setGraph({ rankdir: "TB", nodesep: 22, ranksep: ROW_GAP, edgesep: 12, ranker: "network-simplex" });
  const ids = new Map();
  const addNode = (key, w, h) => {
    ids.set(key, `n${ids.size}`);
    graph.setNode(ids.get(key), { width: w, height: h });
  };
  for (const port of inputs) addNode(port, 8, 1);
  for (const child of group.children) addNode(child, sizeOf(child).w, sizeOf(child).h);
  if (exit) addNode(exit, 8, 1);
  const chains = connectAll(graph, edges, ids);
  if (inputs.length || exit) pinPorts(graph, group, inputs, exit, ids);
  dagre.layout(graph);
  return readLayout(graph, group, chains, ids);
}

// Add the edges, and return for each the ids of the nodes that it runs through. What many rows of boxes read runs
// down beside them once, through bends, with a branch to each row; `shared` pieces are those of edges before.
function connectAll(graph, edges, ids) {
  const rows = findRows(edges);
  const chains = [];
  for (const own of groupBy(edges, (edge) => edge.from).values()) {
    const byRow = [...groupBy(own, (edge) => rows.get(edge.to)).entries()].sort((a, b) => a[0] - b[0]);
    const trunk = [ids.get(own[0].from)];
    byRow.forEach(([, targets], at) => {
      if (at > 0 && byRow.length >= MIN_BRANCHES) {
        const bend = `bend${graph.nodeCount()}`;
        graph.setNode(bend, { width: 1, height: 1 });
        graph.setEdge(trunk[trunk.length - 1], bend, { weight: 4 });
        trunk.push(bend);
      }
      targets.forEach((edge, index) => {
        const chain = [...trunk, ids.get(edge.to)];
        graph.setEdge(...chain.slice(-2), { weight: 1 });
        chains.push({ edge, chain, shared: Math.max(0, trunk.length - (index ? 1 : 2)) });
      });
    });
  }
  return chains;
}

function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return groups;
}

// The length of the longest path to each end of an edge.
function findRows(edges) {
  const rows = new Map();
  const into = groupBy(edges, (edge) => edge.to);
  const rowOf = (end) => {
    if (!rows.has(end)) {
      rows.set(end, 0); // a graph is acyclic, and so are the consecutive nodes of its groups
      rows.set(end, Math.max(0, ...(into.get(end) || []).map((edge) => rowOf(edge.from) + 1)));
    }
    return rows.get(end);
  };
  for (const edge of edges) rowOf(edge.to);
  return rows;
}

// Ports belong to the top and the bottom: invisible edges from one point above all, and to the exit, hold them.
function pinPorts(graph, group, inputs, exit, ids) {
  const starts = group.children.filter((child) => !(graph.predecessors(ids.get(child)) || []).length);
  const ends = group.children.filter((child) => !(graph.successors(ids.get(child)) || []).length);
  if (inputs.length) {
    graph.setNode("top", { width: 1, height: 1 });
    for (const port of inputs) graph.setEdge("top", ids.get(port), { weight: 100 });
    for (const child of starts) graph.setEdge("top", ids.get(child), { weight: 0.01, minlen: 2 });
  }
  if (exit) for (const child of ends) graph.setEdge(ids.get(child), ids.get(exit), { weight: 0.01 });
}

function readLayout(graph, group, chains, ids) {
  const places = new Map();
  let left = Infinity, right = -Infinity, top = Infinity, bottom = -Infinity;
  if (!group.children.length) left = right = top = bottom = 0; // a graph without nodes
  const include = (x0, x1, y0, y1) => {
    left = Math.min(left, x0); right = Math.max(right, x1);
    top = Math.min(top, y0); bottom = Math.max(bottom, y1);
  };
  for (const child of group.children) {
    const { x, y } = graph.node(ids.get(child));
    const { w, h } = sizeOf(child);
    places.set(child, { x: x - w / 2, y: y - h / 2, w, h });
    include(x - w / 2, x + w / 2, y - h / 2, y + h / 2);
  }
  const routes = chains.map(({ edge, chain, shared }) => ({ edge, ...routeAlong(graph, chain, shared) }));
  for (const { points } of routes) for (const { x } of points) include(x, x, top, bottom);
  const isRoot = !group.parent;
  const headWidth = isRoot ? 0 : textWidth(titleOf(group), TITLE_FONT) + 62;
  const room = Math.max(right - left, headWidth - 2 * PAD);
  const dx = PAD - left + (room - (right - left)) / 2;
  const dy = (isRoot ? PAD : HEAD + PAD + 4) - top;
  for (const place of places.values()) { place.x += dx; place.y += dy; }
  const size = { w: room + 2 * PAD, h: bottom + dy + PAD + (isRoot ? 0 : 4) };
  for (const route of routes) bendRoute(route, places, { dx, dy, ...size }, graph, ids);
  return { ...size, places, routes: routes.map(finishRoute) };
}

// All that is shown, with places in the picture: frames and boxes, outer ones first, and edges.
function flatten(root) {
  const shown = { boxes: [], edges: [], place: new Map() };
  const visit = (item, x, y) => {
    const { w, h } = sizeOf(item);
    const box = { item, x, y, w, h, isOpen: item.isGroup && item.open };
    shown.boxes.push(box);
    shown.place.set(item, box);
    if (!box.isOpen) return;
    const layout = layoutOf(item);
    for (const route of layout.routes) shown.edges.push(placeRoute(route, x, y));
    for (const child of item.children) {
      const place = layout.places.get(child);
      visit(child, x + place.x, y + place.y);
    }
  };
  visit(root, 0, 0);
  return shown;
}
