// What a person does to a page, for the scripts of test_browser.py: events at points of the screen.
const seen = {}, errors = [];
addEventListener("error", (event) => errors.push(event.message));

// Let events be handled, and draw: without a screen, a browser may draw later than it says.
async function frame() {
  await new Promise((done) => setTimeout(done, 10));
  for (const view of page.views) view.paint();
}

const itemOf = (name, view = page.views[0]) => view.model.byName.get(name);
const names = (view = page.views[0]) => view.shown.boxes.slice(1).map(({ item }) => item.name);
const text = (id) => document.getElementById(id).innerText;

function point(item, part = [0.5, 0.5]) {
  const view = page.views[item.model.side];
  const box = view.shown.place.get(item), at = view.canvas.getBoundingClientRect();
  const x = (box.x + part[0] * box.w - view.window.x) * view.window.k;
  const y = (box.y + part[1] * box.h - view.window.y) * view.window.k;
  return { view, x, y, clientX: at.left + x, clientY: at.top + y };
}

function act(type, item, part, Kind = PointerEvent) {
  const { view, clientX, clientY } = point(item, part);
  view.canvas.dispatchEvent(new Kind(type, { clientX, clientY, pointerId: 1, bubbles: true }));
}

async function click(item, part) {
  act("pointerdown", item, part);
  act("pointerup", item, part);
  await frame();
}

async function double(item) {
  act("dblclick", item, undefined, MouseEvent);
  await frame();
}

async function press(key, on) {
  on.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  await frame();
}

async function pressButton(id) {
  document.getElementById(id).click();
  await frame();
}

async function type(input, value) {
  input.value = value;
  input.dispatchEvent(new Event(input.tagName === "SELECT" ? "change" : "input"));
  await frame();
}

// The colour of a closed box, beside its text.
function colour(item) {
  const { view, x, y } = point(item, [0.1, 0.3]);
  return [...view.canvas.getContext("2d").getImageData(x, y, 1, 1).data].join();
}
