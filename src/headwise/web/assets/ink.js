// The colours a figure is drawn with: those of the page it stands on.
//
// A page says them as CSS variables (--ink, --paper, ...); where it says none, the fallbacks below hold, light or dark as
// the reader prefers. Colours that come with the data were chosen for white paper. On dark paper `onPaper` keeps what
// they meant: a grey keeps its contrast to the paper (what was faint stays faint, what was black becomes white), a
// colour is lightened until it can be seen. On light paper they are left as they are.
//
// Cost: one probe element a theme. This module does not know what is drawn.

const LIGHT = {ink: "#1c1c1e", "ink-soft": "#5a5a60", "ink-faint": "#b4b4b8", paper: "#ffffff", panel: "#f4f4f2",
  line: "#d9d9d6", accent: "#8a3b12", "accent-ink": "#ffffff", focus: "#1a5fb4"};
const DARK = {ink: "#ececea", "ink-soft": "#a9a9ad", "ink-faint": "#6a6a70", paper: "#16171a", panel: "#202226",
  line: "#3a3c42", accent: "#f0a873", "accent-ink": "#16171a", focus: "#7ab8ff"};
const SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
const LEAST_CONTRAST = 3;

/** The ink of the page around an element. */
export function inkOf(element) {
  const style = getComputedStyle(element);
  const said = style.getPropertyValue("--paper").trim();
  const dark = said ? luminance(resolve(element, said)) < 0.4 : prefersDark(element);
  const fallback = dark ? DARK : LIGHT;
  const ink = {dark, sans: style.getPropertyValue("--font-sans").trim() || SANS};
  for (const name of Object.keys(LIGHT)) {
    const value = style.getPropertyValue(`--${name}`).trim();
    ink[camel(name)] = value ? hex(resolve(element, value)) : fallback[name];
  }
  return traced(ink);
}

/** The ink of white paper, whatever the page looks like: for printing and for files. */
export function paperInk(sans = SANS) {
  const ink = {dark: false, sans};
  for (const [name, value] of Object.entries(LIGHT)) ink[camel(name)] = value;
  return traced(ink);
}

/** A colour of the data as it is drawn on this paper. */
export function onPaper(colour, ink) {
  if (!ink.dark) return colour;
  const rgb = parse(colour);
  const [most, least] = [Math.max(...rgb), Math.min(...rgb)];
  const paper = luminance(parse(ink.paper));
  if (most - least < 24) {
    const light = contrast(luminance(rgb), 1) * (paper + 0.05) - 0.05;
    const level = Math.round(255 * gammaOf(Math.min(light, 0.86)));
    return hex([level, level, level]);
  }
  let mixed = rgb;
  for (let share = 0; share <= 1 && contrast(luminance(mixed), paper) < LEAST_CONTRAST; share += 0.05) {
    mixed = rgb.map((channel) => channel + (255 - channel) * share);
  }
  return hex(mixed);
}

/** The ink of a texture beside the colours of a scale: light where the scale begins light, on any paper. */
export function textureInk(scale, ink) {
  return ink.dark && luminance(parse(scale.stops[0])) > 0.5 ? paperInk(ink.sans) : ink;
}

/** Black or white, whichever is better read on a colour. */
export function inkOn(colour) {
  const [red, green, blue] = parse(colour);
  return 0.299 * red + 0.587 * green + 0.114 * blue < 128 ? "#ffffff" : "#1c1c1e";
}

/** `#rrggbb` as three numbers from 0 to 255. */
export function parse(colour) {
  const whole = Number.parseInt(colour.slice(1, 7), 16);
  return [(whole >> 16) & 255, (whole >> 8) & 255, whole & 255];
}

/** Three numbers as `#rrggbb`. */
export function hex(rgb) {
  return "#" + rgb.map((channel) => Math.round(channel).toString(16).padStart(2, "0")).join("");
}

/** How well two colours are told apart, by their luminances: 1 (not) to 21. */
export function contrast(one, other) {
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
}

/** Relative luminance as WCAG defines it. */
export function luminance(rgb) {
  const [red, green, blue] = rgb.map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** With the colour of what is only just to be seen: guides, strokes of a texture, edges of tiles. */
function traced(ink) {
  const [soft, paper] = [parse(ink.inkSoft), parse(ink.paper)];
  return {...ink, trace: hex(soft.map((channel, index) => paper[index] + 0.42 * (channel - paper[index])))};
}

function gammaOf(light) {
  return light <= 0.0031308 ? 12.92 * light : 1.055 * light ** (1 / 2.4) - 0.055;
}

function camel(name) {
  return name.replace(/-(\w)/g, (_, letter) => letter.toUpperCase());
}

function prefersDark(element) {
  const said = element.closest("[data-theme]")?.dataset.theme;
  return said ? said === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Any CSS colour as three numbers: the browser computes it, a canvas of one pixel says what came out. */
function resolve(element, value) {
  const probe = document.createElement("span");
  probe.style.color = value;
  element.append(probe);
  const computed = getComputedStyle(probe).color;
  probe.remove();
  const context = (resolve.context ??= Object.assign(document.createElement("canvas"), {width: 1, height: 1})
    .getContext("2d", {willReadFrequently: true}));
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = computed;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}
