// Light or dark: the system's preference until the reader chooses; the choice is stored where the browser allows.

const STORAGE_KEY = "headwise-theme";
/** @type {WeakMap<HTMLCanvasElement, () => void>} */
const repaints = new WeakMap();
const dark = matchMedia("(prefers-color-scheme: dark)");

/** The current theme, "light" or "dark". */
export function currentTheme() {
  return document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
}

/** Switch to the other theme. */
export function toggleTheme() {
  const next = currentTheme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(STORAGE_KEY, next);
  } catch {
    /* a browser may forbid it: then the choice lasts as long as the page */
  }
  dispatchEvent(new CustomEvent("theme", {detail: next}));
}

/**
 * Call a function when the theme changes.
 * @param {() => void} listener
 */
export function onThemeChange(listener) {
  addEventListener("theme", listener);
  dark.addEventListener("change", listener);
}

/**
 * Paint a canvas now, and again whenever the theme changes while it is on the page.
 * @param {HTMLCanvasElement} canvas
 * @param {() => void} paint
 */
export function paintOnThemeChange(canvas, paint) {
  repaints.set(canvas, paint);
  paint();
  return canvas;
}

/**
 * A CSS colour variable of the page, such as "ink-soft".
 * @param {string} name
 */
export function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

onThemeChange(() => document.querySelectorAll("canvas").forEach((canvas) => repaints.get(canvas)?.()));
