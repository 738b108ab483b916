// The filter of `headwise heads --where` in the browser: `profile.induction > 0.3 and layer < 10`.
//
// Column names (with dots), `name`, numbers, "text", < <= > >= == != (also chained), "text" in column (and not in), and or not,
// + - * / and parentheses. The text is parsed into functions; nothing is ever evaluated as code. Precedence is Python's. A missing value
// (null) satisfies no comparison but !=, as NaN in Python. Errors say what was found and what is known.
//
//     expression := conjunction ("or" conjunction)*        sum    := term (("+"|"-") term)*
//     conjunction := negation ("and" negation)*            term   := factor (("*"|"/") factor)*
//     negation := "not" negation | comparison              factor := "-" factor | number | text | column | "(" expression ")"
//     comparison := text ["not"] "in" column | sum (("<"|"<="|">"|">="|"=="|"!=") sum)*

/**
 * @typedef {(row: number) => boolean} Condition
 * @typedef {{values: any[], kind: string}} FilterColumn
 * @typedef {{kind: string, value: (row: number) => any, column?: boolean}} Term
 * @typedef {{tokens: {kind: string, value?: any}[], at: number, columns: Map<string, FilterColumn>, names: Set<string>}} Parser
 */

const TOKEN =
  /\s*(?:((?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|([A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*)|(<=|>=|==|!=|[<>()+\-*/]))/y;
/** @type {Record<string, (a: any, b: any) => boolean>} */
const COMPARE = {
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "==": (a, b) => a === b,
  "!=": (a, b) => a !== b,
};
const KEYWORDS = ["and", "or", "not", "in"];
const MAX_LENGTH = 2000;

/**
 * A filter as a function from a row's index to true or false. `columns` maps names to {values, kind}.
 * @param {string} text
 * @param {Map<string, FilterColumn>} columns
 */
export function parseFilter(text, columns) {
  if (text.length > MAX_LENGTH) throw new Error(`The filter has ${text.length} characters; the limit is ${MAX_LENGTH}.`);
  const parser = {tokens: tokens(text), at: 0, columns, names: new Set()};
  const found = disjunction(parser);
  if (parser.at < parser.tokens.length) throw syntaxError(text);
  if (found.kind !== "truth") throw new Error(`The filter is not a condition; write it like layer < 10.`);
  return {holds: found.value, names: [...parser.names]};
}

/** @param {string} text */
function tokens(text) {
  const found = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const match = TOKEN.exec(text);
    if (!match) throw syntaxError(text);
    const [, asNumber, quoted, word, sign] = match;
    if (asNumber !== undefined) found.push({kind: "number", value: Number(asNumber.replaceAll("_", ""))});
    else if (quoted !== undefined) found.push({kind: "text", value: quoted.slice(1, -1).replace(/\\(.)/g, "$1")});
    else if (word !== undefined) found.push(KEYWORDS.includes(word) ? {kind: word} : {kind: "name", value: word});
    else found.push({kind: sign});
  }
  return found;
}

/** @param {Parser} parser */
function disjunction(parser) {
  return joinedBy(parser, "or", conjunction, (a, b) => (row) => a(row) || b(row));
}

/** @param {Parser} parser */
function conjunction(parser) {
  return joinedBy(parser, "and", negation, (a, b) => (row) => a(row) && b(row));
}

/**
 * @param {Parser} parser
 * @param {string} word
 * @param {(parser: Parser) => Term} part
 * @param {(a: Condition, b: Condition) => Condition} combine
 */
function joinedBy(parser, word, part, combine) {
  let left = part(parser);
  while (accept(parser, word)) {
    const right = part(parser);
    left = {kind: "truth", value: combine(asCondition(left), asCondition(right))};
  }
  return left;
}

/** @param {Parser} parser */
function negation(parser) {
  if (!accept(parser, "not")) return comparison(parser);
  const inner = asCondition(negation(parser));
  return {kind: "truth", value: (row) => !inner(row)};
}

/** @param {Parser} parser */
function comparison(parser) {
  const literal = peek(parser) === "text";
  const sides = [sum(parser)];
  const signs = [];
  if (literal && (peek(parser) === "in" || (peek(parser) === "not" && peek(parser, 1) === "in"))) return containment(parser, sides[0]);
  while (Object.hasOwn(COMPARE, peek(parser))) {
    signs.push(parser.tokens[parser.at++].kind);
    sides.push(sum(parser));
  }
  if (!signs.length) return sides[0];
  const parts = signs.map((sign, index) => comparisonTest(sign, sides[index], sides[index + 1]));
  return {kind: "truth", value: (row) => parts.every((part) => part(row))};
}

/**
 * Whether a column's text contains this text; missing text contains none.
 * @param {Parser} parser
 * @param {Term} text
 */
function containment(parser, text) {
  const not = accept(parser, "not");
  accept(parser, "in");
  const column = sum(parser);
  if (column.kind !== "text" || !column.column) throw new Error("“in” needs a text column, as in 'L2' in name.");
  return {kind: "truth", value: (row) => (column.value(row) ?? "").includes(text.value(row)) !== not};
}

/** @param {string} sign @param {Term} left @param {Term} right */
function comparisonTest(sign, left, right) {
  if (left.kind !== right.kind)
    throw new Error(`A ${left.kind} cannot be compared with a ${right.kind}; a text column is compared with text in quotes.`);
  const test = COMPARE[sign];
  return (row) => {
    const [a, b] = [left.value(row), right.value(row)];
    if (a === null || b === null) return sign === "!=";
    return test(a, b);
  };
}

/** @param {Parser} parser */
function sum(parser) {
  return arithmetic(parser, {"+": (a, b) => a + b, "-": (a, b) => a - b}, term);
}

/** @param {Parser} parser */
function term(parser) {
  return arithmetic(parser, {"*": (a, b) => a * b, "/": (a, b) => a / b}, factor);
}

/** @param {Parser} parser @param {Record<string, (a: number, b: number) => number>} signs @param {(parser: Parser) => Term} part */
function arithmetic(parser, signs, part) {
  let left = part(parser);
  while (Object.hasOwn(signs, peek(parser))) {
    const act = signs[parser.tokens[parser.at++].kind];
    const [a, b] = [asNumber(left), asNumber(part(parser))];
    left = {kind: "number", value: (row) => applyOperator(act, a(row), b(row))};
  }
  return left;
}

/** @param {(a: number, b: number) => number} act @param {number | null} a @param {number | null} b */
function applyOperator(act, a, b) {
  if (a === null || b === null) return null;
  const found = act(a, b);
  return Number.isNaN(found) ? null : found;
}

/** @param {Parser} parser */
function factor(parser) {
  const token = parser.tokens[parser.at++];
  if (!token) throw new Error("The filter ends too early; write it like layer < 10.");
  if (token.kind === "-") {
    const inner = asNumber(factor(parser));
    return {kind: "number", value: (row) => applyOperator((a, b) => a * b, -1, inner(row))};
  }
  if (token.kind === "(") {
    const inner = disjunction(parser);
    if (!accept(parser, ")")) throw new Error("A parenthesis is not closed; add ).");
    return inner;
  }
  if (token.kind === "number" || token.kind === "text") return {kind: token.kind, value: () => token.value};
  if (token.kind === "name") return column(parser, token.value);
  throw new Error(`Unexpected ${token.kind} in the filter; write it like profile.induction > 0.3 and layer < 10.`);
}

/** @param {Parser} parser @param {string} name */
function column(parser, name) {
  const found = parser.columns.get(name);
  if (!found) throw new Error(`There is no column ${name}.${suggestions(name, [...parser.columns.keys()])}`);
  parser.names.add(name);
  return {kind: found.kind === "text" ? "text" : "number", value: (row) => found.values[row], column: true};
}

/** @param {string} name @param {string[]} known */
function suggestions(name, known) {
  const last = name.slice(name.lastIndexOf(".") + 1).toLowerCase();
  const close = known.filter((one) => one.toLowerCase().includes(last)).slice(0, 3);
  return close.length ? ` Did you mean ${close.join(", ")}?` : "";
}

/** @param {Term} part */
function asCondition(part) {
  if (part.kind === "truth") return part.value;
  throw new Error("and, or, not join conditions only; write it like layer < 10.");
}

/** @param {Term} part */
function asNumber(part) {
  if (part.kind === "number") return part.value;
  throw new Error("+ - * / work on numbers only.");
}

/** @param {Parser} parser @param {string} kind */
function accept(parser, kind) {
  if (peek(parser) !== kind) return false;
  parser.at++;
  return true;
}

/** @param {Parser} parser @param {number} [further] */
function peek(parser, further = 0) {
  return parser.tokens[parser.at + further]?.kind;
}

/** @param {string} text */
function syntaxError(text) {
  return new Error(
    `The filter “${text}” is not valid; write it like profile.induction > 0.3 and layer < 10 (== for equal, quotes around text, 'text' in column).`,
  );
}
