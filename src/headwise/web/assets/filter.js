// Which heads? The filter of `headwise heads --where`, read in the browser: `profile.induction > 0.3 and layer < 10`.
//
// Known are column names (with dots), `name`, numbers, "text", < <= > >= == != (also chained), "text" in column (and not in),
// and or not, + - * / and parentheses. The text is parsed into a small tree and walked; nothing is ever executed. Precedence is Python's. What was
// not measured (null) is in no comparison but !=, as NaN in Python. An error says what was found and what is known.
//
//     expression := conjunction ("or" conjunction)*        sum    := term (("+"|"-") term)*
//     conjunction := negation ("and" negation)*            term   := factor (("*"|"/") factor)*
//     negation := "not" negation | comparison              factor := "-" factor | number | text | column | "(" expression ")"
//     comparison := text ["not"] "in" column | sum (("<"|"<="|">"|">="|"=="|"!=") sum)*

const TOKEN = /\s*(?:((?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|([A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*)|(<=|>=|==|!=|[<>()+\-*/]))/y;
const COMPARE = {
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "==": (a, b) => a === b, "!=": (a, b) => a !== b,
};
const WORDS = ["and", "or", "not", "in"];
const LONGEST = 2000;

/** A filter as a function from a row's place to true or false. `columns` maps names to {values, kind}. */
export function filterOf(text, columns) {
  if (text.length > LONGEST) throw new Error(`The filter has ${text.length} characters; at most ${LONGEST} are read.`);
  const reader = {tokens: tokens(text), at: 0, columns, names: new Set()};
  const found = either(reader);
  if (reader.at < reader.tokens.length) throw unread(text);
  if (found.kind !== "truth") throw new Error(`The filter is no comparison of a column; write it like layer < 10.`);
  return {holds: found.value, names: [...reader.names]};
}

function tokens(text) {
  const found = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const match = TOKEN.exec(text);
    if (!match) throw unread(text);
    const [, number, quoted, word, sign] = match;
    if (number !== undefined) found.push({kind: "number", value: Number(number.replaceAll("_", ""))});
    else if (quoted !== undefined) found.push({kind: "text", value: quoted.slice(1, -1).replace(/\\(.)/g, "$1")});
    else if (word !== undefined) found.push(WORDS.includes(word) ? {kind: word} : {kind: "name", value: word});
    else found.push({kind: sign});
  }
  return found;
}

function either(reader) {
  return joined(reader, "or", both, (a, b) => (row) => a(row) || b(row));
}

function both(reader) {
  return joined(reader, "and", negation, (a, b) => (row) => a(row) && b(row));
}

function joined(reader, word, part, combine) {
  let left = part(reader);
  while (take(reader, word)) {
    const right = part(reader);
    left = {kind: "truth", value: combine(truth(left), truth(right))};
  }
  return left;
}

function negation(reader) {
  if (!take(reader, "not")) return comparison(reader);
  const inner = truth(negation(reader));
  return {kind: "truth", value: (row) => !inner(row)};
}

function comparison(reader) {
  const literal = peek(reader) === "text";
  const sides = [sum(reader)];
  const signs = [];
  if (literal && (peek(reader) === "in" || (peek(reader) === "not" && peek(reader, 1) === "in"))) return contained(reader, sides[0]);
  while (Object.hasOwn(COMPARE, peek(reader))) {
    signs.push(reader.tokens[reader.at++].kind);
    sides.push(sum(reader));
  }
  if (!signs.length) return sides[0];
  const parts = signs.map((sign, place) => compared(sign, sides[place], sides[place + 1]));
  return {kind: "truth", value: (row) => parts.every((part) => part(row))};
}

/** Whether each text of a column has this text in it; a text that was not measured has none in it. */
function contained(reader, text) {
  const not = take(reader, "not");
  take(reader, "in");
  const column = sum(reader);
  if (column.kind !== "text" || !column.column) throw new Error("A text can only be looked for in a column of texts, as in 'L2' in name.");
  return {kind: "truth", value: (row) => (column.value(row) ?? "").includes(text.value(row)) !== not};
}

function compared(sign, left, right) {
  if (left.kind !== right.kind) throw new Error(`A ${left.kind} cannot be compared with a ${right.kind}; a column of texts is compared with text in quotes.`);
  const test = COMPARE[sign];
  return (row) => {
    const [a, b] = [left.value(row), right.value(row)];
    if (a === null || b === null) return sign === "!=";
    return test(a, b);
  };
}

function sum(reader) {
  return chained(reader, {"+": (a, b) => a + b, "-": (a, b) => a - b}, term);
}

function term(reader) {
  return chained(reader, {"*": (a, b) => a * b, "/": (a, b) => a / b}, factor);
}

function chained(reader, signs, part) {
  let left = part(reader);
  while (Object.hasOwn(signs, peek(reader))) {
    const act = signs[reader.tokens[reader.at++].kind];
    const [a, b] = [number(left), number(part(reader))];
    left = {kind: "number", value: (row) => calculated(act, a(row), b(row))};
  }
  return left;
}

function calculated(act, a, b) {
  if (a === null || b === null) return null;
  const found = act(a, b);
  return Number.isNaN(found) ? null : found;
}

function factor(reader) {
  const token = reader.tokens[reader.at++];
  if (!token) throw new Error("The filter ends too early; write it like layer < 10.");
  if (token.kind === "-") {
    const inner = number(factor(reader));
    return {kind: "number", value: (row) => calculated((a, b) => a * b, -1, inner(row))};
  }
  if (token.kind === "(") {
    const inner = either(reader);
    if (!take(reader, ")")) throw new Error("A bracket is open; close it with ).");
    return inner;
  }
  if (token.kind === "number" || token.kind === "text") return {kind: token.kind, value: () => token.value};
  if (token.kind === "name") return column(reader, token.value);
  throw new Error(`The filter may not have ${token.kind} there; write it like profile.induction > 0.3 and layer < 10.`);
}

function column(reader, name) {
  const found = reader.columns.get(name);
  if (!found) throw new Error(`There is no column ${name}.${near(name, [...reader.columns.keys()])}`);
  reader.names.add(name);
  return {kind: found.kind === "text" ? "text" : "number", value: (row) => found.values[row], column: true};
}

function near(name, known) {
  const last = name.split(".").at(-1).toLowerCase();
  const close = known.filter((one) => one.toLowerCase().includes(last)).slice(0, 3);
  return close.length ? ` Did you mean ${close.join(", ")}?` : "";
}

function truth(part) {
  if (part.kind === "truth") return part.value;
  throw new Error("Only comparisons can be joined by and, or, not; write it like layer < 10.");
}

function number(part) {
  if (part.kind === "number") return part.value;
  throw new Error("Only numbers can be added, taken away, multiplied or divided.");
}

function take(reader, kind) {
  if (peek(reader) !== kind) return false;
  reader.at++;
  return true;
}

function peek(reader, further = 0) {
  return reader.tokens[reader.at + further]?.kind;
}

function unread(text) {
  return new Error(`The filter “${text}” cannot be read; write it like profile.induction > 0.3 and layer < 10 (== for equal, quotes around text, 'text' in column).`);
}
