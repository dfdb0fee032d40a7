"use strict";

/* The Gpus on top: how much each is used, and how fairly. Where there are several, each is a button that shows its charts. */
const Devices = (() => {
  const holder = document.getElementById("gpus");
  const cards = new Map();

  function fact(facts, title) {
    const line = facts.appendChild(document.createElement("span"));
    line.className = "fact";
    line.appendChild(document.createElement("span")).textContent = title;
    const bar = line.appendChild(document.createElement("span"));
    bar.className = "bar";
    bar.setAttribute("aria-hidden", "true");
    const fill = bar.appendChild(document.createElement("i"));
    const value = line.appendChild(document.createElement("span"));
    value.className = "number";
    return (text, part) => {
      value.textContent = text;
      fill.style.width = `${Math.min(100, (part ?? 0) * 100)}%`;
    };
  }

  function made(number, isChoice, choose) {
    const card = document.createElement(isChoice ? "button" : "div");
    card.className = "gpu";
    if (isChoice) {
      card.type = "button";
      card.addEventListener("click", () => choose(number));
    }
    const title = card.appendChild(document.createElement("b"));
    const facts = card.appendChild(document.createElement("span"));
    facts.className = "facts";
    return { card, title, use: fact(facts, "use"), demand: fact(facts, "demand"), memory: fact(facts, "memory"), ratio: fact(facts, "min-max ratio") };
  }

  /* `seconds`: what each was used in the last second, by its number. */
  function draw(seconds, chosen, choose) {
    const gpus = [...Data.state.gpus.values()];
    if (cards.size !== gpus.length) {
      cards.clear();
      gpus.forEach(({ facts }) => cards.set(facts.number, made(facts.number, gpus.length > 1, choose)));
      holder.replaceChildren(...[...cards.values()].map(({ card }) => card));
    }
    for (const { facts, values } of gpus) {
      const card = cards.get(facts.number);
      const memory = values.memory?.at(-1) ?? null;
      const share = seconds.get(facts.number) ?? values.share?.at(-1) ?? null;
      const state = facts.failed ? " · failed" : facts.is_drained ? " · drained" : facts.is_ready ? "" : " · not ready";
      card.title.textContent = `GPU ${facts.number} · ${facts.name} · ${facts.policy}${state}`;
      card.title.title = facts.failed ?? "";
      card.use(Say.share(share), share);
      card.demand(Say.share(facts.demand ?? null), facts.demand);
      card.memory(`${Say.bytes(memory)} of ${Say.bytes(facts.memory_bytes)}`, memory / facts.memory_bytes);
      card.ratio(Say.ratio(facts.min_max_ratio), facts.min_max_ratio);
      if (gpus.length > 1) card.card.setAttribute("aria-pressed", String(facts.number === chosen));
    }
  }

  return { draw };
})();
