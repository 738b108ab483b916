// Numbers in words and on axes: how they are written, where ticks stand, which labels are left when not all fit.
//
// Colour bars bring their ticks with them (Python computed them); axes of curves do not, so their rules are here, and
// they are the same as on paper. A true minus sign, thousands apart, powers of ten where a number is tiny.

const RAISED = {"-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹"};
const CELL_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/** A measured number for a reader: three digits that count, whole numbers as they are; null was not measured. */
export function told(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return grouped(value, 0);
  if (size >= 1000) return grouped(value, 0);
  if (size < 1e-4 && size > 0) return powered(value);
  return minus(value.toPrecision(3));
}

/** A tick of an axis: as few digits as it needs. */
export function tickText(value) {
  if (value === 0) return "0";
  const power = Math.log10(Math.abs(value));
  if (value > 0 && value < 1e-4 && Math.abs(power - Math.round(power)) < 1e-9) return `10${raised(Math.round(power))}`;
  if (Math.abs(value) >= 1000) return grouped(value, 0);
  const text = Number(value.toPrecision(4)).toString();
  return minus(text.includes("e") ? value.toFixed(12).replace(/0+$/, "") : text);
}

/** Round places within [low, high], at most `most` steps apart. */
export function roundTicks(low, high, most = 4) {
  const [from, to] = [Math.min(low, high), Math.max(low, high)];
  const span = to - from;
  if (!(span > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(span));
  const steps = [0.1, 1, 10].flatMap((factor) => [1, 2, 2.5, 5].map((step) => step * factor * power));
  for (const step of steps) {
    const first = Math.ceil(from / step - 1e-9);
    const last = Math.floor(to / step + 1e-9);
    if (last - first <= most && Math.ceil(span / step - 1e-9) <= most + 1) {
      return Array.from({length: last - first + 1}, (_, index) => Number(((first + index) * step).toPrecision(12)));
    }
  }
  return [from, to];
}

/** Places of a logarithmic axis: powers of two for counts, else of ten, with 2 and 5 between where these are few. */
export function logTicks(low, high, counts) {
  const places = [];
  if (counts) {
    const step = Math.max(1, Math.ceil(Math.log2(high / low) / 6));
    for (let power = Math.ceil(Math.log2(low) - 1e-9); 2 ** power <= high * (1 + 1e-9); power += step) places.push(2 ** power);
    return places;
  }
  const few = Math.log10(high / low) < 2.2;
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) {
    for (const factor of few ? [1, 2, 5] : [1]) {
      const place = Number((factor * 10 ** power).toPrecision(6));
      if (place >= low * (1 - 1e-9) && place <= high * (1 + 1e-9)) places.push(place);
    }
  }
  const step = Math.ceil(places.length / 8);
  return places.filter((_, index) => index % step === 0);
}

/** Which of `size` labels to write when only `most` fit: round steps from the first, and the last if there is room. */
export function thinned(size, most) {
  const room = Math.max(most, 1);
  const step = CELL_STEPS.find((each) => Math.ceil(size / each) <= room) ?? size;
  const places = [];
  for (let place = 0; place < size; place += step) places.push(place);
  if (size - 1 - places.at(-1) >= 0.6 * step) places.push(size - 1);
  return places;
}

function powered(value) {
  const [digits, power] = value.toExponential(1).split("e");
  return `${minus(digits)} × 10${raised(Number(power))}`;
}

function raised(power) {
  return [...String(power)].map((sign) => RAISED[sign]).join("");
}

function grouped(value, decimals) {
  const [whole, rest] = Math.abs(value).toFixed(decimals).split(".");
  const text = whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? `.${rest}` : "");
  return value < 0 && text !== "0" ? `−${text}` : text;
}

function minus(text) {
  return text.replace("-", "−");
}
