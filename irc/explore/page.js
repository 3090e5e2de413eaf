"use strict";
/* Draws what `irc explore` recorded: pictures of the graph, functions, loops, C.  Texts come from models: they are only
 * ever set as text. */
const LAYER = 64, HEIGHT = 40;
const element = (tag, text, attributes = {}) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};
const at = id => document.getElementById(id);
const bytes = Uint8Array.from(atob(at("data").textContent), c => c.charCodeAt(0));
new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json().then(start);

function start(data) {
  const canvas = at("canvas"), pen = canvas.getContext("2d"), side = at("side");
  let picture, before = new Set(), lit = new Set(), chosen = -1, over = -1, scale = 1, left = 0, top = 0, hits = [];
  const stepsOf = new Map();
  data.steps.forEach((step, k) => step.layers.forEach(l => stepsOf.set(l, [...(stepsOf.get(l) || []), k])));
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name);
  let colours = {};
  const readColours = () => ["--back", "--text", "--soft", "--line", "--box", "--new", "--lit", "--mark", "--port"]
    .forEach(name => { colours[name] = colour(name); });
  readColours();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); });

  at("model").textContent = data.model;
  document.title = data.model + ": irc explore";
  at("facts").textContent = data.facts;
  at("pass").max = data.stages.length - 1;
  at("pass").value = 0;
  data.folds.forEach((fold, k) => at("fold").append(element("option", fold.name, {value: k})));
  at("fold").prepend(element("option", "nothing", {value: -1, selected: ""}));

  /* ------------------------------------------------------------------------------ the picture */
  function show(next, fit) {
    picture = next;
    picture.size = picture.boxes.map(b => data.boxes[b].width);
    chosen = over = -1;
    search();
    if (fit) whole(); else draw();
  }
  const steps = () => picture.layer.reduce((a, b) => Math.max(a, b), 0) + 1;
  const span = () => picture.x.reduce(([a, b], x, k) =>
    [Math.min(a, x - picture.size[k] / 2), Math.max(b, x + picture.size[k] / 2)], [Infinity, -Infinity]);
  function whole() {
    const [a, b] = picture.x.length ? span() : [0, 1], width = canvas.clientWidth, height = canvas.clientHeight;
    scale = Math.min(1.2, Math.max(0.35, Math.min(width / (b - a + 80), height / (steps() * LAYER + 60))));
    left = width / 2 - scale * (a + b) / 2;
    top = 24;
    draw();
  }
  const screen = (x, layer) => [left + scale * x, top + scale * (layer * LAYER + HEIGHT / 2)];
  let asked = false;
  const draw = () => { if (!asked) { asked = true; requestAnimationFrame(drawNow); } };
  function drawNow() {
    asked = false;
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
      canvas.width = width * ratio;
      canvas.height = height * ratio;
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const first = (-top / scale) / LAYER - 1, last = ((height - top) / scale) / LAYER + 1;
    for (const [a, b, label, bends] of picture.lines) {
      if (picture.layer[b] < first || picture.layer[a] > last) continue;
      const near = a === over || b === over || a === chosen || b === chosen;
      pen.strokeStyle = near ? colours["--mark"] : colours["--line"];
      pen.lineWidth = near ? 2 : 1.2;
      const points = [screen(picture.x[a], picture.layer[a]), ...bends.map((x, k) => screen(x, picture.layer[a] + 1 + k)),
        screen(picture.x[b], picture.layer[b])];
      pen.beginPath();
      pen.moveTo(points[0][0], points[0][1] + scale * HEIGHT / 2);
      for (let k = 1; k < points.length; k++) {
        const [x0, y0] = points[k - 1], [x1, y1] = points[k], end = y1 - (k === points.length - 1 ? scale * HEIGHT / 2 : 0);
        const middle = (y0 + end) / 2;
        pen.bezierCurveTo(x0, middle, x1, middle, x1, end);
      }
      pen.stroke();
      if (near && label >= 0 && scale > 0.5) {
        const [x, y] = points[points.length - 1];
        pen.fillStyle = colours["--soft"];
        pen.font = `${11 * Math.min(scale, 1.2)}px system-ui, sans-serif`;
        pen.textAlign = "left";
        pen.fillText(data.types[label], x + 5, y - scale * (HEIGHT / 2 + 6));
      }
    }
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let k = 0; k < picture.boxes.length; k++) {
      if (picture.layer[k] < first || picture.layer[k] > last) continue;
      drawBox(k);
    }
  }
  function drawBox(k) {
    const box = data.boxes[picture.boxes[k]], [x, y] = screen(picture.x[k], picture.layer[k]);
    const w = scale * picture.size[k], h = scale * HEIGHT;
    if (x + w < 0 || x - w > canvas.clientWidth) return;
    const port = box.label.startsWith("input") || box.label.startsWith("output");
    const changed = before.size && !before.has(picture.boxes[k]);
    pen.fillStyle = lit.has(k) ? colours["--lit"] : changed ? colours["--new"] : port ? colours["--port"] : colours["--box"];
    pen.strokeStyle = k === chosen ? colours["--mark"] : colours["--line"];
    pen.lineWidth = k === chosen ? 2.5 : 1;
    pen.beginPath();
    pen.roundRect(x - w / 2, y - h / 2, w, h, 5 * scale);
    pen.fill();
    pen.stroke();
    const share = shareOf(box);
    if (share > 0) {
      pen.fillStyle = `hsl(${Math.round(120 - 120 * Math.min(1, share * 4))} 70% 50%)`;
      pen.fillRect(x - w / 2 + 3, y + h / 2 - 5 * scale, Math.max(2, (w - 6) * Math.min(1, share)), 3 * scale);
    }
    if (scale < 0.28) return;
    pen.fillStyle = colours["--text"];
    pen.font = `600 ${12 * scale}px system-ui, sans-serif`;
    pen.fillText(cut(box.label, picture.size[k]), x, y - 8 * scale);
    pen.fillStyle = colours["--soft"];
    pen.font = `${11 * scale}px system-ui, sans-serif`;
    pen.fillText(cut(box.name, picture.size[k]), x, y + 7 * scale);
  }
  const cut = (text, width) => {
    const most = Math.max(6, Math.floor((width - 12) / 6.4));
    return text.length <= most ? text : "…" + text.slice(1 - most);
  };
  const shareOf = box => box.layers.reduce((sum, l) => {
    const found = stepsOf.get(l) || [];
    return Math.max(sum, ...found.map(s => (data.steps[s].time || {}).share || 0));
  }, 0);

  /* ------------------------------------------------------------------------------ moving */
  const near = event => {
    const x = (event.offsetX - left) / scale, y = (event.offsetY - top) / scale;
    const layer = Math.floor(y / LAYER);
    if (y - layer * LAYER > HEIGHT) return -1;
    return picture.layer.findIndex((l, k) => l === layer && Math.abs(picture.x[k] - x) <= picture.size[k] / 2);
  };
  let held = null;
  canvas.addEventListener("pointerdown", e => { held = [e.clientX, e.clientY, left, top, false]; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", e => {
    if (held) {
      const dx = e.clientX - held[0], dy = e.clientY - held[1];
      held[4] = held[4] || Math.abs(dx) + Math.abs(dy) > 4;
      left = held[2] + dx;
      top = held[3] + dy;
      draw();
      return;
    }
    const found = near(e);
    if (found !== over) { over = found; light(found < 0 ? [] : data.boxes[picture.boxes[found]].layers); }
  });
  canvas.addEventListener("pointerup", e => {
    const moved = held && held[4];
    held = null;
    if (!moved) choose(near(e));
  });
  canvas.addEventListener("wheel", e => {
    e.preventDefault();
    if (!e.ctrlKey && !e.metaKey && !e.altKey && Math.abs(e.deltaY) < 1000 && e.shiftKey) { left -= e.deltaY; draw(); return; }
    const factor = Math.exp(-e.deltaY / 500), old = scale;
    scale = Math.min(4, Math.max(0.04, scale * factor));
    left = e.offsetX - (e.offsetX - left) * scale / old;
    top = e.offsetY - (e.offsetY - top) * scale / old;
    draw();
  }, {passive: false});
  canvas.addEventListener("dblclick", whole);
  const centre = k => {
    scale = Math.max(scale, 0.8);
    left = canvas.clientWidth / 2 - scale * picture.x[k];
    top = canvas.clientHeight / 2 - scale * picture.layer[k] * LAYER;
    draw();
  };

  /* What belongs to these layers: in the picture, and in the list of functions. */
  function light(layers) {
    const wanted = new Set(layers);
    lit = new Set();
    if (wanted.size) picture.boxes.forEach((b, k) => { if (data.boxes[b].layers.some(l => wanted.has(l))) lit.add(k); });
    hits.forEach(k => lit.add(k));
    side.querySelectorAll("tr[data-step]").forEach(row =>
      row.classList.toggle("lit", data.steps[row.dataset.step].layers.some(l => wanted.has(l))));
    draw();
  }

  /* ------------------------------------------------------------------------------ the panel */
  function choose(k) {
    chosen = k;
    if (k < 0) overview(); else detail(data.boxes[picture.boxes[k]]);
    draw();
  }
  const ms = seconds => (seconds * 1e3).toPrecision(3);
  function overview() {
    side.replaceChildren();
    const stage = data.stages[at("pass").value];
    side.append(element("h2", `${data.steps.length} functions`), element("p", data.about, {class: "soft"}));
    const timed = data.steps.some(s => s.time), table = element("table"), head = element("tr"), body = element("tbody");
    const columns = [["layers", s => names(s)], ...(timed ? [["ms", s => ms(s.time.seconds)], ["%", s => (100 * s.time.share).toFixed(1)],
      ["% of limit", s => s.time.limit === null ? "" : (100 * s.time.limit).toFixed(0)]] : [["kernel", s => s.label]])];
    let order = data.steps.map((_, k) => k);
    const fill = () => body.replaceChildren(...order.map(k => {
      const row = element("tr", undefined, {"data-step": k});
      columns.forEach(([, text]) => row.append(element("td", text(data.steps[k]))));
      row.addEventListener("pointerenter", () => light(data.steps[k].layers));
      row.addEventListener("pointerleave", () => light([]));
      row.addEventListener("click", () => { side.replaceChildren(back()); functionPart(k); side.scrollTop = 0; });
      return row;
    }));
    columns.forEach(([name], c) => {
      const cell = element("th", name, {class: "sorts", title: "sort"});
      cell.addEventListener("click", () => {
        const key = k => c && timed ? -[0, data.steps[k].time.seconds, data.steps[k].time.share, data.steps[k].time.limit || 0][c] : k;
        order.sort((a, b) => key(a) - key(b));
        fill();
      });
      head.append(cell);
    });
    fill();
    const top = element("thead");
    top.append(head);
    table.append(top, body);
    side.append(table);
    if (stage.gone.length) side.append(element("h2", `gone since the pass before (${stage.gone.length})`), ...stage.gone.slice(0, 200).map(t => element("p", data.boxes[t].text || data.boxes[t].name, {class: "soft"})));
  }
  const names = step => step.layers.map(l => data.layers[l].name).join(", ") || step.name;
  function back() {
    const made = element("p");
    const link = element("a", "← all functions", {href: "#"});
    link.addEventListener("click", e => { e.preventDefault(); choose(-1); });
    made.append(link);
    return made;
  }
  function detail(box) {
    side.replaceChildren(back(), element("h2", `${box.label}  ${box.name}`), element("pre", box.text));
    side.scrollTop = 0;
    if (box.members) {
      side.append(element("h2", `${box.members.length} operations`));
      box.members.slice(0, 300).forEach(m => side.append(element("p", data.boxes[m].label + "  " + data.boxes[m].name)));
    }
    layerPart(box.layers);
    [...new Set(box.layers.flatMap(l => stepsOf.get(l) || []))].slice(0, 12).forEach(functionPart);
  }
  function layerPart(layers) {
    if (!layers.length) return;
    side.append(element("h2", "In the model's file"));
    layers.slice(0, 40).forEach(l => {
      const layer = data.layers[l];
      side.append(element("p", layer.where + (layer.joined ? `; joined with others by ${layer.joined}` : "")));
      if (layer.text) side.append(element("pre", layer.text));
    });
  }
  function functionPart(k) {
    const step = data.steps[k], time = step.time;
    side.append(element("h2", `Function ${step.name}`), element("p", `layers: ${names(step)}`));
    if (time) side.append(element("p", `${ms(time.seconds)} ms, ${(100 * time.share).toFixed(1)} % of the run` +
      (time.limit === null ? "" : `, ${(100 * time.limit).toFixed(0)} % of the machine's limit`)));
    step.tensors.forEach(t => side.append(element("p", t, {class: "soft"})));
    const pair = element("div", undefined, {class: "pair"}), loops = element("div"), c = element("div");
    loops.append(element("p", "Loop IR", {class: "soft"}), element("pre", step.loops));
    c.append(element("p", "C", {class: "soft"}), element("pre", step.c));
    pair.append(loops, c);
    side.append(pair);
    step.kernels.forEach(symbol => {
      const more = element("details");
      more.append(element("summary", `kernel ${symbol}`));
      more.addEventListener("toggle", () => { if (more.children.length < 2) more.append(element("pre", data.sources[symbol])); });
      side.append(more);
    });
  }

  /* ------------------------------------------------------------------------------ controls */
  function setPass() {
    const k = +at("pass").value, stage = data.stages[k];
    at("fold").value = -1;
    at("passname").textContent = `${k}: ${stage.name} (${stage.number})`;
    before = new Set(k ? data.stages[k - 1].boxes : []);
    if (stage.name === "functions") before = new Set();
    show(stage, true);
    overview();
  }
  function search() {
    const wanted = at("search").value.toLowerCase();
    hits = [];
    if (wanted) picture.boxes.forEach((b, k) => {
      const box = data.boxes[b];
      if ((box.label + " " + box.name + " " + box.text).toLowerCase().includes(wanted)) hits.push(k);
    });
    at("hits").textContent = wanted ? `${hits.length} found` : "";
    light([]);
  }
  at("pass").addEventListener("input", setPass);
  at("fold").addEventListener("change", () => {
    const k = +at("fold").value;
    if (k < 0) { setPass(); return; }
    at("pass").value = 0;
    at("passname").textContent = `0: ${data.stages[0].name}, folded`;
    before = new Set();
    show(data.folds[k], true);
    overview();
  });
  at("search").addEventListener("input", () => { search(); if (hits.length) centre(hits[0]); });
  let next = 0;
  at("search").addEventListener("keydown", e => {
    if (e.key === "Enter" && hits.length) { next = (next + 1) % hits.length; chosen = hits[next]; choose(chosen); centre(chosen); }
  });
  new ResizeObserver(() => { canvas.style.width = at("graph").clientWidth + "px"; canvas.style.height = at("graph").clientHeight + "px"; draw(); }).observe(at("graph"));
  canvas.style.width = at("graph").clientWidth + "px";
  canvas.style.height = at("graph").clientHeight + "px";
  /* page.html#pass=functions&select=conv1 opens there. */
  const wanted = new URLSearchParams(location.hash.slice(1));
  const first = data.stages.findIndex(stage => stage.name === wanted.get("pass"));
  if (first > 0) at("pass").value = first;
  setPass();
  if (wanted.get("select")) {
    const found = picture.boxes.findIndex(b => data.boxes[b].name === wanted.get("select"));
    if (found >= 0) { choose(found); centre(found); light(data.boxes[picture.boxes[found]].layers); }
  }
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}
