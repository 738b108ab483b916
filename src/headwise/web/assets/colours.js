// Colours of a figure: the theme of the page it is on, and colour scales from numbers to colours.
//
// A page declares its theme as CSS variables (--ink, --paper, ...); the fallbacks below are used where it declares none, light or dark
// by the reader's preference. Colours in the data were chosen for white paper. On dark paper `adaptColour` preserves their role: a grey
// keeps its contrast to the paper, a colour is lightened until it is visible. On light paper they are unchanged.
//
//     share = (value - low) / (high - low), or of the logarithms
//     colour = linear interpolation between the scale's stops at that share
//
// Values beyond an end get the colour of that end; the colour bar's ticks then have a plus. Missing values (null) are hatched.

/** @type {Record<string, string>} */
const LIGHT = {
  ink: "#1c1c1e",
  "ink-soft": "#5a5a60",
  "ink-faint": "#b4b4b8",
  paper: "#ffffff",
  panel: "#f4f4f2",
  line: "#d9d9d6",
  accent: "#8a3b12",
  "accent-ink": "#ffffff",
  focus: "#1a5fb4",
};
/** @type {Record<string, string>} */
const DARK = {
  ink: "#ececea",
  "ink-soft": "#a9a9ad",
  "ink-faint": "#6a6a70",
  paper: "#16171a",
  panel: "#202226",
  line: "#3a3c42",
  accent: "#f0a873",
  "accent-ink": "#16171a",
  focus: "#7ab8ff",
};
const SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
const MIN_CONTRAST = 3;

/**
 * The theme of the page around an element.
 * @param {HTMLElement} element
 */
export function themeOf(element) {
  const style = getComputedStyle(element);
  const declared = style.getPropertyValue("--paper").trim();
  const dark = declared ? luminance(resolveColour(element, declared)) < 0.4 : prefersDark(element);
  const fallback = dark ? DARK : LIGHT;
  /** @type {any} */
  const theme = {dark, font: style.getPropertyValue("--font-sans").trim() || SANS};
  for (const name of Object.keys(LIGHT)) {
    const value = style.getPropertyValue(`--${name}`).trim();
    theme[camelCase(name)] = value ? toHex(resolveColour(element, value)) : fallback[name];
  }
  return withTrace(theme);
}

/**
 * The theme for white paper, for printing and files.
 * @param {string} [font]
 */
export function printTheme(font = SANS) {
  /** @type {any} */
  const theme = {dark: false, font};
  for (const [name, value] of Object.entries(LIGHT)) theme[camelCase(name)] = value;
  return withTrace(theme);
}

/**
 * A colour from the data, adapted to the paper.
 * @param {string} colour
 * @param {Theme} theme
 */
export function adaptColour(colour, theme) {
  if (!theme.dark) return colour;
  const rgb = parseHex(colour);
  const [maximum, minimum] = [Math.max(...rgb), Math.min(...rgb)];
  const paper = luminance(parseHex(theme.paper));
  if (maximum - minimum < 24) {
    const light = contrast(luminance(rgb), 1) * (paper + 0.05) - 0.05;
    const level = Math.round(255 * gammaEncode(Math.min(light, 0.86)));
    return toHex([level, level, level]);
  }
  let mixed = rgb;
  for (let share = 0; share <= 1 && contrast(luminance(mixed), paper) < MIN_CONTRAST; share += 0.05) {
    mixed = rgb.map((channel) => channel + (255 - channel) * share);
  }
  return toHex(mixed);
}

/**
 * The theme for hatching next to a scale's colours: light where the scale starts light, on any paper.
 * @param {Scale} scale
 * @param {Theme} theme
 */
export function textureTheme(scale, theme) {
  return theme.dark && luminance(parseHex(scale.stops[0])) > 0.5 ? printTheme(theme.font) : theme;
}

/**
 * Black or white, whichever is more readable on a colour.
 * @param {string} colour
 */
export function contrastingInk(colour) {
  const [red, green, blue] = parseHex(colour);
  return 0.299 * red + 0.587 * green + 0.114 * blue < 128 ? "#ffffff" : "#1c1c1e";
}

/**
 * `#rrggbb` as three numbers from 0 to 255.
 * @param {string} colour
 */
export function parseHex(colour) {
  const whole = Number.parseInt(colour.slice(1, 7), 16);
  return [(whole >> 16) & 255, (whole >> 8) & 255, whole & 255];
}

/**
 * Three numbers as `#rrggbb`.
 * @param {number[]} rgb
 */
export function toHex(rgb) {
  return "#" + rgb.map((channel) => Math.round(channel).toString(16).padStart(2, "0")).join("");
}

/**
 * The contrast ratio of two luminances, 1 to 21 (WCAG).
 * @param {number} one
 * @param {number} other
 */
export function contrast(one, other) {
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
}

/**
 * Relative luminance as WCAG defines it.
 * @param {number[]} rgb
 */
export function luminance(rgb) {
  const [red, green, blue] = rgb.map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/**
 * The theme with its faint colour for guides, hatching and tile edges.
 * @param {any} theme
 */
function withTrace(theme) {
  const [soft, paper] = [parseHex(theme.inkSoft), parseHex(theme.paper)];
  return {...theme, trace: toHex(soft.map((channel, index) => paper[index] + 0.42 * (channel - paper[index])))};
}

/** @param {number} light */
function gammaEncode(light) {
  return light <= 0.0031308 ? 12.92 * light : 1.055 * light ** (1 / 2.4) - 0.055;
}

/** @param {string} name */
function camelCase(name) {
  return name.replace(/-(\w)/g, (_, letter) => letter.toUpperCase());
}

/** @param {HTMLElement} element */
function prefersDark(element) {
  const declared = /** @type {HTMLElement | null} */ (element.closest("[data-theme]"))?.dataset.theme;
  return declared ? declared === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/**
 * Any CSS colour as three numbers: computed by the browser, read back from a canvas of one pixel.
 * @param {HTMLElement} element
 * @param {string} value
 */
function resolveColour(element, value) {
  const probe = document.createElement("span");
  probe.style.color = value;
  element.append(probe);
  const computed = getComputedStyle(probe).color;
  probe.remove();
  probeContext ??= Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d", {willReadFrequently: true});
  const context = /** @type {CanvasRenderingContext2D} */ (probeContext);
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = computed;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

/** @type {CanvasRenderingContext2D | null} */
let probeContext = null;

const LEVELS = 256;

/**
 * The position of a number on the scale: 0 at the low end, 1 at the high end, unclipped.
 * @param {Scale} scale
 * @param {number} value
 */
export function shareOf(scale, value) {
  if (scale.log) return Math.log(Math.max(value, scale.low * 1e-9) / scale.low) / Math.log(scale.high / scale.low);
  return (value - scale.low) / (scale.high - scale.low);
}

/**
 * The colour at a share.
 * @param {{stops: string[]}} scale
 * @param {number} share
 */
export function colourAt(scale, share) {
  return levelsOf(scale)[Math.round(Math.min(Math.max(share, 0), 1) * (LEVELS - 1))];
}

/**
 * A function from numbers to colours, for many of them.
 * @param {Scale} scale
 */
export function colourFunction(scale) {
  const levels = levelsOf(scale);
  return (value) => levels[Math.round(Math.min(Math.max(shareOf(scale, value), 0), 1) * (LEVELS - 1))];
}

/**
 * The colours of a scale in 256 equal steps, as `#rrggbb`.
 * @param {{stops: string[]}} scale
 */
function levelsOf(scale) {
  if (!levelCache.has(scale)) {
    const stops = scale.stops.map(parseHex);
    levelCache.set(
      scale,
      Array.from({length: LEVELS}, (_, level) => toHex(interpolate(stops, level / (LEVELS - 1)))),
    );
  }
  return levelCache.get(scale);
}

const levelCache = new WeakMap();

/** @param {number[][]} stops @param {number} share */
function interpolate(stops, share) {
  const position = share * (stops.length - 1);
  const first = Math.min(Math.floor(position), stops.length - 2);
  return stops[first].map((channel, index) => channel + (stops[first + 1][index] - channel) * (position - first));
}
