// A collective: its selector, its legend, its charts.

function view(article) {
  const name = article.dataset.collective;
  const panels = DATA.panels.filter(p => p.collective === name);
  const own = {article, panels, panel: most(panels), dirty: true, seen: false, charts: {}};
  const select = make("select", {"aria-label": `Ranks and variant of ${name}`});
  panels.forEach((p, i) => select.append(make("option", {value: i},
    (SETUPS.length > 1 ? `${p.setup}: ` : "") + p.label +
      (p.oversubscribed ? " · oversubscribed" : ""))));
  select.value = panels.indexOf(own.panel);
  select.addEventListener("change", () => choose(own, panels[select.value]));
  own.select = select;
  own.legend = make("ul", {class: "legend", "aria-label": `Curves of ${name}`});
  article.prepend(make("header", {}, article.querySelector("h3"), select));
  article.append(own.legend, charts(own, name));
  return own;
}

// The panel with the most points is shown first, unless its ranks waited for cores.
const points = panel => panel.curves.reduce((sum, c) => sum + c.x.length, 0);
const weight = panel => [panel.oversubscribed ? 0 : 1, points(panel), panel.ranks];
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
    chart.style.height = isDots(own.panel) ? `${142 + 22 * found.length}px` : "";
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
