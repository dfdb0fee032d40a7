"use strict";

/* The last hour, as the daemon keeps it (backend_host/web/history.py), and how numbers are written. */
const Data = (() => {
  const state = { times: [], gpus: new Map(), vgpus: new Map(), number: 0, nrLeftOut: 0, nrPoints: 720 };

  /* Little-endian floats in base64; NaN, which is none, becomes null. */
  function unpacked(text, Kind) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const size = Kind.BYTES_PER_ELEMENT;
    return Array.from({ length: bytes.length / size }, (_, at) => {
      const number = size === 8 ? view.getFloat64(at * size, true) : view.getFloat32(at * size, true);
      return Number.isNaN(number) ? null : number;
    });
  }

  function load(history) {
    state.times = unpacked(history.times, Float64Array).map((ms) => ms / 1000);
    state.number = history.number;
    state.nrLeftOut = history.nr_left_out;
    state.nrPoints = 3600 / history.period_s;
    for (const kind of ["gpus", "vgpus"]) {
      state[kind] = new Map(history[kind].map(({ key, facts, seen, values }) => {
        const names = Object.entries(values).map(([name, text]) => [name, unpacked(text, Float32Array)]);
        return [key, { key, facts, isThere: seen === history.number, values: Object.fromEntries(names) }];
      }));
    }
  }

  /* Whether the point is the next one; who missed any loads anew. */
  function append(point) {
    if (point.number <= state.number) return true;
    if (point.number !== state.number + 1) return false;
    state.number = point.number;
    state.times.push(point.at / 1000);
    for (const kind of ["gpus", "vgpus"]) {
      const samples = new Map(point[kind].map((sample) => [sample.key, sample]));
      for (const key of samples.keys()) {
        if (!state[kind].has(key)) state[kind].set(key, { key, values: {} });
      }
      for (const [key, series] of state[kind]) extend(series, samples.get(key));
    }
    if (state.times.length > state.nrPoints) dropFirst();
    return true;
  }

  function extend(series, sample) {
    series.isThere = sample !== undefined;
    if (sample) series.facts = sample.facts;
    const names = new Set([...Object.keys(series.values), ...Object.keys(sample ? sample.values : {})]);
    for (const name of names) {
      const values = (series.values[name] ??= []);
      while (values.length < state.times.length - 1) values.push(null);
      values.push(sample?.values[name] ?? null);
    }
  }

  function dropFirst() {
    state.times.shift();
    for (const kind of ["gpus", "vgpus"]) {
      for (const [key, series] of state[kind]) {
        Object.values(series.values).forEach((values) => values.shift());
        if (!series.isThere && (series.values.memory ?? []).every((value) => value === null)) state[kind].delete(key);
      }
    }
  }

  /* Of the last so many seconds' points; null where there are none. */
  function mean(values, seconds) {
    if (!values) return null;
    const from = state.times.length ? state.times[state.times.length - 1] - seconds : 0;
    const found = values.filter((value, at) => value !== null && state.times[at] > from);
    return found.length ? found.reduce((sum, value) => sum + value, 0) / found.length : null;
  }

  return { state, load, append, mean };
})();

const Say = (() => {
  const NONE = "–";
  const STEPS = ["B", "KiB", "MiB", "GiB", "TiB"];

  function bytes(value) {
    if (value === null || value === undefined) return NONE;
    let step = 0;
    while (value >= 1024 && step < STEPS.length - 1) {
      value /= 1024;
      step += 1;
    }
    return `${value >= 100 || step === 0 ? Math.round(value) : value.toFixed(1)} ${STEPS[step]}`;
  }

  /* On an axis, where steps are powers of two. */
  const wholeBytes = (value) => bytes(value).replace(".0 ", " ");
  const known = (say) => (value) => (value === null || value === undefined ? NONE : say(value));
  const share = known((value) => `${(value * 100).toFixed(1)} %`);
  const ratio = known((value) => value.toFixed(3));
  const wait = known((ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(1)} s` : ms >= 10 ? `${Math.round(ms)} ms` : `${ms.toFixed(1)} ms`));
  const seconds = known((value) => (value >= 1000 ? Math.round(value).toLocaleString("en") : value.toFixed(1)));
  const clock = (second) => new Date(second * 1000).toLocaleTimeString([], { hour12: false });

  return { bytes, wholeBytes, share, ratio, wait, seconds, clock };
})();
