"use strict";

/* Light, dark, or as the system has it; the choice is kept where the browser keeps anything. */
const Theme = (() => {
  const CHOICES = ["system", "light", "dark"];
  const KEY = "fairgv-theme";
  const listeners = [];
  const button = document.getElementById("theme");
  let choice = "system";

  function kept() {
    try {
      return localStorage.getItem(KEY);
    } catch {  // a file, or a browser that keeps nothing
      return null;
    }
  }

  function choose(next) {
    choice = CHOICES.includes(next) ? next : "system";
    if (choice === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    button.textContent = `Theme: ${choice}`;
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      /* it holds until the page is closed */
    }
    listeners.forEach((listener) => listener());
  }

  button.addEventListener("click", () => choose(CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => listeners.forEach((listener) => listener()));
  choose(kept());

  /* The colour of this name as it is now: a canvas knows no names. */
  function colour(name) {
    const probe = document.body.appendChild(document.createElement("span"));
    probe.style.color = `var(--${name})`;
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  return { colour, onChange: (listener) => listeners.push(listener) };
})();
