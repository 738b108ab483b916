// Formatting numbers, positions of axis ticks, and which labels remain when not all fit.
//
// Colour bars bring their ticks with them (computed in Python); axes of curves do not, so the same rules are implemented here. A true
// minus sign, thousands separators, powers of ten for tiny numbers.

/** @type {Record<string, string>} */
const RAISED = {"-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹"};
const CELL_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/**
 * A number with three significant digits, whole numbers as they are; a dash for null (missing).
 * @param {number | null} value
 */
export function formatNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return grouped(value, 0);
  if (size >= 1000) return grouped(value, 0);
  if (size < 1e-4 && size > 0) return powered(value);
  return minus(value.toPrecision(3));
}

/**
 * A tick label with the fewest digits.
 * @param {number} value
 */
export function tickText(value) {
  if (value === 0) return "0";
  const power = Math.log10(Math.abs(value));
  if (value > 0 && value < 1e-4 && Math.abs(power - Math.round(power)) < 1e-9) return `10${raised(Math.round(power))}`;
  if (Math.abs(value) >= 1000) return grouped(value, 0);
  const text = Number(value.toPrecision(4)).toString();
  return minus(text.includes("e") ? value.toFixed(12).replace(/0+$/, "") : text);
}

/**
 * Round ticks within [low, high], at most `maximum` steps.
 * @param {number} low
 * @param {number} high
 * @param {number} [maximum]
 */
export function roundTicks(low, high, maximum = 4) {
  const [from, to] = [Math.min(low, high), Math.max(low, high)];
  const span = to - from;
  if (!(span > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(span));
  const steps = [0.1, 1, 10].flatMap((factor) => [1, 2, 2.5, 5].map((step) => step * factor * power));
  for (const step of steps) {
    const first = Math.ceil(from / step - 1e-9);
    const last = Math.floor(to / step + 1e-9);
    if (last - first <= maximum && Math.ceil(span / step - 1e-9) <= maximum + 1) {
      return Array.from({length: last - first + 1}, (_, index) => Number(((first + index) * step).toPrecision(12)));
    }
  }
  return [from, to];
}

/**
 * Ticks of a logarithmic axis: powers of two for counts, else of ten, with 2 and 5 in between where these are few.
 * @param {number} low
 * @param {number} high
 * @param {boolean} counts
 */
export function logTicks(low, high, counts) {
  const ticks = [];
  if (counts) {
    const step = Math.max(1, Math.ceil(Math.log2(high / low) / 6));
    for (let power = Math.ceil(Math.log2(low) - 1e-9); 2 ** power <= high * (1 + 1e-9); power += step) ticks.push(2 ** power);
    return ticks;
  }
  const few = Math.log10(high / low) < 2.2;
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) {
    for (const factor of few ? [1, 2, 5] : [1]) {
      const tick = Number((factor * 10 ** power).toPrecision(6));
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push(tick);
    }
  }
  const step = Math.ceil(ticks.length / 8);
  return ticks.filter((_, index) => index % step === 0);
}

/**
 * Which of `size` labels to write when only `maximum` fit: round steps from the first, and the last if there is room.
 * @param {number} size
 * @param {number} maximum
 */
export function thinned(size, maximum) {
  const room = Math.max(maximum, 1);
  const step = CELL_STEPS.find((each) => Math.ceil(size / each) <= room) ?? size;
  const indices = [];
  for (let index = 0; index < size; index += step) indices.push(index);
  if (size - 1 - indices.at(-1) >= 0.6 * step) indices.push(size - 1);
  return indices;
}

/** @param {number} value */
function powered(value) {
  const [digits, power] = value.toExponential(1).split("e");
  return `${minus(digits)} × 10${raised(Number(power))}`;
}

/** @param {number} power */
function raised(power) {
  return [...String(power)].map((sign) => RAISED[sign]).join("");
}

/** @param {number} value @param {number} decimals */
function grouped(value, decimals) {
  const [whole, rest] = Math.abs(value).toFixed(decimals).split(".");
  const text = whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? `.${rest}` : "");
  return value < 0 && text !== "0" ? `−${text}` : text;
}

/** @param {string} text */
function minus(text) {
  return text.replace("-", "−");
}

const SECOND = 1000;

/**
 * Milliseconds in words, rounded up to whole seconds after the first.
 * @param {number} milliseconds
 */
export function duration(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / SECOND));
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}
