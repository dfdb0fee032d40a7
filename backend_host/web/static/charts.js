"use strict";

/* Shares and memory, stacked by vGPU, and waits, with uPlot. A Gpu's ten busiest vGPUs have colours, the others are one. */
const Charts = (() => {
  const NR_COLOURS = 10;
  const OTHERS = "others";
  const GAP = { left: 52, right: 28 };  // half of the last time below it, as 17:49:00
  const plots = [];
  const slots = new Map();  // a vGPU's colour: it keeps it while it is shown
  let shown = { series: [], times: [], from: 0 };
  let at = null;  // where the cursor is; null: the last point

  /* Who is drawn, in the order of coming; `used` of the others is what the Gpu was used beside. */
  function pick(gpu, minutes) {
    const { times, gpus, vgpus } = Data.state;
    const last = times.length ? times[times.length - 1] : 0;
    let from = times.findIndex((time) => time > last - minutes * 60);
    from = Math.max(0, from);
    const cut = (values) => (values ?? []).slice(from);
    const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);
    const on = [...vgpus.values()].filter((each) => each.facts.gpu === gpu).map((each) => ({
      key: each.key, name: each.facts.name, isThere: each.isThere, share: cut(each.values.share),
      entitled: cut(each.values.entitled), wait: cut(each.values.wait), memory: cut(each.values.memory),
    })).filter((each) => each.isThere || sum(each.memory) + sum(each.share) > 0);
    const busiest = new Set([...on].sort((one, other) => sum(other.share) - sum(one.share)).slice(0, NR_COLOURS));
    const series = on.filter((each) => busiest.has(each));
    give(series);
    const whole = gpus.get(String(gpu));
    if (on.length > series.length && whole) series.push(rest(series, cut(whole.values.share), cut(whole.values.memory)));
    return { series, times: times.slice(from) };
  }

  function rest(series, share, memory) {
    const less = (values, name) => values.map((value, place) => (
      value === null ? null : Math.max(0, value - series.reduce((sum, each) => sum + (each[name][place] ?? 0), 0))));
    const none = share.map(() => null);
    return { key: OTHERS, name: OTHERS, isThere: true, share: less(share, "share"), entitled: none, wait: none, memory: less(memory, "memory") };
  }

  /* Colours for those without one; of those that are not shown any more they are taken back. */
  function give(series) {
    const keys = new Set(series.map((each) => each.key));
    for (const key of slots.keys()) if (!keys.has(key)) slots.delete(key);
    const taken = new Set(slots.values());
    for (const key of keys) {
      if (slots.has(key)) continue;
      const free = Array.from({ length: NR_COLOURS }, (_, slot) => slot).find((slot) => !taken.has(slot));
      slots.set(key, free);
      taken.add(free);
    }
  }

  const colourName = (key) => (slots.has(key) ? `c${slots.get(key)}` : "others");

  const faded = (colour, alpha) => colour.replace("rgb(", "rgba(").replace(")", `, ${alpha})`);

  /* Each on those before it; what is none adds nothing. */
  function stacked(series, name) {
    const sums = series.length ? series[0][name].map(() => 0) : [];
    return series.map((each) => each[name].map((value, place) => (sums[place] += value ?? 0)));
  }

  function entitledLines(series) {
    const tops = stacked(series, "entitled");
    return series.map((each, nr) => tops[nr].map((top, place) => (each.entitled[place] === null ? null : top)));
  }

  const KINDS = {
    shares: {
      say: (value) => `${Math.round(value * 100)} %`,
      range: (_, __, most) => [0, Math.max(1, most)],
      lines: (series) => [...stacked(series, "share"), ...entitledLines(series)],
      isStacked: true,
      isDashed: true,
    },
    waits: {
      say: (value) => (value >= 1000 ? `${value / 1000} s` : `${value} ms`),
      range: (_, __, most) => [0, Math.max(1, most * 1.1)],
      lines: (series) => series.map((each) => each.wait),
    },
    memory: {
      say: Say.wholeBytes,
      range: (_, __, most) => [0, Math.max(1 << 20, most * 1.1)],
      splits: (most) => {
        const step = 2 ** Math.ceil(Math.log2(most / 4));
        return Array.from({ length: Math.floor(most / step) + 1 }, (_, nr) => nr * step);
      },
      lines: (series) => stacked(series, "memory"),
      isStacked: true,
    },
  };

  function options(chart, kind, series) {
    const axis = { stroke: Theme.colour("soft"), grid: { stroke: Theme.colour("grid"), width: 1 }, ticks: { show: false },
                   font: "12px system-ui, sans-serif" };
    const lines = series.map((each) => {
      const colour = Theme.colour(colourName(each.key));
      return { stroke: colour, width: 1.25, points: { show: false }, fill: kind.isStacked ? faded(colour, 0.5) : undefined };
    });
    const ink = Theme.colour("ink");
    const dashed = kind.isDashed ? series.map(() => ({ stroke: ink, width: 1.25, dash: [5, 4], points: { show: false } })) : [];
    const bands = kind.isStacked ? series.slice(1).map((_, nr) => ({ series: [nr + 2, nr + 1] })) : [];
    const values = { ...axis, size: GAP.left, gap: 4, values: (_, found) => found.map(kind.say) };
    if (kind.splits) values.splits = (_, __, ___, most) => kind.splits(most);
    return {
      width: Math.max(120, chart.clientWidth), height: Math.max(80, chart.clientHeight),
      legend: { show: false }, padding: [8, GAP.right, 0, 0],
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false }, sync: { key: "fairgv" } },
      scales: { y: { range: kind.range } },
      series: [{}, ...lines, ...dashed], bands,
      axes: [{ ...axis, size: 26, gap: 4, space: 64,
               incrs: [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800],
               values: (_, found, __, ___, step) => found.map((second) => Say.clock(second).slice(0, step < 60 ? 8 : 5)) }, values],
      hooks: { setCursor: [(plot) => moved(plot.cursor.idx)] },
    };
  }

  function moved(place) {
    const next = place === undefined ? null : place;
    if (next === at) return;
    at = next;
    tell();
  }

  /* The legend, with the values where the cursor is. */
  function tell() {
    const { series, times } = shown;
    const place = at === null || at >= times.length ? times.length - 1 : at;
    const moment = document.getElementById("moment");
    const legend = document.getElementById("legend");
    if (place < 0) {
      moment.textContent = "The first point comes within 5 seconds.";
      legend.replaceChildren();
      return;
    }
    moment.textContent = at === null ? `The last 5 s, until ${Say.clock(times[place])}` : `At ${Say.clock(times[place])}`;
    legend.replaceChildren(...series.map((each) => {
      const item = document.createElement("li");
      const swatch = item.appendChild(document.createElement("span"));
      swatch.className = "swatch";
      swatch.style.background = `var(--${colourName(each.key)})`;
      const name = item.appendChild(document.createElement("span"));
      name.className = "name";
      name.textContent = each.isThere ? each.name : `${each.name} (gone)`;
      name.title = each.name;
      const value = item.appendChild(document.createElement("span"));
      value.className = "number";
      value.textContent = Say.share(each.share[place]);
      return item;
    }));
    if (!series.length) moment.textContent = "No vGPU was on this Gpu in this time.";
  }

  function describe(chart, what) {
    const { series, times } = shown;
    const last = times.length - 1;
    const say = { shares: (each) => `${Say.share(each.share[last])}, entitled to ${Say.share(each.entitled[last])}`,
                  waits: (each) => Say.wait(each.wait[last]), memory: (each) => Say.bytes(each.memory[last]) }[chart.id];
    const parts = last < 0 ? [] : series.map((each) => `${each.name} ${say(each)}`);
    chart.setAttribute("aria-label", `${what} over time. Now: ${parts.join("; ") || "nothing"}. Arrow keys move through time.`);
  }

  const TITLES = { shares: "Share of the Gpu", waits: "Wait for a turn", memory: "Device memory" };

  /* All charts anew: of this Gpu, of so many minutes. */
  function draw(gpu, minutes) {
    shown = pick(gpu, minutes);
    for (const [id, kind] of Object.entries(KINDS)) {
      const chart = document.getElementById(id);
      const data = [shown.times, ...kind.lines(shown.series)];
      const key = JSON.stringify([gpu, shown.series.map((each) => [each.key, colourName(each.key)])]);
      const before = plots.find((each) => each.chart === chart);
      if (before && before.key === key) {
        before.plot.setData(data);
      } else {
        if (before) {
          before.plot.destroy();
          plots.splice(plots.indexOf(before), 1);
        }
        plots.push({ chart, key, plot: new uPlot(options(chart, kind, shown.series), data, chart) });
      }
      describe(chart, TITLES[id]);
    }
    tell();
  }

  /* For other colours. */
  function forget() {
    plots.splice(0).forEach(({ plot }) => plot.destroy());
  }

  function step(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12, Home: -Infinity, End: Infinity };
    const found = plots.find((each) => each.chart === event.currentTarget);
    const last = shown.times.length - 1;
    if (!found || last < 0 || !(event.key in steps || event.key === "Escape")) return;
    event.preventDefault();
    const { plot } = found;
    if (event.key === "Escape") {
      plot.setCursor({ left: -10, top: -10 });
      return;
    }
    const place = Math.min(last, Math.max(0, (at ?? last) + steps[event.key]));
    plot.setCursor({ left: plot.valToPos(shown.times[place], "x"), top: 10 });
  }

  const watch = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const found = plots.find((each) => each.chart === target);
      if (found) found.plot.setSize({ width: Math.max(120, target.clientWidth), height: Math.max(80, target.clientHeight) });
    }
  });
  for (const id of Object.keys(KINDS)) {
    const chart = document.getElementById(id);
    watch.observe(chart);
    chart.addEventListener("keydown", step);
  }

  return { draw, forget, colourName };
})();
