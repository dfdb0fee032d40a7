"use strict";

/* Puts the page together: from a document that stands in it (a report), or from the daemon, which tells what is new. */
(() => {
  const QUIET_MS = 5000;
  const AGAIN_MS = 3000;
  const span = document.getElementById("span");
  let second = { at: 0, waits_for: "", troubles: [], gpus: [], vgpus: [] };
  let chosen = null;
  let isLoading = false;
  let quiet = 0;

  /* What has not changed is not said again to who listens. */
  function write(line, text) {
    if (line.textContent !== text) line.textContent = text;
  }

  function writeNotes(sentences) {
    const notes = document.getElementById("notes");
    if (sentences.join("\n") === [...notes.children].map((note) => note.textContent).join("\n")) return;
    notes.replaceChildren(
      ...sentences.map((sentence) => {
        const note = document.createElement("p");
        note.textContent = sentence;
        return note;
      }),
    );
  }

  function say(state, text) {
    const line = document.getElementById("state");
    line.dataset.state = state;
    write(line, text);
  }

  function take(found) {
    document.getElementById("host").textContent = found.host;
    document.title = `FairGV ${found.host}`;
    document.getElementById("version").textContent = found.version;
    Data.load(found.history);
    if (found.second.at && found.second.at > second.at) second = found.second;
    drawAll();
  }

  function drawCharts() {
    const numbers = [...Data.state.gpus.values()].map(({ facts }) => facts.number);
    if (!numbers.includes(chosen)) chosen = numbers[0] ?? null;
    Charts.draw(chosen, Number(span.value));
  }

  function drawSecond() {
    const seconds = new Map(second.gpus.map((gpu) => [gpu.number, gpu.share]));
    Devices.draw(seconds, chosen, (number) => {
      chosen = number;
      drawAll();
    });
    writeNotes([second.waits_for, ...second.troubles].filter(Boolean));
    Table.draw(second.vgpus, Data.state.gpus.size > 1, Boolean(second.waits_for));
  }

  function drawAll() {
    drawCharts();
    drawSecond();
  }

  async function load() {
    if (isLoading) return;
    isLoading = true;
    try {
      const answer = await fetch("document");
      if (answer.ok) take(await answer.json());
    } catch {
      /* the events say that the daemon is away, and when it is back */
    } finally {
      isLoading = false;
    }
  }

  function lost() {
    say("lost", second.at ? `no news since ${Say.clock(second.at / 1000)}` : "the daemon does not answer");
  }

  function follow() {
    const events = new EventSource("events");
    events.addEventListener("open", load);
    events.addEventListener("point", ({ data }) => {
      if (Data.append(JSON.parse(data))) drawCharts();
      else load();
    });
    events.addEventListener("second", ({ data }) => {
      second = JSON.parse(data);
      clearTimeout(quiet);
      quiet = setTimeout(lost, QUIET_MS);
      say("live", "live");
      drawSecond();
    });
    events.addEventListener("error", () => {
      lost();
      if (events.readyState === EventSource.CLOSED) setTimeout(follow, AGAIN_MS);
    });
  }

  span.addEventListener("change", drawCharts);
  Theme.onChange(() => {
    Charts.forget();
    drawAll();
  });

  const inside = document.getElementById("document");
  if (inside) {
    const found = JSON.parse(inside.textContent);
    span.value = "60";
    take(found);
    const until = Data.state.times.at(-1);
    say("waiting", until ? `report, until ${new Date(until * 1000).toLocaleString([], { hour12: false })}` : "report, without a point");
  } else {
    follow();
  }
})();
