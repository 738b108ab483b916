// Text widths, measured by the browser in the page's font, and line breaks.

export const SMALL_FONT = 11; // tick labels, legends
export const NAME_FONT = 11.5; // names of axes
export const LINE_HEIGHT = 1.3; // of the font size
export const MIN_FONT = 9; // row and column names where space is scarce
const MAX_LABEL_LENGTH = 36; // characters of a label before it is truncated

/** @type {Map<string, number>} */
const widths = new Map();
/** @type {CanvasRenderingContext2D | null} */
let measuring = null;

/**
 * The width of a text in pixels.
 * @param {string} text
 * @param {number} size
 * @param {string} font
 * @param {number} [weight]
 */
export function textWidth(text, size, font, weight = 400) {
  const key = `${weight} ${size} ${font} ${text}`;
  if (!widths.has(key)) {
    if (widths.size > 20000) widths.clear();
    measuring ??= /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
    measuring.font = fontOf(size, font, weight);
    widths.set(key, measuring.measureText(text).width);
  }
  return /** @type {number} */ (widths.get(key));
}

/**
 * The widest of several texts.
 * @param {string[]} texts
 * @param {number} size
 * @param {string} font
 */
export function maxTextWidth(texts, size, font) {
  return texts.reduce((maximum, text) => Math.max(maximum, textWidth(text, size, font)), 0);
}

/**
 * A font in canvas syntax.
 * @param {number} size
 * @param {string} font
 * @param {number} [weight]
 */
export function fontOf(size, font, weight = 400) {
  return `${weight} ${size}px ${font}`;
}

/**
 * A label, truncated if it is very long, at a word boundary where possible.
 * @param {string} label
 */
export function truncate(label) {
  if (label.length <= MAX_LABEL_LENGTH) return label;
  const shortened = label.slice(0, MAX_LABEL_LENGTH - 1);
  const word = shortened.lastIndexOf(" ");
  return `${shortened.slice(0, word > MAX_LABEL_LENGTH / 2 ? word : undefined).trimEnd()}…`;
}

/**
 * A text in lines of at most `room` pixels; line breaks in the text stay.
 * @param {string} text
 * @param {number} room
 * @param {number} size
 * @param {string} font
 * @param {number} [weight]
 */
export function wrap(text, room, size, font, weight = 400) {
  if (!text) return [];
  return text.split("\n").flatMap((paragraph) => {
    const lines = [""];
    for (const word of paragraph.split(" ")) {
      const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
      if (lines.at(-1) && textWidth(longer, size, font, weight) > room) lines.push(word);
      else lines[lines.length - 1] = longer;
    }
    return lines;
  });
}
