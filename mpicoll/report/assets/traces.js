// Curves with their bands, and the axes that they are drawn on.

const KINDS = {
  time: {title: "Time, us", values: c => c.time.median,
    low: c => c.time.low, high: c => c.time.high},
  bandwidth: {title: "Bandwidth, GB/s", values: c => c[state.bandwidth],
    low: c => scaled(c, "high"), high: c => scaled(c, "low")},
  speedup: {title: "Speed-up over native, times", values: c => c.speedup.ratio,
    low: c => c.speedup.low, high: c => c.speedup.high, line: 1},
  over: {title: "Measured over bound, times", values: c => c.over, line: 1},
};

// A bandwidth's interval is that of its time, reversed.
const scaled = (curve, end) => curve[state.bandwidth].map(
  (value, i) => value === null ? null : value * curve.time.median[i] / curve.time[end][i]);

function traces(panel, kind) {
  const all = [];
  for (const curve of panel.curves) {
    const drawn = trace(panel, curve, KINDS[kind], kind);
    if (!drawn.keep.length) continue;
    if (KINDS[kind].low && !isDots(panel)) all.push(band(panel, curve, KINDS[kind], drawn));
    all.push(drawn.trace);
  }
  return all;
}

const isDots = panel => !panel.sizes.length;
const visibility = (panel, curve) => isVisible(panel, curve) ? true : "legendonly";

function trace(panel, curve, kind, name) {
  const values = kind.values(curve), dots = isDots(panel);
  const keep = [...values.keys()].filter(i => values[i] !== null && (dots || curve.x[i] > 0));
  const at = list => keep.map(i => list[i]);
  const label = `${curve.backend} ${curve.name}`;
  const symbols = keep.map(i => curve.wrong[i] ? "x-thin" : curve.symbols[i] +
    (name === "speedup" && ["tie", "undecided", "disturbed"].includes(curve.speedup.decision[i]) ? "-open" : ""));
  const drawn = {
    type: "scatter", mode: dots ? "markers" : "lines+markers", name: label,
    meta: {backend: curve.backend, algorithm: curve.algorithm},
    x: dots ? at(values) : at(curve.x), y: dots ? keep.map(() => label) : at(values),
    text: at(curve.text), hovertemplate: "%{text}<extra></extra>",
    visible: visibility(panel, curve), showlegend: false,
    opacity: curve.few.every(Boolean) ? 0.45 : 1,
    line: {color: colourOf(curve.algorithm), dash: dashOf(curve.backend), width: 1.8},
    marker: {size: dots ? 9 : 7, symbol: symbols, opacity: keep.map(i => curve.few[i] ? 0.3 : 1), color: colourOf(curve.algorithm),
      line: {width: 1.2, color: colourOf(curve.algorithm)}},
  };
  if (dots && kind.low) drawn.error_x = errors(at(values), at(kind.low(curve)), at(kind.high(curve)));
  return {trace: drawn, keep};
}

const errors = (values, low, high) => ({
  type: "data", symmetric: false, thickness: 1.2, width: 3,
  array: values.map((v, i) => high[i] - v), arrayminus: values.map((v, i) => v - low[i]),
});

function band(panel, curve, kind, drawn) {
  const [low, high] = [kind.low(curve), kind.high(curve)];
  // Few samples have no interval: a band of no width would look like certainty.
  const keep = drawn.keep.filter(i => !curve.few[i]);
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

const font = () => ({family: "system-ui, 'DejaVu Sans', sans-serif", size: 11, color: css("--ink")});
const BUTTONS = 30;  // the height of plotly's buttons, which lie above the plot area
const axis = more => ({gridcolor: css("--line"), linecolor: css("--line"), zeroline: false,
  automargin: true, ...more});
const base = more => ({
  paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: font(), showlegend: false,
  margin: {l: 48, r: 10, t: BUTTONS, b: 38}, hovermode: "closest",
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

// A list of its own: plotly's has a button that sends the chart to a server.
const CONFIG = {responsive: true, displaylogo: false,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
  toImageButtonOptions: {format: "svg"}};
