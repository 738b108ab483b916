import assert from "node:assert/strict";
import test from "node:test";
import {parseFilter} from "headwise/filter";

const columns = new Map([
  ["layer", {kind: "number", values: [0, 1, 2, 3]}],
  ["profile.induction", {kind: "number", values: [0.1, 0.5, null, 0.9]}],
  ["name", {kind: "text", values: ["L0H0", "L1H0", "L2H0", "L3H0"]}],
  ["relations.categories", {kind: "text", values: ["knowledge, language", "", null, "knowledge"]}],
]);
const rows = (text) => [0, 1, 2, 3].filter(parseFilter(text, columns).holds);

test("comparisons, chains and precedence are Python's", () => {
  assert.deepEqual(rows("layer < 2"), [0, 1]);
  assert.deepEqual(rows("0 < layer < 3"), [1, 2]);
  assert.deepEqual(rows("layer == 0 or layer == 1 and profile.induction > 0.6"), [0]);
  assert.deepEqual(rows("(layer == 0 or layer == 1) and profile.induction > 0.4"), [1]);
  assert.deepEqual(rows("not layer < 3"), [3]);
  assert.deepEqual(rows("layer * 2 - 1 >= 3"), [2, 3]);
  assert.deepEqual(rows("-layer > -2"), [0, 1]);
});

test("a missing value satisfies no comparison but !=", () => {
  assert.deepEqual(rows("profile.induction < 5"), [0, 1, 3]);
  assert.deepEqual(rows("profile.induction != 0.5"), [0, 2, 3]);
  assert.deepEqual(rows("profile.induction / layer > 0"), [0, 1, 3]);
});

test("text is compared and searched", () => {
  assert.deepEqual(rows("name == 'L1H0'"), [1]);
  assert.deepEqual(rows("'knowledge' in relations.categories"), [0, 3]);
  assert.deepEqual(rows('"knowledge" not in relations.categories'), [1, 2]);
});

test("the columns that are used are returned", () => {
  assert.deepEqual(parseFilter("layer < 2 and profile.induction > 0", columns).names, ["layer", "profile.induction"]);
});

for (const [text, message] of [
  ["profile.inductoin > 0", /no column profile\.inductoin/],
  ["induction > 0", /Did you mean profile\.induction/],
  ["layer <", /ends too early/],
  ["layer", /not a condition/],
  ["(layer < 2", /parenthesis/],
  ["layer < 'a'", /cannot be compared/],
  ["layer < 2 ; alert(1)", /is not valid/],
  ["name + 1 > 2", /numbers only/],
  ["x".repeat(2001), /the limit is 2000/],
]) {
  test(`refused: ${text.slice(0, 30)}`, () => assert.throws(() => parseFilter(text, columns), {message}));
}
