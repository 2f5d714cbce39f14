"use strict";
// Routes of edges: from the points of dagre to curves that stay beside boxes.

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
    const [top, bottom] = [gap - ROW_GAP / 2, gap + ROW_GAP / 2].map((y) => clamp(y, from.y, to.y));
    all.push({ x: from.x, y: top }, { x: to.x, y: bottom }, to);
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

function placeRoute({ edge, points, own }, x, y) {
  const move = (list) => list.map((point) => [point.x + x, point.y + y]);
  const moved = move(points);
  const xs = moved.map((point) => point[0]), ys = moved.map((point) => point[1]);
  const bounds = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
  const path = curve(moved);
  const ownPath = own.length < points.length ? curve(move(own)) : path; // what no other edge draws
  return { edge, points: moved, bounds, path, own: ownPath, tip: !(edge.to instanceof Port) };
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
