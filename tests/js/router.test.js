import assert from "node:assert/strict";
import test from "node:test";
import {link, route} from "headwise/router";

test("a link is escaped, and empty parameters are omitted", () => {
  assert.equal(link("study/profile", {figure: "relative", sort: ""}), "#/study/profile?figure=relative");
  assert.equal(link("compare/a b?"), "#/compare/a%20b%3F");
  assert.equal(link(), "#/");
});

test("a link leads back to its route", () => {
  globalThis.location.hash = link("heads", {where: "layer < 10 and name != 'L0H0'"});
  const {page, rest, query} = route();
  assert.deepEqual([page, rest, query.get("where")], ["heads", [], "layer < 10 and name != 'L0H0'"]);
  globalThis.location.hash = "#/head/%E0%A4%A";
  assert.deepEqual(route().rest, ["%E0%A4%A"]); // not decodable: left as it is
});
