"use strict";
// Draws the page out of its data. Texts of a store become text nodes and attributes, never markup.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const CHUNK = 120;
const LEGEND_MAX = 18;
const SMALL_NAMES_MAX = 8;  // Objects that have names on the sheet: more would hide the picture.
const NO_CLASS = ["", "#4cc2ff", "#000000"];
const LAYERS = [
  ["boxes", "Boxes", "b", (c) => has(c, "b") || has(c, "q")],
  ["outlines", "Outlines", "o", (c) => has(c, "p")],
  ["masks", "Masks", "m", (c) => Boolean(c.masks)],
  ["points", "Points", "k", (c) => has(c, "k")],
  ["names", "Names", "n", (c) => Boolean(c.objects)],
];

const state = {
  cards: data.samples, shown: [], drawn: 0, open: -1,
  next: data.served ? 0 : null, request: 0, seen: 0, side: 190,
};

// --- making elements ---

function has(card, part) {
  return Boolean(card.objects && card.objects.some((one) => part in one));
}

function set(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function el(tag, attributes, ...children) {
  return set(document.createElement(tag), attributes, children);
}

function draw(tag, attributes, ...children) {
  return set(document.createElementNS(SVG, tag), attributes, children);
}

const grouped = (number) => number.toLocaleString("en");
const plural = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;
const classOf = (number) => data.classes[number] || (number === undefined ? NO_CLASS : [String(number), ...NO_CLASS.slice(1)]);

// --- one picture with all that is on it ---

function pathOf(numbers, isClosed = true) {
  let text = "";
  for (let at = 0; at + 1 < numbers.length; at += 2) text += `${at ? "L" : "M"}${numbers[at]} ${numbers[at + 1]}`;
  return text + (isClosed ? "Z" : "");
}

function lines(path, colour, more) {
  return [
    draw("path", { class: "halo", d: path }),
    draw("path", { class: `line ${more || ""}`, d: path, stroke: colour }),
  ];
}

function pointsOf(points, colour) {
  const limbs = (data.limbs || []).filter(([a, b]) => points[a] && points[b]);
  const dots = points.filter(Boolean);
  const dot = (p) => `M${p[0]} ${p[1]}h0`;
  return draw("g", { class: "points" },
    limbs.map(([a, b]) => lines(`M${points[a][0]} ${points[a][1]}L${points[b][0]} ${points[b][1]}`, colour)),
    dots.length ? draw("path", { class: "dot under", d: dots.map(dot).join("") }) : null,
    dots.length ? draw("path", { class: "dot", d: dots.map(dot).join(""), stroke: colour }) : null,
    dots.some((p) => p[2] === 1)
      ? draw("path", { class: "dot hidden-point", d: dots.filter((p) => p[2] === 1).map(dot).join("") }) : null);
}

function anchorOf(one) {
  const flat = one.b || one.q || (one.p && one.p[0]);
  if (flat) {
    const xs = flat.filter((_, at) => at % 2 === 0), ys = flat.filter((_, at) => at % 2 === 1);
    return [Math.min(...xs), Math.min(...ys), Math.max(...xs) - Math.min(...xs)];
  }
  const first = (one.k || []).find(Boolean);
  return first ? [first[0], first[1], 0] : null;
}

function nameOf(one, card, scale, isLarge) {
  const [name, colour, ink] = classOf(one.c);
  const anchor = anchorOf(one);
  if (!name || !anchor || (!isLarge && (card.n > SMALL_NAMES_MAX || anchor[2] / scale < 26))) return null;
  const size = (isLarge ? 13 : 11) * scale;
  const most = isLarge ? 40 : Math.max(3, Math.floor(anchor[2] / scale / 6.2));
  const text = name.length > most ? `${name.slice(0, most - 1)}\u2026` : name;
  const width = text.length * size * 0.6 + size * 0.6, height = size * 1.35;
  const x = Math.max(0, Math.min(anchor[0], card.w - width));
  const y = anchor[1] >= height ? anchor[1] - height : Math.max(0, anchor[1]);
  return draw("g", { class: "names" },
    draw("rect", { x, y, width, height, rx: size * 0.22, fill: colour }),
    draw("text", { class: "name", x: x + size * 0.3, y: y + size, "font-size": size, fill: ink,
      textLength: width - size * 0.6, lengthAdjust: "spacingAndGlyphs" }, text));
}

function objectOf(one, number) {
  const [, colour] = classOf(one.c);
  const loose = one.f && one.f.some((flag) => flag !== "truncated") ? "loose" : "";
  const box = one.b && pathOf([one.b[0], one.b[1], one.b[2], one.b[1], one.b[2], one.b[3], one.b[0], one.b[3]]);
  const outline = one.p && one.p.map((part) => pathOf(part)).join("");
  // Of a turned box its corners say all; the upright box around it would only be in the way.
  return draw("g", { class: "object", "data-n": number },
    outline ? draw("g", { class: "outline" },
      draw("path", { class: "fill", d: outline, fill: colour }), lines(outline, colour, loose)) : null,
    one.q ? draw("g", { class: "box" }, lines(pathOf(one.q), colour, loose))
      : box ? draw("g", { class: "box" }, lines(box, colour, loose)) : null,
    one.k ? pointsOf(one.k, colour) : null);
}

// A picture with all that is on it, for a room of [width, height] in pixels of the screen.
function pictureOf(card, room, isLarge) {
  if (!card.pic) return el("p", { class: "error" }, card.error || "no picture");
  const scale = Math.max(card.w / room[0], card.h / room[1]);
  const sharp = scale < 0.5 ? "pixels" : "";
  const whole = { x: 0, y: 0, width: card.w, height: card.h, preserveAspectRatio: "none" };
  const objects = card.objects || [];
  return draw("svg", { viewBox: `0 0 ${card.w} ${card.h}`, role: "img", "aria-label": altOf(card) },
    draw("image", { ...whole, href: card.pic, class: sharp }),
    (card.masks || []).map((mask) => draw("image", { ...whole, href: mask.pic, class: "mask pixels" })),
    objects.map((one, at) => objectOf(one, at)),
    objects.map((one, at) => {
      const name = nameOf(one, card, scale, isLarge);
      return name && draw("g", { class: "object", "data-n": at }, name);
    }));
}

function altOf(card) {
  const parts = [`sample ${card.i}`, card.key];
  if (card.label !== undefined) parts.push(classOf(card.label)[0]);
  if (card.n) parts.push(plural(card.n, "object"));
  return parts.join(", ");
}

function well(card, room, isLarge) {
  return el("div", { class: card.clear ? "well clear" : "well" }, pictureOf(card, room, isLarge));
}

function chip(name, colour, ink) {
  return el("span", { class: "chip", title: name, style: { "background-color": colour, color: ink } }, name);
}

// --- the contact sheet ---

function namesOf(card) {
  if (!card.names) {
    const found = new Set((card.objects || []).filter((one) => "c" in one).map((one) => classOf(one.c)[0]));
    if (card.label !== undefined) found.add(classOf(card.label)[0]);
    for (const mask of card.masks || []) for (const [number, name] of mask.legend) found.add(name || String(number));
    card.names = found;
  }
  return card.names;
}

function tile(card, at) {
  const name = card.key.split("/").pop();
  return el("button", { class: "tile", type: "button", "data-at": at, "aria-label": altOf(card), title: card.key,
    onclick: () => openLarge(at) },
    well(card, [state.side, state.side], false),
    el("span", { class: "cap" },
      card.label !== undefined ? chip(...classOf(card.label)) : null,
      el("span", { class: "key" }, el("bdi", {}, name)),
      card.n && card.label === undefined ? el("span", { class: "soft" }, grouped(card.n)) : null));
}

function isWanted(card) {
  const words = search.value.trim().toLowerCase();
  return (!words || card.key.toLowerCase().includes(words)) &&
    (!classChoice.value || namesOf(card).has(classChoice.value)) &&
    (!splitChoice.value || data.splits[card.split] === splitChoice.value);
}

function refresh() {
  state.drawn = 0;
  sheet.replaceChildren();
  if (data.served) {
    Object.assign(state, { cards: [], shown: [], next: 0, seen: 0 });
    ask();
    return;
  }
  state.shown = state.cards.filter(isWanted);
  offerLegend();
  drawMore();
}

function drawMore() {
  const cards = state.shown.slice(state.drawn, state.drawn + CHUNK);
  sheet.append(...cards.map((card, at) => tile(card, state.drawn + at)));
  state.drawn += cards.length;
  const isAll = state.drawn >= state.shown.length && state.next === null;
  more.hidden = isAll;
  empty.hidden = state.shown.length > 0 || !isAll;
  tell();
  requestAnimationFrame(fill);
}

// Goes on while the end of what is drawn is in sight, or nearly: then nothing that scrolls tells of it.
function fill() {
  if (!more.hidden && more.offsetParent && more.getBoundingClientRect().top < innerHeight + 600) goOn();
}

function tell() {
  const count = grouped(state.shown.length);
  if (data.served) {
    tally.textContent = state.next === null ? `${count} found, all looked through`
      : `${count} found, ${grouped(state.seen)} of ${grouped(data.total)} looked through`;
  } else {
    const drawn = state.cards.length < data.total ? `${grouped(state.cards.length)} drawn of ${grouped(data.total)}`
      : grouped(data.total);
    tally.textContent = `${count} of ${drawn}`;
  }
}

async function ask() {
  if (state.next === null) return;
  const mine = ++state.request;
  const wanted = new URLSearchParams({ start: state.next, q: search.value.trim(), class: classChoice.value,
    split: splitChoice.value });
  more.disabled = true;
  try {
    const answer = await fetch(`samples?${wanted}`);
    if (!answer.ok) throw new Error(await answer.text());
    const found = await answer.json();
    if (mine !== state.request) return;
    Object.assign(data.classes, found.classes);
    state.cards.push(...found.samples);
    state.shown = state.cards;
    state.next = found.next;
    state.seen = found.seen;
    offerLayers();
    offerLegend();
    drawMore();
  } catch (error) {
    if (mine === state.request) tally.textContent = `The server does not answer: ${error.message}`;
  } finally {
    if (mine === state.request) more.disabled = false;
  }
}

function goOn() {
  if (state.drawn < state.shown.length) drawMore();
  else if (!more.disabled) ask();
}

// --- one sample large ---

function openLarge(at) {
  state.open = at;
  drawLarge();
  if (!large.open) large.showModal();
  drawLarge();
  fetchLarge(state.shown[at]);
}

async function fetchLarge(card) {
  if (!data.served || card.isWhole) return;
  const answer = await fetch(`sample?index=${card.i}`).catch(() => null);
  if (!answer || !answer.ok) return;
  const found = await answer.json();
  Object.assign(data.classes, found.classes);
  Object.assign(card, found.sample, { isWhole: true, names: undefined });
  if (large.open && state.shown[state.open] === card) drawLarge();
}

function drawLarge() {
  const card = state.shown[state.open];
  const at = `${grouped(state.open + 1)} of ${grouped(state.shown.length)}`;
  const isNarrow = innerWidth <= 820;
  const count = 1 + (card.more || []).length + (card.raw ? 1 : 0);
  const room = isNarrow ? [innerWidth, 0.52 * innerHeight]
    : [Math.min(1500, 0.97 * innerWidth) * 0.72 / count, Math.min(1000, 0.95 * innerHeight) - 90];
  const figures = [el("figure", {}, well(card, room, true),
    el("figcaption", {}, [card.raw || card.more ? "stored" : null, card.pic ? `${card.w} x ${card.h}` : null,
      card.note].filter(Boolean).join(" \u00b7 ")))];
  for (const one of card.more || []) figures.push(el("figure", {},
    well({ ...one, w: card.w, h: card.h, i: card.i, key: one.name }, room, true), el("figcaption", {}, one.name)));
  if (card.raw) figures.push(el("figure", { class: "raw" },
    well({ ...card.raw, i: card.i, key: card.key }, room, true),
    el("figcaption", {}, ["raw now", card.raw.w ? `${card.raw.w} x ${card.raw.h}` : null, card.raw.note]
      .filter(Boolean).join(" \u00b7 "))));
  const focused = document.activeElement && document.activeElement.getAttribute("aria-label");
  large.replaceChildren(el("div", { class: "large" },
    el("div", { class: "bar" },
      el("h2", { class: "mono" }, card.key),
      el("span", { class: "soft" }, `sample ${grouped(card.i)} \u00b7 ${at}`),
      el("button", { class: "plain", type: "button", onclick: () => step(-1), "aria-label": "Previous sample",
        disabled: state.open === 0 }, "\u2190"),
      el("button", { class: "plain", type: "button", onclick: () => step(1), "aria-label": "Next sample",
        disabled: state.open + 1 >= state.shown.length }, "\u2192"),
      el("button", { class: "plain", type: "button", onclick: () => large.close(), autofocus: true }, "Close")),
    el("div", { class: "stage" }, figures),
    el("div", { class: "side", tabindex: "0", "aria-label": "Fields of the sample" }, sideOf(card))));
  const again = focused && large.querySelector(`button[aria-label="${CSS.escape(focused)}"]:enabled`);
  (again || large.querySelector("button[autofocus]")).focus();
}

function step(by) {
  const next = state.open + by;
  if (next < 0 || next >= state.shown.length) return;
  state.open = next;
  if (next >= state.drawn) drawMore();
  if (data.served && next + 12 > state.shown.length) goOn();
  drawLarge();
  fetchLarge(state.shown[next]);
}

function pick(number) {
  large.querySelector(".stage").classList.toggle("picked", number !== null);
  for (const node of large.querySelectorAll("g.object")) node.classList.toggle("on", Number(node.dataset.n) === number);
}

function sideOf(card) {
  const parts = [];
  const chips = [];
  if (card.label !== undefined) chips.push(chip(...classOf(card.label)));
  if (card.split !== undefined && data.splits[card.split]) chips.push(el("span", { class: "soft" }, ` split ${data.splits[card.split]}`));
  if (chips.length) parts.push(el("section", {}, chips));
  if (card.rejects) parts.push(el("section", { class: "bad" }, el("h3", {}, "Would be rejected"),
    table(card.rejects)));
  if (card.objects) parts.push(el("section", {}, el("h3", {}, plural(card.n, "object")),
    el("ul", { class: "objects" }, card.objects.map((one, at) => el("li", {}, objectLine(one, at)))),
    card.lost ? el("p", { class: "soft" }, `and ${grouped(card.lost)} more, not drawn: too many for one page`) : null));
  for (const mask of card.masks || []) parts.push(el("section", {}, el("h3", {}, mask.name),
    el("table", {}, mask.legend.map(([number, name, colour, , share]) => el("tr", {},
      el("td", {}, el("span", { class: "swatch", style: { "background-color": colour } }), name || String(number)),
      el("td", { class: "soft" }, name ? String(number) : ""),
      el("td", {}, `${(share * 100).toFixed(1)} %`)))),
    mask.ids > mask.legend.length ? el("p", { class: "soft" }, `and ${grouped(mask.ids - mask.legend.length)} more ids`) : null));
  parts.push(el("section", {}, el("h3", {}, "Fields"), el("table", { class: "fields" },
    card.fields.map(([name, kind, text]) => el("tr", {}, el("th", { title: kind }, name), el("td", { class: "mono" }, text))))));
  return parts;
}

function objectLine(one, at) {
  const [name, colour] = classOf(one.c);
  const facts = [];
  if (one.b) facts.push(`${round(one.b[2] - one.b[0])} x ${round(one.b[3] - one.b[1])} at ${one.b[0]}, ${one.b[1]}`);
  if (one.k) facts.push(`${one.k.filter(Boolean).length} of ${plural(one.k.length, "point")}`);
  if (one.s) facts.push(`area ${one.s}`);
  facts.push(...(one.f || []), ...(one.t || []).map(([field, text]) => `${field} ${text}`));
  return el("button", { type: "button", onmouseenter: () => pick(at), onmouseleave: () => pick(null),
    onfocus: () => pick(at), onblur: () => pick(null) },
    el("span", { class: "swatch", style: { "background-color": colour } }), name || `object ${at}`,
    el("span", { class: "soft" }, ` ${facts.join(" \u00b7 ")}`));
}

const round = (number) => Math.round(number * 10) / 10;

// --- figures, rejects, how it was made ---

function table(rows) {
  return el("table", { class: "pairs" }, rows.map(([name, text]) => el("tr", {}, el("th", {}, name), el("td", {}, text))));
}

function bars(figure) {
  const most = Math.max(1, ...figure.counts.flat());
  return el("div", { class: "panel" }, el("h2", {}, figure.title),
    figure.rows.length ? el("p", { class: "soft" }, figure.rows.map((row, at) => [
      el("span", { class: "swatch", style: { "background-color": at ? "var(--soft)" : "var(--accent)" } }), `${row}  `])) : null,
    el("table", { class: "bars" }, figure.names.map((name, at) => el("tr", {},
      el("th", { title: name, scope: "row" }, name),
      el("td", { class: "bar" }, figure.counts.map((row) => el("div", { style: { width: `${(row[at] / most) * 100}%`,
        "min-width": row[at] ? "2px" : "0" } }))),
      el("td", { class: "count" }, figure.counts.map((row) => grouped(row[at])).join(" / "))))),
    figure.note ? el("p", { class: "soft" }, figure.note) : null);
}

function figuresSection() {
  const panels = data.figures.map(bars);
  if (data.means.mean) {
    const channels = { 1: ["gray"], 3: ["red", "green", "blue"], 4: ["red", "green", "blue", "alpha"] }[data.means.mean.length]
      || data.means.mean.map((_, at) => String(at));
    panels.push(el("div", { class: "panel" }, el("h2", {}, "Mean and deviation of the pixels, white is 1"),
      el("table", {}, el("tr", {}, el("th", {}, "channel"), el("th", {}, "mean"), el("th", {}, "deviation")),
        channels.map((name, at) => el("tr", {}, el("td", {}, name),
          el("td", { class: "mono" }, data.means.mean[at].toFixed(4)), el("td", { class: "mono" }, data.means.std[at].toFixed(4)))))));
  }
  return panels.length ? panels : [el("p", { class: "empty" }, "Nothing to count.")];
}

function rejectsSection() {
  const found = data.rejects;
  if (!found.total) return [el("p", { class: "empty" }, "Nothing was rejected.")];
  return [
    el("div", { class: "panel" }, el("h2", {}, `${grouped(found.total)} rejected, by reason`),
      el("table", {}, el("tr", {}, el("th", {}, "count"), el("th", {}, "what"), el("th", {}, "reason")),
        found.reasons.map(([kind, reason, count]) => el("tr", {}, el("td", {}, grouped(count)), el("td", {}, kind), el("td", {}, reason)))),
      found.other ? el("p", { class: "soft" }, `and ${grouped(found.other)} of other reasons`) : null),
    el("div", { class: "lost" }, found.lines.map((line) => el("div", { class: "panel" },
      line.raw && line.raw.pic ? well({ ...line.raw, i: "", key: line.path }, [280, 150], false) : null,
      el("div", { class: "mono" }, line.path),
      el("p", { class: "bad" }, line.kind ? `${line.kind}: ${line.reason}` : line.reason),
      line.raw && line.raw.error && line.raw.error !== line.reason ? el("p", { class: "soft" }, line.raw.error) : null))),
    found.lines.length < found.total
      ? el("p", { class: "soft" }, `The first ${grouped(found.lines.length)} of ${grouped(found.total)}.`) : null,
  ];
}

function aboutSection() {
  const parts = [];
  if (data.notes.length) parts.push(el("div", { class: "panel wide" }, el("h2", {}, "Notes"),
    el("ul", { class: "notes" }, data.notes.map((note) => el("li", {}, note)))));
  if (data.code.length) parts.push(el("div", { class: "panel wide" }, el("h2", {}, "To read it"), el("pre", {}, data.code.join("\n"))));
  for (const [title, rows] of data.tables) if (rows.length) parts.push(el("div", { class: "panel" }, el("h2", {}, title), table(rows)));
  if (data.evidence) parts.push(el("div", { class: "panel wide" }, el("h2", {}, "Why this layout"), el("pre", {}, data.evidence)));
  return parts;
}

// --- the page ---

const search = el("input", { type: "search", placeholder: "Search keys", "aria-label": "Search keys", oninput: later(refresh) });
const classChoice = el("select", { "aria-label": "Class", onchange: refresh });
const splitChoice = el("select", { "aria-label": "Split", onchange: refresh });
const tally = el("span", { class: "status", role: "status" });
const sheet = el("div", { class: "sheet" });
const empty = el("p", { class: "empty", hidden: true }, "No sample fits.");
const more = el("button", { class: "plain more", type: "button", hidden: true, onclick: goOn }, "More");
const large = el("dialog", { "aria-label": "One sample", onclose: onClosed });
const layers = el("div", { class: "layers", role: "group", "aria-label": "What is drawn" });
const legend = el("div", { class: "legend", role: "group", "aria-label": "Classes by their colours" });
const opacity = el("input", { type: "range", min: "0", max: "1", step: "0.05", value: "0.55",
  oninput: () => document.documentElement.style.setProperty("--mask", opacity.value) });
const opacityLabel = el("label", { hidden: true }, "mask", opacity);
const size = el("input", { type: "range", min: "110", max: "420", step: "10", value: "190", oninput: () => {
  state.side = Number(size.value);
  document.documentElement.style.setProperty("--tile", `${size.value}px`);
}, onchange: redraw });

function redraw() {
  const count = state.drawn;
  sheet.replaceChildren(...state.shown.slice(0, count).map(tile));
}

function later(work) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, data.served ? 250 : 60);
  };
}

function choices(select, all, names) {
  set(select, { hidden: names.length < 2 }, [el("option", { value: "" }, all), names.map((name) => el("option", { value: name }, name))]);
}

function offerLayers() {
  for (const [name, title, key, isThere] of LAYERS) {
    if (layers.querySelector(`[data-layer="${name}"]`) || !state.cards.some(isThere)) continue;
    layers.append(el("button", { type: "button", "data-layer": name, "data-key": key, "aria-pressed": "true",
      title: `${title} (${key})`, onclick: (event) => toggle(event.currentTarget) }, title));
    if (name === "masks") opacityLabel.hidden = false;
  }
  layers.hidden = !layers.children.length;
}

// Which colour is which class, those of most samples first; each chooses its class, or all again.
function offerLegend() {
  const counts = new Map(), looks = new Map();
  for (const look of Object.values(data.classes)) looks.set(look[0], look);
  for (const card of state.cards) {
    for (const name of namesOf(card)) counts.set(name, (counts.get(name) || 0) + 1);
    for (const mask of card.masks || []) for (const [, name, colour, ink] of mask.legend) if (name) looks.set(name, [name, colour, ink]);
  }
  const names = [...counts.keys()].filter((name) => looks.has(name)).sort((a, b) => counts.get(b) - counts.get(a));
  legend.replaceChildren(...names.slice(0, LEGEND_MAX).map((name) => el("button", { type: "button", class: "chip", title: name,
    "aria-pressed": String(classChoice.value === name),
    disabled: ![...classChoice.options].some((option) => option.value === name),  // Ids of masks, of a server.
    style: { "background-color": looks.get(name)[1], color: looks.get(name)[2] },
    onclick: () => {
      classChoice.value = classChoice.value === name ? "" : name;
      refresh();
    } }, name)));
  if (names.length > LEGEND_MAX) legend.append(el("span", { class: "soft" }, `and ${grouped(names.length - LEGEND_MAX)} more`));
  legend.hidden = names.length < 2;
}

function toggle(button) {
  const isOn = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(isOn));
  document.body.classList.toggle(`no-${button.dataset.layer}`, !isOn);
}

function onClosed() {
  const node = sheet.querySelector(`[data-at="${state.open}"]`);
  state.open = -1;
  if (node) node.focus();
}

const SECTIONS = [
  ["samples", data.kind === "raw" ? "First look" : "Samples", () => [
    el("div", { class: "tools" }, search, classChoice, splitChoice, layers, opacityLabel, el("label", {}, "size", size), tally),
    legend, sheet, empty, more]],
  ["figures", "Figures", figuresSection],
  ["rejects", `Rejects ${grouped(data.rejects.total)}`, rejectsSection],
  ["about", data.kind === "raw" ? "Layout" : "Recipe", aboutSection],
];

function show(name) {
  for (const [id] of SECTIONS) {
    document.getElementById(id).hidden = id !== name;
    document.getElementById(`tab-${id}`).setAttribute("aria-selected", String(id === name));
  }
}

function move(by) {
  const tiles = [...sheet.children];
  const at = tiles.indexOf(document.activeElement);
  const next = tiles[at < 0 ? 0 : Math.max(0, Math.min(tiles.length - 1, at + by))];
  if (next) next.focus();
}

function nextTab(tab, by) {
  const tabs = [...tab.parentNode.children];
  const next = tabs[(tabs.indexOf(tab) + by + tabs.length) % tabs.length];
  next.focus();
  next.click();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof HTMLElement && event.target.matches("input:not([type=range]), select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const isRange = event.target instanceof HTMLElement && event.target.matches("input[type=range]");
  const layer = layers.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  const columns = getComputedStyle(sheet).gridTemplateColumns.split(" ").length;
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  const tab = document.activeElement.closest("[role=tab]");
  if (layer) toggle(layer);
  else if (tab && (event.key === "ArrowLeft" || event.key === "ArrowRight")) nextTab(tab, moves[event.key]);
  else if (large.open && !isRange && (event.key === "ArrowLeft" || event.key === "ArrowRight")) step(moves[event.key]);
  else if (large.open) return;
  else if (event.key === "/") { show("samples"); search.focus(); }
  else if (event.key >= "1" && event.key <= String(SECTIONS.length)) show(SECTIONS[Number(event.key) - 1][0]);
  else if (event.key in moves && !isRange && !document.getElementById("samples").hidden &&
    (sheet.contains(document.activeElement) || document.activeElement === document.body)) move(moves[event.key]);
  else return;
  event.preventDefault();
}

function start() {
  document.body.append(
    el("header", {}, el("h1", {}, data.title),
      el("dl", { class: "facts" }, data.facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
      el("div", { class: "tabs", role: "tablist" }, SECTIONS.map(([id, title]) => el("button", { type: "button",
        role: "tab", id: `tab-${id}`, "aria-controls": id, onclick: () => show(id) }, title)))),
    el("main", {}, SECTIONS.map(([id, , make]) => el("section", { id, role: "tabpanel", "aria-labelledby": `tab-${id}`,
      class: { figures: "figures", rejects: "listed", about: "two" }[id] }, make()))),
    el("footer", {}, "Keys: / search \u00b7 arrows move \u00b7 Enter opens, Esc closes \u00b7 b o m k n what is drawn \u00b7 1 to 4 parts of the page"),
    large);
  const names = new Set(data.class_names || []);
  if (!data.class_names) for (const card of state.cards) for (const name of namesOf(card)) names.add(name);
  choices(classChoice, "All classes", [...names].filter(Boolean));
  choices(splitChoice, "All splits", data.splits);
  offerLayers();
  show(data.rejects.alone ? "rejects" : "samples");
  refresh();
  addEventListener("keydown", onKey);
  addEventListener("resize", later(() => large.open && drawLarge()));
  new IntersectionObserver(fill, { rootMargin: "600px" }).observe(more);
}

start();
