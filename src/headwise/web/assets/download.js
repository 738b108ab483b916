// Files made in the browser from the data on the page: a figure as SVG, CSV or JSON, a table as CSV or JSON.
//
// A CSV of a figure is one row a cell (or point, or row of intervals): the panel, where, the value, and every extra. What was
// not measured is an empty field. Text that a spreadsheet would read as a formula is kept text by an apostrophe.

/** Hand a file to the reader. */
export function save(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], {type}));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Rows of fields as CSV (RFC 4180). */
export function csv(rows) {
  return rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

/** Whether a figure has numbers for a CSV; pictures of maps have none that a table could hold. */
export function hasRows(payload) {
  return payload.panels.some((panel) => Object.hasOwn(ROWS, panel.type));
}

/** The numbers of a figure, one row a cell, under one header. */
export function figureRows(payload) {
  const records = payload.panels.flatMap((panel) => (ROWS[panel.type] ?? (() => []))(panel));
  const names = [...new Set(records.flatMap(Object.keys))];
  return [names, ...records.map((record) => names.map((name) => record[name] ?? null))];
}

const ROWS = {
  Heatmap: (panel) => cells(panel, (value) => value),
  CategoryMap: (panel) => cells(panel, (value) => (value < 0 ? null : panel.categories[value].label)),
  Curves: (panel) => panel.curves.flatMap((curve) => curve.x.map((x, place) => ({
    panel: panel.title, curve: curve.label, x, y: curve.y[place], low: curve.low?.[place], high: curve.high?.[place],
  }))),
  Scatter: (panel) => panel.x_values.map((x, place) => ({
    panel: panel.title, name: panel.names[place], group: panel.categories[panel.groups[place]]?.label, x, y: panel.y_values[place],
  })),
  Intervals: (panel) => panel.values.map((value, place) => ({
    panel: panel.title, name: panel.y.labels[place], value, low: panel.low[place], high: panel.high[place],
  })),
};

function cells(panel, told) {
  const [row, column] = [panel.y.name || "row", panel.x.name || "column"];
  return panel.values.flatMap((values, y) => values.map((value, x) => ({
    panel: panel.title, [row]: panel.y.labels[y], [column]: panel.x.labels[x], value: told(value),
    ...Object.fromEntries(Object.entries(panel.extras).filter(([name]) => name !== "value").map(([name, extra]) => [name, extra[y][x]])),
  })));
}

function field(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
