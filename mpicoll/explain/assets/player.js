"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const SVG = "http://www.w3.org/2000/svg";

  const make = (kind, parent, words = "", from = {}) => {
    const node = document.createElement(kind);
    if (words) node.className = words;
    Object.assign(node, from);
    parent.append(node);
    return node;
  };
  const draw = (kind, parent, from = {}) => {
    const node = document.createElementNS(SVG, kind);
    for (const [name, value] of Object.entries(from)) node.setAttribute(name, value);
    parent.append(node);
    return node;
  };

  // -- numbers in words ------------------------------------------------------------------

  const bits = (mask) => {
    let count = 0;
    for (let left = mask; left; left &= left - 1) count += 1;
    return count;
  };
  const named = (mask) => {
    const parts = [];
    for (let rank = 0; mask >> rank; rank += 1) {
      if (!(mask >> rank & 1)) continue;
      let last = rank;
      while (mask >> (last + 1) & 1) last += 1;
      parts.push(last > rank ? `${rank}-${last}` : `${rank}`);
      rank = last;
    }
    return parts.join(",");
  };
  const short = (value, units) => {
    let power = 0;
    while (value >= units.base && power < units.names.length - 1) {
      value /= units.base;
      power += 1;
    }
    return `${Number(value.toPrecision(3))} ${units.names[power]}`;
  };
  const inBytes = (n) => short(n, { base: 1024, names: ["B", "KiB", "MiB", "GiB"] });
  const inTime = (s) => short(s * 1e6, { base: 1000, names: ["us", "ms", "s"] });
  const inVectors = (m) => `${Number(m.toFixed(2))} m`;

  // -- one schedule ----------------------------------------------------------------------

  /** All states of a trace: ``states[round][rank][column]`` is ``{mask, mark}``. */
  const unroll = (trace, size) => {
    const states = [];
    let state = Array.from({ length: size }, () => trace.columns.map(() => ({ mask: 0, mark: "" })));
    for (const round of trace.rounds) {
      state = state.map((row) => row.map((cell) => ({ mask: cell.mask, mark: "" })));
      for (const [rank, column, mask, mark] of round.cells) state[rank][column] = { mask, mark };
      states.push(state);
    }
    return states;
  };

  class Player {
    constructor(parent, algorithm) {
      this.algorithm = algorithm;
      this.root = make("article", parent);
      this.root.dataset.algorithm = algorithm.name;
      // A phone shows the pictures of all schedules first, and then what is said about each.
      const watch = make("div", this.root, "watch");
      make("h2", watch, "", { textContent: algorithm.name });
      this.picture = make("div", watch);
      const more = make("div", this.root, "more");
      make("h2", more, "again", { textContent: algorithm.name });
      make("p", more, "summary soft", { textContent: algorithm.summary });
      this.body = make("div", more);
      this.chosen = null;
    }

    load(size) {
      this.size = size;
      this.trace = this.algorithm.sizes[size];
      this.picture.replaceChildren();
      this.body.replaceChildren();
      this.chosen = null;
      if (this.trace.refused) {
        this.rounds = 0;
        make("p", this.picture, "refused", { textContent: `Not for ${size} ranks: ${this.trace.refused}` });
        return;
      }
      this.rounds = this.trace.rounds.length - 1;
      this.states = unroll(this.trace, size);
      this.stage();
      this.says = make("p", this.picture, "says");
      this.matrix();
      this.meters();
      make("p", this.body, "verdict", { textContent: this.trace.verdict });
      const more = make("details", this.body, "", { open: true });
      make("summary", more, "", { textContent: "Why?" });
      for (const reason of this.trace.reasons) make("p", more, "", { textContent: reason });
    }

    /** Ranks on a circle, rank 0 on top. */
    stage() {
      const svg = draw("svg", this.picture, {
        viewBox: "0 0 360 330", class: "stage", role: "img", "aria-label": `${this.size} ranks`,
      });
      this.radius = this.size > 10 ? 15 : this.size > 6 ? 19 : 24;
      this.hops = draw("g", svg);
      this.ranks = Array.from({ length: this.size }, (_, rank) => {
        const turn = (2 * Math.PI * rank) / this.size - Math.PI / 2;
        const x = 180 + 132 * Math.cos(turn), y = 165 + 132 * Math.sin(turn);
        const group = draw("g", svg, {
          class: `rank${this.trace.node[rank] % 2 ? " odd" : ""}`, "data-rank": rank,
        });
        draw("circle", group, { class: "disc", cx: x, cy: y, r: this.radius });
        const ring = draw("circle", group, {
          class: "part", cx: x, cy: y, r: this.radius - 3, pathLength: 1,
          transform: `rotate(-90 ${x} ${y})`,
        });
        draw("text", group, { x, y, "font-size": this.radius * 0.8 }).textContent = rank;
        group.addEventListener("click", () => this.choose(rank));
        return { x, y, group, ring };
      });
    }

    choose(rank) {
      this.chosen = this.chosen === rank ? null : rank;
      this.show(this.now);
    }

    matrix() {
      const grid = make("div", this.body, "matrix");
      grid.setAttribute("role", "table");
      grid.setAttribute("aria-label", "Whose data each rank has of each block");
      this.wordy = this.trace.columns.length <= 8 && this.size <= 8;
      grid.style.gridTemplateColumns = `2.6rem repeat(${this.trace.columns.length}, minmax(0, 1fr))`;
      make("span", grid, "row", { textContent: "rank" });
      this.trace.columns.forEach((name, column) => make(
        "span", grid, this.trace.scratch[column] ? "scratch" : "", { textContent: name, title: name },
      ));
      this.cells = Array.from({ length: this.size }, (_, rank) => {
        make("span", grid, "row", { textContent: rank });
        return this.trace.columns.map(() => {
          const cell = make("div", grid, "cell");
          cell.setAttribute("role", "cell");
          return { cell, fill: make("i", cell), text: make("b", cell) };
        });
      });
      make("p", this.body, "soft", {
        textContent: "Rows are ranks, columns blocks. A cell says whose data of a block the rank " +
          "has: filled as far as is needed, green when complete, framed when new. Tap a rank to " +
          "follow it.",
      });
    }

    meters() {
      const [rounds, volume] = this.trace.least;
      const most = (value, bound) => Math.max(value, bound, 1e-9);
      const meter = (name, kind, value, bound) => {
        const row = make("div", this.body, "meter");
        make("span", row, "", { textContent: name });
        const track = make("div", row, `track ${kind}`);
        const fill = make("i", track);
        make("s", track, "", { title: "the least possible" }).style.left =
          `calc(${(100 * bound) / most(value, bound)}% - 1px)`;
        return { fill, most: most(value, bound), text: make("span", row), bound };
      };
      this.meter = {
        rounds: meter("rounds", "rounds", this.rounds, rounds),
        bytes: meter("bytes", "bytes", this.trace.rounds[this.rounds].moved, volume),
      };
    }

    /** Show the state after a round, and the messages that led to it. */
    show(now, progress = 1) {
      if (this.trace.refused) return;
      this.now = Math.min(now, this.rounds);
      const landed = now > this.rounds || progress >= 1 ? this.now : this.now - 1;
      const travelling = now <= this.rounds ? progress : 1;
      const round = this.trace.rounds[this.now];
      this.root.dataset.round = landed;
      this.says.textContent = now > this.rounds ? `Done after ${this.rounds} rounds.` : round.says;
      this.paint(this.states[landed], now > this.rounds ? 0 : landed);
      this.carry(now > this.rounds ? [] : round.hops, travelling);
      const so = this.trace.rounds[landed];
      this.fill(this.meter.rounds, landed, `${landed} (least ${this.meter.rounds.bound})`);
      this.fill(this.meter.bytes, so.moved,
        `${inVectors(so.moved)} (least ${inVectors(this.meter.bytes.bound)})`);
    }

    fill(meter, value, words) {
      meter.fill.style.width = `${(100 * value) / meter.most}%`;
      meter.text.textContent = words;
    }

    paint(state, now) {
      state.forEach((row, rank) => {
        let wanted = 0, there = 0;
        row.forEach(({ mask, mark }, column) => {
          const goal = this.trace.goals[rank][column];
          const { cell, fill, text } = this.cells[rank][column];
          const whole = bits(goal) || this.size;
          wanted += bits(goal);
          there += bits(mask & goal);
          fill.style.height = `${Math.min(100, (100 * bits(mask)) / whole)}%`;
          text.textContent = this.wordy ? named(mask) : "";
          cell.classList.toggle("done", goal !== 0 && mask === goal);
          cell.classList.toggle("new", now > 0 && mark !== "");
          cell.classList.toggle("faded", this.chosen !== null && this.chosen !== rank);
          cell.title = mask ? `rank ${rank} has data of ${named(mask)}` : "";
          cell.dataset.mask = mask;
        });
        const part = wanted ? there / wanted : 1;
        const { group, ring } = this.ranks[rank];
        ring.setAttribute("stroke-dasharray", `${part} 2`);
        group.classList.toggle("full", part === 1);
        group.classList.toggle("chosen", this.chosen === rank);
      });
    }

    /** Draw messages as arcs that bend towards the middle, with what they carry on the way. */
    carry(hops, progress) {
      this.hops.replaceChildren();
      hops.forEach(([from, to, , part, label]) => {
        const a = this.ranks[from], b = this.ranks[to];
        const apart = Math.hypot(b.x - a.x, b.y - a.y) || 1;
        // Each way bends to its own side, so that two that swap do not hide each other.
        const aside = 16 * Math.min(1, apart / 90);
        const bend = {
          x: (a.x + b.x) / 2 - (aside * (b.y - a.y)) / apart + (180 - (a.x + b.x) / 2) * 0.15,
          y: (a.y + b.y) / 2 + (aside * (b.x - a.x)) / apart + (165 - (a.y + b.y) / 2) * 0.15,
        };
        const at = (t) => ({
          x: (1 - t) ** 2 * a.x + 2 * t * (1 - t) * bend.x + t ** 2 * b.x,
          y: (1 - t) ** 2 * a.y + 2 * t * (1 - t) * bend.y + t ** 2 * b.y,
        });
        const quiet = this.chosen !== null && ![from, to].includes(this.chosen);
        const group = draw("g", this.hops, { class: `hop${quiet ? " faded" : ""}` });
        const thick = 1.2 + 3.3 * Math.min(1, part);
        draw("path", group, {
          d: `M${a.x} ${a.y}Q${bend.x} ${bend.y} ${b.x} ${b.y}`, "stroke-width": thick,
        });
        const margin = this.radius / apart;
        const { x, y } = at(margin + (1 - 2 * margin) * Math.min(1, progress) * 0.97);
        draw("circle", group, { cx: x, cy: y, r: 3 + 4 * Math.sqrt(Math.min(1, part)) });
        if (hops.length <= 16 && label.length <= 5 && this.trace.columns.length > 1) {
          const inward = 1 - 15 / (Math.hypot(x - 180, y - 165) || 1);
          draw("text", group, {
            x: 180 + (x - 180) * inward, y: 169 + (y - 165) * inward,
          }).textContent = label;
        }
      });
    }
  }

  // -- all schedules, in step ------------------------------------------------------------

  const players = data.algorithms.map((each) => new Player(byId("players"), each));
  const position = { now: 0, rounds: 0, playing: false, began: 0 };

  const show = (progress = 1) => {
    for (const player of players) player.show(position.now, progress);
    byId("round").value = position.now;
    byId("now").textContent = `round ${position.now} of ${position.rounds}`;
  };
  const pause = () => {
    position.playing = false;
    byId("play").textContent = "Play";
  };
  const go = (now) => {
    pause();
    position.now = Math.max(0, Math.min(position.rounds, now));
    show();
  };
  const advance = (time) => {
    if (!position.playing) return;
    position.began ||= time;
    const pace = Number(byId("speed").value);
    const part = (time - position.began) / pace;
    if (part < 1) {
      show(still.matches ? 1 : Math.min(1, part * 1.6));
    } else if (position.now < position.rounds) {
      position.now += 1;
      position.began = time;
      show(still.matches ? 1 : 0);
    } else {
      pause();
      show();
      return;
    }
    requestAnimationFrame(advance);
  };
  const play = () => {
    if (position.playing) {
      pause();
      show();
      return;
    }
    position.now = position.now >= position.rounds ? 0 : position.now;
    position.now += position.rounds ? 1 : 0;
    position.began = 0;
    position.playing = true;
    byId("play").textContent = "Pause";
    requestAnimationFrame(advance);
  };

  const load = (size) => {
    byId("ranks").value = size;
    for (const player of players) player.load(size);
    position.rounds = Math.max(...players.map((player) => player.rounds));
    byId("round").max = position.rounds;
    go(0);
    times();
  };
  const another = (step) => {
    const options = [...byId("ranks").options].filter((each) => !each.disabled);
    const at = options.findIndex((each) => each.value === byId("ranks").value);
    const next = options[at + step];
    if (next) load(Number(next.value));
  };

  /** Hockney's time of each schedule, start-ups and bytes apart. */
  const times = () => {
    const nbytes = 2 ** Number(byId("bytes").value);
    byId("size").textContent = inBytes(nbytes);
    byId("model").textContent =
      `Modelled: ${inTime(data.alpha)} for each round, ${Number((data.beta * 1e9).toPrecision(3))} ns ` +
      "for each byte of the busiest rank in it (Hockney 1994); purple start-ups, yellow bytes. " +
      "Move the slider: few rounds win while vectors are small, few bytes when they are large.";
    const shown = players.filter((player) => !player.trace.refused);
    const found = shown.map((player) => {
      const a = player.rounds * data.alpha, b = player.trace.volume * nbytes * data.beta;
      return { name: player.algorithm.name, a, b };
    });
    const most = Math.max(...found.map(({ a, b }) => a + b), 1e-12);
    const best = Math.min(...found.map(({ a, b }) => a + b));
    byId("times").replaceChildren();
    for (const { name, a, b } of found) {
      const fastest = found.length > 1 && a + b <= best * 1.0000001;
      const row = make("div", byId("times"), `time${fastest ? " fastest" : ""}`);
      make("span", row, "name", { textContent: name });
      const bar = make("div", row, "bar");
      make("span", bar, "a").style.width = `${(100 * a) / most}%`;
      make("span", bar, "b").style.width = `${(100 * b) / most}%`;
      make("span", row, "us", { textContent: inTime(a + b) });
    }
    byId("cost").hidden = data.collective === "barrier";
  };

  // -- controls --------------------------------------------------------------------------

  for (const size of Object.keys(data.algorithms[0].sizes)) {
    const reasons = data.algorithms.map((each) => each.sizes[size].refused).filter(Boolean);
    const option = make("option", byId("ranks"), "", { value: size, textContent: size });
    option.disabled = reasons.length === data.algorithms.length;
    if (reasons.length) option.title = reasons.join("; ");
    if (option.disabled) option.textContent = `${size} (not served)`;
  }
  const actions = {
    first: () => go(0), back: () => go(position.now - 1), play,
    on: () => go(position.now + 1), last: () => go(position.rounds),
  };
  for (const [id, act] of Object.entries(actions)) byId(id).addEventListener("click", act);
  byId("round").addEventListener("input", (event) => go(Number(event.target.value)));
  byId("ranks").addEventListener("change", (event) => load(Number(event.target.value)));
  byId("bytes").addEventListener("input", times);
  const keys = {
    " ": play, ArrowLeft: actions.back, ArrowRight: actions.on, Home: actions.first,
    End: actions.last, "+": () => another(1), "-": () => another(-1),
  };
  addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, summary");
    const act = keys[event.key];
    if (!act || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });

  load(data.ranks);
})();
