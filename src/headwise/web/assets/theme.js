// Light or dark: as the system has it, until the reader chooses; the choice is remembered where the browser allows.

const KEY = "headwise-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** "light" or "dark", as it is now. */
export function theme() {
  return document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
}

/** The other one. */
export function turn() {
  const next = theme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch { /* a browser may forbid it: then the choice lasts as long as the page */ }
  dispatchEvent(new CustomEvent("theme", {detail: next}));
}

/** Call a function when colours change. */
export function ontheme(changed) {
  addEventListener("theme", changed);
  dark.addEventListener("change", changed);
}

/** Paint a canvas now, and again whenever colours change while it is on the page. */
export function painted(canvas, paint) {
  canvas.repaint = paint;
  paint();
  return canvas;
}

/** A colour of the page as it is now, such as "ink-soft". */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

ontheme(() => document.querySelectorAll("canvas").forEach((canvas) => canvas.repaint?.()));
