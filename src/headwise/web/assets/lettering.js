// How wide words are, and where lines break. Measured by the browser, in the font of the page.

export const SMALL = 11; // tick labels, legends
export const NAME = 11.5; // names of axes
export const LINE = 1.3; // of the size of the letters
export const LEAST = 9; // names of rows and columns where there is little room
const LONGEST = 36; // letters of a label before it is cut

const widths = new Map();

/** The width of a text in pixels. */
export function textWidth(text, size, sans, weight = 400) {
  const key = `${weight} ${size} ${sans} ${text}`;
  if (!widths.has(key)) {
    if (widths.size > 20000) widths.clear();
    const context = (textWidth.context ??= document.createElement("canvas").getContext("2d"));
    context.font = fontOf(size, sans, weight);
    widths.set(key, context.measureText(text).width);
  }
  return widths.get(key);
}

/** The widest of several texts. */
export function widest(texts, size, sans) {
  return texts.reduce((most, text) => Math.max(most, textWidth(text, size, sans)), 0);
}

/** A font as a canvas wants it. */
export function fontOf(size, sans, weight = 400) {
  return `${weight} ${size}px ${sans}`;
}

/** A label, cut at its end if it is very long: after a whole word where one ends near. */
export function cut(label) {
  if (label.length <= LONGEST) return label;
  const kept = label.slice(0, LONGEST - 1);
  const word = kept.lastIndexOf(" ");
  return `${kept.slice(0, word > LONGEST / 2 ? word : undefined).trimEnd()}…`;
}

/** A text in lines of at most `room` pixels; line ends in the text stay. */
export function wrap(text, room, size, sans, weight = 400) {
  if (!text) return [];
  return text.split("\n").flatMap((paragraph) => {
    const lines = [""];
    for (const word of paragraph.split(" ")) {
      const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
      if (lines.at(-1) && textWidth(longer, size, sans, weight) > room) lines.push(word);
      else lines[lines.length - 1] = longer;
    }
    return lines;
  });
}
