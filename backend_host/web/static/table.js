"use strict";

/* The vGPUs there are. Rows keep their elements, so that whoever reads or selects is not disturbed each second. */
const Table = (() => {
  const MINUTE_S = 60;
  const rows = new Map();
  const body = document.getElementById("rows");
  let order = { column: null, isDown: true };
  let last = [];
  let hasSeveral = false;
  let isWaiting = false;

  const minute = (vgpu) => Data.mean(Data.state.vgpus.get(vgpu.key)?.values.share, MINUTE_S);
  const wait = (vgpu) => Data.mean(Data.state.vgpus.get(vgpu.key)?.values.wait, MINUTE_S);
  const classOf = (facts) => facts?.class ? facts.class + (facts.space ? ` in ${facts.space}` : "") : null;
  const COLUMNS = [
    { title: "vGPU", of: (vgpu) => vgpu.name },
    { title: "Gpu", of: (vgpu) => vgpu.gpu, isOfSeveral: true },
    { title: "Share", of: (vgpu) => vgpu.share, say: Say.share, hasBar: true, more: "in the last second" },
    { title: "Entitled", of: (vgpu) => vgpu.entitled, say: Say.share, more: "among those that are active" },
    { title: "Minute", of: minute, say: Say.share, more: "share in the last minute" },
    { title: "Demand", of: (vgpu) => Data.state.vgpus.get(vgpu.key)?.facts.demand ?? null, say: Say.share, more: "what its programs would use, each alone" },
    { title: "Weight", of: (vgpu) => vgpu.weight },
    { title: "Class", of: (vgpu) => classOf(Data.state.vgpus.get(vgpu.key)?.facts), more: "and the space that it is in" },
    { title: "GPU seconds", of: (vgpu) => vgpu.used_s, say: Say.seconds, more: "since it came" },
    { title: "Wait", of: wait, say: Say.wait, more: "for a turn, mean of the last minute" },
    { title: "Memory", of: (vgpu) => vgpu.memory_bytes, say: Say.bytes },
    { title: "Quota", of: (vgpu) => vgpu.quota_bytes || null, say: Say.bytes, more: "of memory" },
    { title: "Programs", of: (vgpu) => Data.state.vgpus.get(vgpu.key)?.facts.nr_programs ?? null },
  ];
  const columns = () => COLUMNS.filter((column) => hasSeveral || !column.isOfSeveral);

  function drawHead() {
    document.getElementById("columns").replaceChildren(...columns().map((column) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      const button = cell.appendChild(document.createElement("button"));
      button.type = "button";
      button.textContent = column.title;
      if (column.more) button.title = column.more;
      if (order.column === column) cell.setAttribute("aria-sort", order.isDown ? "descending" : "ascending");
      button.addEventListener("click", () => {
        order = { column, isDown: order.column === column ? !order.isDown : column.title !== "vGPU" };
        drawHead();
        draw(last, hasSeveral, isWaiting);
        [...document.querySelectorAll("#columns button")][columns().indexOf(column)].focus();
      });
      return cell;
    }));
  }

  function made() {
    const row = document.createElement("tr");
    const cells = columns().map((column, nr) => {
      const cell = row.appendChild(document.createElement(nr ? "td" : "th"));
      if (nr === 0) {
        cell.scope = "row";
        cell.appendChild(document.createElement("span")).className = "swatch";
        cell.appendChild(document.createElement("span")).className = "name";
        return { swatch: cell.firstChild, text: cell.lastChild };
      }
      const text = cell.appendChild(document.createElement("span"));
      if (!column.hasBar) return { text };
      const bar = cell.appendChild(document.createElement("span"));
      bar.className = "bar";
      bar.setAttribute("aria-hidden", "true");
      return { text, fill: bar.appendChild(document.createElement("i")), mark: bar.appendChild(document.createElement("u")) };
    });
    return { row, cells };
  }

  function fill({ cells }, vgpu) {
    columns().forEach((column, nr) => {
      const value = column.of(vgpu);
      const text = column.say ? column.say(value) : String(value ?? "–");
      const cell = cells[nr];
      if (cell.text.textContent !== text) cell.text.textContent = text;
      if (cell.swatch) {
        const colour = Charts.colourName(vgpu.key);
        cell.swatch.style.background = `var(--${colour})`;
        cell.text.title = `${vgpu.name} (${vgpu.kind})`;
      }
      if (cell.fill) {
        cell.fill.style.width = `${Math.min(100, (value ?? 0) * 100)}%`;
        cell.fill.style.background = `var(--${Charts.colourName(vgpu.key)})`;
        cell.mark.hidden = vgpu.entitled === null;
        cell.mark.style.left = `calc(${Math.min(100, (vgpu.entitled ?? 0) * 100)}% - 1px)`;
      }
    });
  }

  function sorted(vgpus) {
    if (!order.column) return vgpus;
    const sign = order.isDown ? -1 : 1;
    const { of } = order.column;
    return [...vgpus].sort((one, other) => {
      const [a, b] = [of(one), of(other)];
      if (a === null || b === null) return (a === null) - (b === null);  // none comes last
      return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
    });
  }

  /* `waits`: the daemon refuses programs until those of an earlier release have ended. */
  function draw(vgpus, areSeveralGpus, waits) {
    last = vgpus;
    isWaiting = waits;
    if (areSeveralGpus !== hasSeveral || !document.getElementById("columns").children.length) {
      hasSeveral = areSeveralGpus;
      rows.clear();
      drawHead();
    }
    const keys = new Set(vgpus.map((vgpu) => vgpu.key));
    for (const key of rows.keys()) if (!keys.has(key)) rows.delete(key);
    const wanted = sorted(vgpus).map((vgpu) => {
      if (!rows.has(vgpu.key)) rows.set(vgpu.key, made());
      fill(rows.get(vgpu.key), vgpu);
      return rows.get(vgpu.key).row;
    });
    if (wanted.length !== body.children.length || wanted.some((row, nr) => row !== body.children[nr])) body.replaceChildren(...wanted);
    const { nrLeftOut } = Data.state;
    const none = waits ? "There is no vGPU now." : "There is no vGPU now: fairgv-run and fairgv-host attach make some.";
    document.getElementById("remark").textContent = !vgpus.length ? none
      : nrLeftOut ? `Of ${nrLeftOut} more no history is kept.` : "";
  }

  return { draw };
})();
