// Downloads, and long tables that are filled when they are opened.

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

const MOST_ROWS = 500;  // thousands of rows make a browser freeze
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
