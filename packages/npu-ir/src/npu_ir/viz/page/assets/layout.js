"use strict";
// Sizes and places. Each open group is laid out on its own by dagre, children as boxes of a known size, so that
// a click lays out one group and those around it, and nothing else.

const TITLE_FONT = "600 13px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const LINE_FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const HEAD = 30; // height of the title of an open group
const PAD = 16;
const ROW_GAP = 42;
const MAX_TEXT = 230;
const MIN_BRANCHES = 3; // from so many rows on, readers of one value share a trunk

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

// A route through several nodes: its points in rows of boxes, and the middle of the gap after each but the last.
// dagre gives a point for each row and each gap in turn.
function routeAlong(graph, chain, shared) {
  const points = [], gaps = [];
  let start = 0; // of the part that no other edge draws
  for (let at = 1; at < chain.length; at += 1) {
    if (at === shared + 1) start = gaps.length;
    graph.edge(chain[at - 1], chain[at]).points.forEach(({ x, y }, index) => {
      if (index % 2) gaps.push(y);
      else if (index || at === 1) points.push({ x, y });
    });
  }
  return { points, gaps, start };
}

// The points of a route that is vertical in rows, next to boxes, and moves sideways in gaps only.
function throughGaps({ points, gaps }, start) {
  const all = [points[start]];
  gaps.slice(start).forEach((gap, at) => {
    const from = points[start + at], to = points[start + at + 1];
    all.push({ x: from.x, y: clamp(gap - ROW_GAP / 2, from.y, to.y) }, { x: to.x, y: clamp(gap + ROW_GAP / 2, from.y, to.y) }, to);
  });
  return all.filter((point, at) => at === 0 || point.x !== all[at - 1].x || point.y !== all[at - 1].y);
}

function finishRoute(route) {
  return { edge: route.edge, points: throughGaps(route, 0), own: throughGaps(route, route.start) };
}

// Move a route with its group, and its ends to the borders of boxes and to ports.
function bendRoute(route, places, frame, graph, ids) {
  const { edge, points, gaps } = route;
  for (const point of points) { point.x += frame.dx; point.y += frame.dy; }
  route.gaps = gaps.map((gap) => gap + frame.dy);
  const first = points[0], last = points[points.length - 1];
  if (edge.from instanceof Port) {
    edge.from.x = first.x = graph.node(ids.get(edge.from)).x + frame.dx;
    first.y = HEAD;
  } else leaveBox(edge, first, places.get(edge.from));
  if (edge.to instanceof Port) {
    edge.to.x = last.x = graph.node(ids.get(edge.to)).x + frame.dx;
    last.y = frame.h;
  } else enterBox(edge, last, places.get(edge.to));
  if (points.length === 2 && Math.abs(first.x - last.x) < 6 && !edge.to.open) last.x = first.x;
}

function leaveBox(edge, point, place) {
  const exit = edge.from.open ? edge.from.model.edgesOf(edge.from).exit : null;
  point.x = exit ? place.x + exit.x : clamp(point.x, place.x + 10, place.x + place.w - 10);
  point.y = place.y + place.h;
}

function enterBox(edge, point, place) {
  const port = edge.to.open ? portFor(edge) : null;
  point.x = port ? place.x + port.x : clamp(point.x, place.x + 10, place.x + place.w - 10);
  point.y = place.y;
}

// The port of the open group at which an edge arrives: the one for the item, or items, that it is from.
function portFor(edge) {
  const origins = edge.from instanceof Port ? edge.from.of : [edge.from];
  for (const port of edge.to.model.edgesOf(edge.to).inputs) {
    for (const origin of origins) if (port.of.has(origin)) return port;
  }
  return null;
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
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

function placeRoute({ edge, points, own }, x, y) {
  const move = (list) => list.map((point) => [point.x + x, point.y + y]);
  const moved = move(points);
  const xs = moved.map((point) => point[0]), ys = moved.map((point) => point[1]);
  const bounds = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
  const path = curve(moved);
  return { edge, points: moved, bounds, path, own: own.length < points.length ? curve(move(own)) : path, tip: !(edge.to instanceof Port) };
}

// A smooth curve through the points, which is vertical at each of them.
function curve(points) {
  const path = new Path2D();
  path.moveTo(...points[0]);
  for (let at = 1; at < points.length; at += 1) {
    const [x, y] = points[at - 1], [nextX, nextY] = points[at];
    if (Math.abs(x - nextX) < 0.5) path.lineTo(nextX, nextY);
    else path.bezierCurveTo(x, (y + nextY) / 2, nextX, (y + nextY) / 2, nextX, nextY);
  }
  return path;
}
