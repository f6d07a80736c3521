"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const BACKENDS = [...new Set(DATA.panels.flatMap(p => p.curves.map(c => c.backend)))];
const ALGORITHMS = Object.keys(DATA.colours).filter(
  name => DATA.panels.some(p => p.curves.some(c => c.algorithm === name)));
const SETUPS = [...new Set(DATA.panels.map(p => p.setup))];
const RANKS = [...new Set(DATA.panels.map(p => p.ranks))].sort((a, b) => a - b);

// What is shown: an algorithm that nobody touched is where its panel shows it at first.
const state = {backends: new Set(BACKENDS), algorithms: new Map(), bandwidth: "bus"};
const views = [];

// -- small helpers ------------------------------------------------------------------------

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

// -- what is visible ----------------------------------------------------------------------

function isVisible(panel, curve) {
  const chosen = state.algorithms.get(curve.algorithm);
  const shown = chosen === undefined ? panel.shown.includes(curve.name) : chosen;
  return shown && state.backends.has(curve.backend);
}

function pressed(name) {
  const chosen = state.algorithms.get(name);
  if (chosen !== undefined) return String(chosen);
  const own = views.flatMap(v => v.panel.curves.filter(c => c.algorithm === name)
    .map(c => v.panel.shown.includes(c.name)));
  return !own.includes(true) ? "false" : own.includes(false) ? "mixed" : "true";
}

// -- traces -------------------------------------------------------------------------------

const KINDS = {
  time: {title: "Time, us", values: c => c.time.median,
    low: c => c.time.low, high: c => c.time.high},
  bandwidth: {title: "Bandwidth, GB/s", values: c => c[state.bandwidth],
    low: c => scaled(c, "high"), high: c => scaled(c, "low")},
  speedup: {title: "Speed-up over native, times", values: c => c.ratio,
    low: c => c.ratioLow, high: c => c.ratioHigh, line: 1},
  over: {title: "Measured over bound, times", values: c => c.over, line: 1},
};

// A bandwidth's interval is that of its time, the other way round.
const scaled = (curve, end) => curve[state.bandwidth].map(
  (value, i) => value === null ? null : value * curve.time.median[i] / curve.time[end][i]);

function traces(panel, kind) {
  const found = [];
  for (const curve of panel.curves) {
    const own = trace(panel, curve, KINDS[kind], kind);
    if (!own.keep.length) continue;
    if (KINDS[kind].low && !isDots(panel)) found.push(band(panel, curve, KINDS[kind], own));
    found.push(own.trace);
  }
  return found;
}

const isDots = panel => !panel.sizes.length;
const visibility = (panel, curve) => isVisible(panel, curve) ? true : "legendonly";

function trace(panel, curve, kind, name) {
  const values = kind.values(curve), dots = isDots(panel);
  const keep = [...values.keys()].filter(i => values[i] !== null && (dots || curve.x[i] > 0));
  const at = list => keep.map(i => list[i]);
  const label = `${curve.backend} ${curve.name}`;
  const symbols = keep.map(i => curve.wrong[i] ? "x-thin" : curve.symbols[i] +
    (name === "speedup" && curve.verdict[i] === "tie" ? "-open" : ""));
  const drawn = {
    type: "scatter", mode: dots ? "markers" : "lines+markers", name: label,
    meta: {backend: curve.backend, algorithm: curve.algorithm},
    x: dots ? at(values) : at(curve.x), y: dots ? keep.map(() => label) : at(values),
    text: at(curve.text), hovertemplate: "%{text}<extra></extra>",
    visible: visibility(panel, curve), showlegend: false,
    line: {color: colourOf(curve.algorithm), dash: dashOf(curve.backend), width: 1.8},
    marker: {size: dots ? 9 : 7, symbol: symbols, color: colourOf(curve.algorithm),
      line: {width: 1.2, color: colourOf(curve.algorithm)}},
  };
  if (dots && kind.low) drawn.error_x = errors(at(values), at(kind.low(curve)), at(kind.high(curve)));
  return {trace: drawn, keep};
}

const errors = (values, low, high) => ({
  type: "data", symmetric: false, thickness: 1.2, width: 3,
  array: values.map((v, i) => high[i] - v), arrayminus: values.map((v, i) => v - low[i]),
});

function band(panel, curve, kind, {keep}) {
  const [low, high] = [kind.low(curve), kind.high(curve)];
  const back = [...keep].reverse();
  return {
    type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip", showlegend: false,
    meta: {backend: curve.backend, algorithm: curve.algorithm, band: true},
    x: [...keep, ...back].map(i => curve.x[i]),
    y: [...keep.map(i => high[i]), ...back.map(i => low[i])],
    line: {width: 0}, fillcolor: faded(colourOf(curve.algorithm)),
    visible: visibility(panel, curve),
  };
}

// -- layouts ------------------------------------------------------------------------------

const font = () => ({family: "system-ui, 'DejaVu Sans', sans-serif", size: 11, color: css("--ink")});
const axis = more => ({gridcolor: css("--line"), linecolor: css("--line"), zeroline: false,
  automargin: true, ...more});
const base = more => ({
  paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: font(), showlegend: false,
  margin: {l: 48, r: 10, t: 8, b: 38}, hovermode: "closest",
  hoverlabel: {bgcolor: css("--raised"), bordercolor: css("--line"), align: "left", font: font()},
  ...more,
});

// Decades where there are many, 1-2-5 where there are few, every digit within one.
function logarithmic(found, coordinate, room) {
  const values = found.flatMap(t => t[coordinate]).filter(v => v > 0);
  const decades = Math.log10(Math.max(...values) / Math.min(...values));
  const dtick = decades > room ? Math.ceil(decades / 9) : decades > 0.6 ? "D2" : "D1";
  return {type: "log", exponentformat: "none", tickformat: "~g", dtick};
}

function layout(panel, kind, found) {
  const {title, line} = KINDS[kind];
  if (isDots(panel)) {
    const axes = {xaxis: axis({...logarithmic(found, "x", 1.5), title: {text: title}}), yaxis: axis({type: "category", autorange: "reversed"})};
    return base({...axes, shapes: line ? [rule("x", line)] : []});
  }
  const every = Math.ceil(panel.sizes.length / 8);
  const ticks = panel.sizes.filter((_, i) => i % every === 0);
  const x = axis({type: "log", tickvals: ticks.map(t => t[0]), ticktext: ticks.map(t => t[1]),
    title: {text: "bytes in total"}});
  return base({xaxis: x, yaxis: axis(logarithmic(found, "y", 3)), shapes: line ? [rule("y", line)] : []});
}

function rule(which, at) {
  const other = which === "x" ? "y" : "x";
  return {type: "line", [`${which}0`]: at, [`${which}1`]: at, [`${other}ref`]: `${other} domain`,
    [`${other}0`]: 0, [`${other}1`]: 1, line: {color: css("--soft"), width: 1, dash: "dot"}};
}

const CONFIG = {responsive: true, displaylogo: false,
  modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
  toImageButtonOptions: {format: "svg"}};

// -- one collective -----------------------------------------------------------------------

function view(article) {
  const name = article.dataset.collective;
  const panels = DATA.panels.filter(p => p.collective === name);
  const own = {article, panels, panel: most(panels), dirty: true, seen: false, charts: {}};
  const select = make("select", {"aria-label": `Ranks and variant of ${name}`});
  panels.forEach((p, i) => select.append(make("option", {value: i},
    (SETUPS.length > 1 ? `${p.setup}: ` : "") + p.label +
      (p.crowded ? " · oversubscribed" : ""))));
  select.value = panels.indexOf(own.panel);
  select.addEventListener("change", () => choose(own, panels[select.value]));
  own.select = select;
  own.legend = make("ul", {class: "legend", "aria-label": `Curves of ${name}`});
  article.prepend(make("header", {}, article.querySelector("h3"), select));
  article.append(own.legend, charts(own, name));
  return own;
}

// The panel with the most in it says the most, unless its ranks waited for cores.
const points = panel => panel.curves.reduce((sum, c) => sum + c.x.length, 0);
const weight = panel => [panel.crowded ? 0 : 1, points(panel), panel.ranks];
const heavier = (a, b) => {
  const at = a.findIndex((value, i) => value !== b[i]);
  return at >= 0 && a[at] > b[at];
};
const most = panels => panels.reduce((best, p) => heavier(weight(p), weight(best)) ? p : best);

function charts(own, name) {
  const grid = make("div", {class: "grid"});
  for (const kind of Object.keys(KINDS)) {
    const caption = make("figcaption", {}, KINDS[kind].title);
    own.charts[kind] = make("div", {class: "chart", role: "img",
      "aria-label": `${KINDS[kind].title} of ${name} over size`});
    grid.append(make("figure", {"data-kind": kind}, caption, own.charts[kind]));
  }
  return grid;
}

function choose(own, panel) {
  own.panel = panel;
  own.select.value = own.panels.indexOf(panel);
  refresh();
}

function draw(own) {
  own.dirty = false;
  for (const [kind, chart] of Object.entries(own.charts)) {
    const found = traces(own.panel, kind);
    chart.parentNode.hidden = !found.length;
    if (!found.length) continue;
    chart.style.height = isDots(own.panel) ? `${120 + 22 * found.length}px` : "";
    Plotly.react(chart, found, layout(own.panel, kind, found), CONFIG);
  }
}

function legend(own) {
  const shown = own.panel.curves.filter(c => isVisible(own.panel, c));
  const hidden = own.panel.curves.length - shown.length;
  own.legend.replaceChildren(...shown.map(c => make("li", {},
    swatch(colourOf(c.algorithm), dashOf(c.backend)), `${c.backend} ${c.name}`)));
  if (hidden) own.legend.append(make("li", {class: "quiet"}, `${hidden} more, not shown`));
}

// -- tools --------------------------------------------------------------------------------

function toggle(label, attributes, onClick, mark) {
  const button = make("button", {type: "button", class: "toggle", ...attributes},
    ...(mark ? [mark] : []), label);
  button.addEventListener("click", onClick);
  return button;
}

function chooser(label, values, onChange) {
  const select = make("select", {"aria-label": label}, make("option", {value: ""}, "for all…"));
  values.forEach(([value, text]) => select.append(make("option", {value}, text)));
  select.addEventListener("change", () => select.value && onChange(select.value));
  return make("label", {}, `${label} `, select);
}

function flip(set, name) {
  set.has(name) ? set.delete(name) : set.add(name);
  refresh();
}

function everywhere(holds) {
  for (const own of views) {
    const fitting = own.panels.filter(holds);
    if (fitting.length) choose(own, most(fitting));
  }
}

function tools(bar) {
  const first = make("div", {class: "row", role: "group", "aria-label": "Backends"},
    make("span", {class: "name"}, "backends"));
  for (const name of BACKENDS) first.append(toggle(name, {"data-backend": name},
    () => flip(state.backends, name), swatch(css("--ink"), dashOf(name))));
  if (RANKS.length > 1) first.append(chooser("ranks", RANKS.map(r => [r, r]),
    value => everywhere(p => p.ranks === Number(value) &&
      (SETUPS.length < 2 || p.setup === views[0].panel.setup))));
  if (SETUPS.length > 1) first.append(chooser("setup", SETUPS.map(s => [s, s]),
    value => everywhere(p => p.setup === value)));
  first.append(bandwidths());
  const strip = make("div", {class: "row strip", role: "group", "aria-label": "Algorithms"},
    make("span", {class: "name"}, "algorithms"));
  for (const name of ALGORITHMS) strip.append(toggle(name, {"data-algorithm": name}, () => {
    state.algorithms.set(name, pressed(name) !== "true");
    refresh();
  }, swatch(colourOf(name), "solid")));
  const reset = make("button", {type: "button", id: "reset"}, "as at first");
  reset.addEventListener("click", () => {
    state.algorithms.clear();
    state.backends = new Set(BACKENDS);
    refresh();
  });
  first.append(reset);
  bar.append(first, strip);
}

function bandwidths() {
  const select = make("select", {"aria-label": "Bandwidth"},
    make("option", {value: "bus"}, "bus"), make("option", {value: "alg"}, "algorithm"));
  select.addEventListener("change", () => { state.bandwidth = select.value; refresh(); });
  return make("label", {}, "bandwidth ", select);
}

// -- pairs --------------------------------------------------------------------------------

function pairs(place) {
  const select = make("select", {"aria-label": "Backend and transport of pairs"});
  DATA.pairs.forEach((p, i) => select.append(make("option", {value: i}, p.label)));
  const grid = make("div", {class: "grid three heat"});
  place.append(select, grid);
  const show = () => {
    grid.replaceChildren();
    for (const map of DATA.pairs[select.value].maps) heat(grid, map);
  };
  select.addEventListener("change", show);
  show();
  return show;
}

function heat(grid, map) {
  const chart = make("div", {class: "chart", role: "img"});
  const figure = make("figure", {}, make("figcaption", {}), chart);
  figure.firstChild.innerHTML = map.title;  // escaped by the page's maker
  chart.setAttribute("aria-label", `Heat map: ${figure.firstChild.textContent}`);
  grid.append(figure);
  const few = map.z.length <= 16;
  const far = new Set(map.outliers.map(String));
  const written = map.z.map((row, i) => row.map((v, j) => v === null ? "" :
    Number(v.toPrecision(3)) + (far.has(String([i, j])) ? " !" : "")));
  const ranks = map.z.map((_, i) => i);
  const [low, high] = map.limits;
  const marks = [...Array(13).keys()].flatMap(e => [1, 1.5, 2, 3, 5, 7].map(m => m * 10 ** (e - 6)))
    .filter(v => v >= low && v <= high);
  const trace = {type: "heatmap", x: ranks, y: ranks, customdata: map.text, text: written,
    z: map.z.map(row => row.map(v => v === null ? null : Math.log10(v))),
    zmin: Math.log10(low), zmax: Math.log10(high), texttemplate: few ? "%{text}" : "",
    colorscale: "Viridis", reversescale: map.less, xgap: 1, ygap: 1,
    hovertemplate: "%{customdata}<extra></extra>", hoverongaps: false,
    colorbar: {thickness: 10, outlinewidth: 0, tickvals: marks.map(Math.log10),
      ticktext: marks.map(v => String(Number(v.toPrecision(2))))}};
  const place = more => axis({showgrid: false, dtick: few ? 1 : undefined, ...more});
  Plotly.react(chart, [trace], base({plot_bgcolor: css("--raised"),
    xaxis: place({title: {text: "to rank"}}),
    yaxis: place({title: {text: "from rank"}, autorange: "reversed"}),
    annotations: few ? [] : map.outliers.map(([i, j]) => ({x: j, y: i, text: "!", showarrow: false,
      font: {color: "#d00", size: 13}}))}), CONFIG);
}

// -- tables -------------------------------------------------------------------------------

const quoted = value => {
  const text = value === null ? "" : value === true ? "True" : value === false ? "False" : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

function download(name) {
  const {columns, rows} = DATA.tables[name];
  const lines = [columns, ...rows].map(row => row.map(quoted).join(","));
  const url = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], {type: "text/csv"}));
  make("a", {href: url, download: `${name}.csv`}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const MOST_ROWS = 500;  // thousands of rows make a browser stand still
const shortened = value => typeof value === "number" && !Number.isInteger(value)
  ? String(Number(value.toPrecision(4))) : value === null ? "-" : String(value);

function fill(details) {
  const place = details.querySelector(".wide");
  if (place.childElementCount) return;
  const {columns, rows} = DATA.tables[details.dataset.table];
  const body = make("tbody");
  for (const row of rows.slice(0, MOST_ROWS)) body.append(make("tr", {}, ...row.map((value, i) =>
    make("td", typeof value === "number" ? {class: "n"} : {},
      columns[i] === "run" ? String(value).slice(0, 8) : shortened(value)))));
  const head = make("tr", {}, ...columns.map(c => make("th", {scope: "col"}, c)));
  place.append(make("table", {}, make("thead", {}, head), body));
  if (rows.length > MOST_ROWS) place.after(make("p", {class: "quiet"},
    `The first ${MOST_ROWS} of ${rows.length} rows; the CSV has all.`));
}

// -- all together -------------------------------------------------------------------------

function refresh() {
  for (const button of document.querySelectorAll("[data-backend]"))
    button.setAttribute("aria-pressed", state.backends.has(button.dataset.backend));
  for (const button of document.querySelectorAll("[data-algorithm]"))
    button.setAttribute("aria-pressed", pressed(button.dataset.algorithm));
  for (const own of views) {
    own.dirty = true;
    legend(own);
    if (own.seen) draw(own);
  }
}

// Charts are drawn when they come near: a page of all collectives opens at once.
function watch() {
  const watcher = new IntersectionObserver(entries => {
    for (const entry of entries) {
      const own = views.find(v => v.article === entry.target);
      own.seen = entry.isIntersecting;
      if (own.seen && own.dirty) draw(own);
    }
  }, {rootMargin: "600px"});
  for (const own of views) watcher.observe(own.article);
}

for (const article of document.querySelectorAll(".collective")) views.push(view(article));
const bar = document.getElementById("tools");
if (bar) tools(bar);
const place = document.getElementById("pair-maps");
const showPairs = place && DATA.pairs.length ? pairs(place) : () => {};
refresh();
watch();
for (const button of document.querySelectorAll("[data-csv]"))
  button.addEventListener("click", () => download(button.dataset.csv));
for (const details of document.querySelectorAll(".lazy"))
  details.addEventListener("toggle", () => details.open && fill(details));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  refresh();
  showPairs();
});
addEventListener("beforeprint", () => views.filter(v => v.dirty).forEach(draw));
