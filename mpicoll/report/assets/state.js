"use strict";

// The data of the page, and the choice of what is shown.

const DATA = JSON.parse(document.getElementById("data").textContent);
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const BACKENDS = [...new Set(DATA.panels.flatMap(p => p.curves.map(c => c.backend)))];
const ALGORITHMS = Object.keys(DATA.colours).filter(
  name => DATA.panels.some(p => p.curves.some(c => c.algorithm === name)));
const SETUPS = [...new Set(DATA.panels.map(p => p.setup))];
const RANKS = [...new Set(DATA.panels.map(p => p.ranks))].sort((a, b) => a - b);

// An algorithm whose button was not pressed is shown in the panels that show it at first.
const state = {backends: new Set(BACKENDS), algorithms: new Map(), bandwidth: "bus"};
const views = [];

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colourOf = name => DATA.colours[name] || css("--native");
const dashOf = backend => DASHES[BACKENDS.indexOf(backend) % DASHES.length];

function faded(colour) {
  const [r, g, b] = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},0.22)`;
}

function swatch(colour, dash) {
  const [space, patterns] = ["http://www.w3.org/2000/svg",
    {solid: "", dash: "7 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "11 4"}];
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "swatch");
  svg.setAttribute("viewBox", "0 0 24 10");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(space, "line");
  const parts = {x1: 0, x2: 24, y1: 5, y2: 5, stroke: colour, "stroke-width": 3,
    "stroke-dasharray": patterns[dash]};
  for (const [name, value] of Object.entries(parts)) line.setAttribute(name, value);
  svg.append(line);
  return svg;
}

function isVisible(panel, curve) {
  const chosen = state.algorithms.get(curve.algorithm);
  const shown = chosen === undefined ? panel.shown.includes(curve.name) : chosen;
  return shown && state.backends.has(curve.backend);
}

function pressed(name) {
  const chosen = state.algorithms.get(name);
  if (chosen !== undefined) return String(chosen);
  const visible = views.flatMap(v => v.panel.curves.filter(c => c.algorithm === name)
    .map(c => v.panel.shown.includes(c.name)));
  return !visible.includes(true) ? "false" : visible.includes(false) ? "mixed" : "true";
}
