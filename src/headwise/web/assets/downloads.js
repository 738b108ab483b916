// Files made in the browser: a figure's or a table's numbers as CSV or JSON.
//
// A figure's CSV has one row per cell (or point, or interval): the panel, the position, the value, and all extras. Missing values are
// empty. Text that a spreadsheet would evaluate as a formula is escaped with an apostrophe.

/**
 * Save a file.
 * @param {string} name
 * @param {string} type
 * @param {string} content
 */
export function saveFile(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], {type}));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/**
 * Rows of fields as CSV (RFC 4180).
 * @param {any[][]} rows
 */
export function toCsv(rows) {
  return rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

/**
 * Whether a figure has numbers for a CSV; tiles have none.
 * @param {Payload} payload
 */
export function hasRows(payload) {
  return payload.panels.some((panel) => Object.hasOwn(PANEL_ROWS, panel.type));
}

/**
 * The numbers of a figure, one row per cell, under one header.
 * @param {Payload} payload
 */
export function figureRows(payload) {
  const records = payload.panels.flatMap((panel) => (PANEL_ROWS[panel.type] ?? (() => []))(panel));
  const names = [...new Set(records.flatMap(Object.keys))];
  return [names, ...records.map((record) => names.map((name) => record[name] ?? null))];
}

/** @type {Record<string, (panel: any) => Record<string, any>[]>} */
const PANEL_ROWS = {
  Heatmap: (panel) => cellRows(panel, (value) => value),
  CategoryMap: (panel) => cellRows(panel, (value) => (value < 0 ? null : panel.categories[value].label)),
  Curves: (panel) =>
    panel.curves.flatMap((curve) =>
      curve.x.map((x, index) => ({
        panel: panel.title,
        curve: curve.label,
        x,
        y: curve.y[index],
        low: curve.low?.[index],
        high: curve.high?.[index],
      })),
    ),
  Scatter: (panel) =>
    panel.x_values.map((x, index) => ({
      panel: panel.title,
      name: panel.names[index],
      group: panel.categories[panel.groups[index]]?.label,
      x,
      y: panel.y_values[index],
    })),
  Intervals: (panel) =>
    panel.values.map((value, index) => ({
      panel: panel.title,
      name: panel.y.labels[index],
      value,
      low: panel.low[index],
      high: panel.high[index],
    })),
};

/** @param {any} panel @param {(value: any) => any} format */
function cellRows(panel, format) {
  const [row, column] = [panel.y.name || "row", panel.x.name || "column"];
  return panel.values.flatMap((values, y) =>
    values.map((value, x) => ({
      panel: panel.title,
      [row]: panel.y.labels[y],
      [column]: panel.x.labels[x],
      value: format(value),
      ...Object.fromEntries(
        Object.entries(panel.extras)
          .filter(([name]) => name !== "value")
          .map(([name, extra]) => [name, extra[y][x]]),
      ),
    })),
  );
}

/** @param {any} value */
function field(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
