// The start of the page.

function refresh() {
  for (const button of document.querySelectorAll("[data-backend]"))
    button.setAttribute("aria-pressed", state.backends.has(button.dataset.backend));
  for (const button of document.querySelectorAll("[data-algorithm]"))
    button.setAttribute("aria-pressed", pressed(button.dataset.algorithm));
  for (const chartView of views) {
    chartView.dirty = true;
    legend(chartView);
    if (chartView.seen) draw(chartView);
  }
}

// A chart is drawn when it is about to be seen: a page of all collectives opens at once.
function watch() {
  const watcher = new IntersectionObserver(entries => {
    for (const entry of entries) {
      const chartView = views.find(v => v.article === entry.target);
      chartView.seen = entry.isIntersecting;
      if (chartView.seen && chartView.dirty) draw(chartView);
    }
  }, {rootMargin: "600px"});
  for (const chartView of views) watcher.observe(chartView.article);
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
// Figures for paper have dark ink and the width of a page, whatever the screen has. A chart keeps the
// width with which it was made, so each is made again.
const paper = isOnPaper => {
  document.documentElement.classList.toggle("on-paper", isOnPaper);
  document.querySelectorAll(".js-plotly-plot").forEach(chart => Plotly.purge(chart));
};
addEventListener("beforeprint", () => {
  paper(true);
  views.forEach(draw);
  showPairs();
});
addEventListener("afterprint", () => {
  paper(false);
  refresh();
  showPairs();
});
