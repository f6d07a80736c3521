// The toggles and selectors for all collectives together.

function toggle(label, attributes, onClick, mark) {
  const button = make("button", {type: "button", class: "toggle", ...attributes},
    ...(mark ? [mark] : []), label);
  button.addEventListener("click", onClick);
  return button;
}

function chooser(label, values, onChange) {
  const select = make("select", {"aria-label": label}, make("option", {value: ""}, "for all…"));
  values.forEach(([value, text]) => select.append(make("option", {value}, text)));
  select.addEventListener("change", () => {
    onChange(select.value);
    select.value = "";
  });
  return make("label", {}, `${label} `, select);
}

function flip(set, name) {
  set.has(name) ? set.delete(name) : set.add(name);
  refresh();
}

function everywhere(holds) {
  for (const chartView of views) {
    const fitting = chartView.panels.filter(holds);
    if (fitting.length) choose(chartView, most(fitting));
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
