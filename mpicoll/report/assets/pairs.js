// Heat maps of pairs of ranks.

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
  const figure = make("figure", {}, make("figcaption", {}, map.title), chart);
  chart.setAttribute("aria-label", `Heat map: ${map.title}`);
  grid.append(figure);
  const few = map.z.length <= 16;
  const outliers = new Set(map.outliers.map(String));
  const written = map.z.map((row, i) => row.map((v, j) => v === null ? "" :
    Number(v.toPrecision(3)) + (outliers.has(String([i, j])) ? " !" : "")));
  const ranks = map.z.map((_, i) => i);
  const [low, high] = map.limits;
  const marks = [...Array(13).keys()].flatMap(e => [1, 1.5, 2, 3, 5, 7].map(m => m * 10 ** (e - 6)))
    .filter(v => v >= low && v <= high);
  const trace = {type: "heatmap", x: ranks, y: ranks, customdata: map.text, text: written,
    z: map.z.map(row => row.map(v => v === null ? null : Math.log10(v))),
    zmin: Math.log10(low), zmax: Math.log10(high), texttemplate: few ? "%{text}" : "",
    colorscale: "Viridis", reversescale: map.lessIsBetter, xgap: 1, ygap: 1,
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
