// Types of the front end's data, for `tsc --checkJs`: what Python sends as JSON, and what modules exchange.

type Numbers = (number | null)[];

interface Scale {
  label: string;
  low: number;
  high: number;
  log?: boolean;
  stops: string[];
  ticks: [number, string][];
  marks: {value: number; label: string}[];
}

interface Axis {
  type?: string;
  name: string;
  labels: string[];
  names?: string[]; // of the numbers that stand for them, in a narrow window
  low: number | null;
  high: number | null;
  log: boolean;
}

interface Category {
  key?: string;
  label: string;
  colour: string;
  sign?: string;
}

interface Guide {
  axis: string;
  at: number;
  text: string;
}

interface PanelBase {
  type: string;
  key: string;
  title: string;
  subtitle: string;
  scale?: string;
}

interface CellPanel extends PanelBase {
  x: Axis;
  y: Axis;
  shape?: string;
  marks: {row: number; column: number; sign: string; text: string}[];
  frames: {first_row: number; last_row: number; first_column: number; last_column: number; text: string}[];
  extras: Record<string, Numbers[]>;
  missing: string;
}

interface HeatmapPanel extends CellPanel {
  values: Numbers[];
  scale: string;
}

interface CategoryMapPanel extends CellPanel {
  values: number[][];
  categories: Category[];
}

type CellMap = CellPanel & {values: Numbers[]};

interface Curve {
  x: number[];
  y: Numbers;
  low: Numbers | null;
  high: Numbers | null;
  label: string;
  colour: string;
  style: string;
}

interface CurvesPanel extends PanelBase {
  x: Axis;
  y: Axis;
  curves: Curve[];
  guides: Guide[];
}

interface ScatterPanel extends PanelBase {
  x: Axis;
  y: Axis;
  x_values: Numbers;
  y_values: Numbers;
  names: string[];
  groups: number[];
  categories: Category[];
  shown: number[];
  guides: Guide[];
}

interface IntervalsPanel extends PanelBase {
  x: Axis;
  y: Axis;
  values: Numbers;
  low: Numbers;
  high: Numbers;
  groups: number[];
  categories: Category[];
  guides: Guide[];
}

interface TilesPanel extends PanelBase {
  names: string[];
  columns: number;
  levels: PackedBytes;
  row_name: string;
  row_labels: string[];
  column_name: string;
  column_labels: string[];
  missing: string;
  scale: string;
}

interface LegendPanel extends PanelBase {
  entries: Category[];
}

type Panel = HeatmapPanel | CategoryMapPanel | CurvesPanel | ScatterPanel | IntervalsPanel | TilesPanel | LegendPanel;

interface PackedBytes {
  shape: number[];
  deflated: string;
}

/** What Python's `figures.to_payload` writes. */
interface Payload {
  format?: string;
  type?: string;
  title: string;
  subtitle: string;
  panels: any[]; // Panel, told apart by `type`
  columns: number;
  scales: Record<string, Scale>;
  notes: string[];
  alt: string;
  provenance: string;
}

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** A panel with its layout. */
interface Slot<P = any> {
  panel: P;
  scale: Scale;
  box: Box;
  bar: Box | null;
  width: number;
  height: number;
  labelledX: boolean;
  labelledY: boolean;
  font: string;
  plot?: Plot<P>;
  zoom?: number;
  scroll?: Point;
  pooled?: Map<number, TilePixels>;
  pooledSide?: number;
  tooltipContent?: (slot: Slot, item: any) => TooltipContent;
}

/** A panel with numeric axes, projected to pixels. */
interface Plot<P = any> {
  panel: P;
  box: Box;
  font: string;
  xRange: number[];
  yRange: number[];
  x: (value: number) => number;
  y: (value: number) => number;
  xTicks: [number, string][];
  yTicks: [number, string][];
  bare?: boolean;
}

interface Point {
  x: number;
  y: number;
}

interface Cell {
  row: number;
  column: number;
}

interface CurvePoint {
  curve: number;
  index: number;
}

interface TileItem {
  tile: number;
  inside?: number[];
}

interface TilePixels {
  rows: number;
  columns: number;
  bytes: Uint8Array;
}

interface TooltipContent {
  name: string;
  head?: string | null;
  value?: number | null;
  caption: string;
  rows: string[][];
}

/** The colours of the page, and its font. */
interface Theme {
  dark: boolean;
  font: string;
  ink: string;
  inkSoft: string;
  inkFaint: string;
  paper: string;
  panel: string;
  line: string;
  accent: string;
  accentInk: string;
  focus: string;
  trace: string;
}

interface LineStyle {
  colour: string;
  width?: number;
  dash?: number[];
  alpha?: number;
}

interface TextStyle {
  size: number;
  weight?: number;
  colour: string;
  align?: "left" | "center" | "right";
  baseline?: "top" | "middle" | "bottom" | "alphabetic";
  rotate?: number;
  background?: string;
}

type PathPoint = number[] | null;

/** The methods of `canvas_pen.js` and `svg_export.js`. */
interface Pen {
  hasTitles: boolean;
  rect(x: number, y: number, width: number, height: number, fill: string): void;
  gradient(x: number, y: number, width: number, height: number, colours: string[]): void;
  texture(x: number, y: number, width: number, height: number, theme: Theme): void;
  box(x: number, y: number, width: number, height: number, line: LineStyle): void;
  path(points: PathPoint[], line: LineStyle): void;
  area(points: PathPoint[], fill: string, alpha?: number): void;
  circle(x: number, y: number, radius: number, style: {fill?: string; line?: LineStyle; alpha?: number}): void;
  text(x: number, y: number, words: string, style: TextStyle): void;
  image(x: number, y: number, width: number, height: number, make: (ratio: number) => HTMLCanvasElement): void;
  clip(box: Box, draw: () => void): void;
  withTitle(words: string | (() => string) | null, draw: () => void): void;
}

/** The functions of a panel type; see `panel_types.js`. */
interface PanelType {
  minWidth(panel: any): number;
  maxWidth(panel: any, tallest: number, font: string): number;
  labelledWidth?(panel: any): number;
  snappedWidth?(panel: any, width: number): number;
  heightOf(panel: any, width: number, tallest: number, font: string): number;
  leftMargin(panel: any, labelled: boolean, font: string): number;
  rightMargin(panel: any, scale: Scale, hasBar: boolean, font: string): number;
  bottomMargin(panel: any, labelled: boolean, width: number, font: string): number;
  paint(pen: Pen, slot: Slot, theme: Theme): void;
  prepare?(panel: any): Promise<void>;
  startZoom?(panel: any, width: number): number;
  contentSize?(slot: Slot): {width: number; height: number};
  scrollTo?(slot: Slot, item: any): Point;
  itemAt(slot: Slot, x: number, y: number): any;
  firstItem(slot: Slot): any;
  moveItem(slot: Slot, item: any, across: number, down: number): any;
  tooltipAnchor(slot: Slot, item: any): Point;
  hint?(slot: Slot, x: number, y: number): string;
  itemKey(slot: Slot, item: any): string | null;
  findItem(slot: Slot, key: string): any;
  outline(pen: Pen, slot: Slot, item: any, theme: Theme, strong: boolean): void;
  tooltipContent(slot: Slot, item: any): TooltipContent;
}

interface FigureHandle {
  point(head: string | null): void;
  redraw(): void;
  remove(): void;
}

interface FigureOptions {
  onhead: ((head: string) => void) | null;
  onpick: ((picked: object) => void) | null;
  describe: string;
  heading: boolean;
  notes: boolean;
}

type Query = Record<string, string | undefined> | null;

interface Route {
  page: string;
  rest: string[];
  query: URLSearchParams;
}

interface StudyEntry {
  key: string;
  title: string;
  question: string;
}

interface Fact {
  label: string;
  value: string;
}

interface AtlasInfo {
  name: string;
  quick: boolean;
  model: {id: string; short: string; layers?: number; heads?: number; facts: Fact[]};
  studies: StudyEntry[];
  missing: {key: string; question: string; command: string}[];
  data: {name: string | null; size: number | null; digest: string | null; counted: string; studies: string[]}[];
  versions: Fact[];
  measured: {first: string; last: string};
}

interface PageContext {
  atlas: AtlasInfo;
  title: string;
}

/** What a page function returns. */
interface PageHandle {
  keys?: Record<string, (event: KeyboardEvent) => void>;
  leave?: () => void;
  shown?: () => void;
}

interface VariantEntry {
  key: string;
  label: string;
  payload?: Payload;
  path?: string;
}

interface TableColumn {
  name: string;
  study: string;
  title: string;
  kind: "number" | "text" | "test";
  default: boolean;
  values: any[];
}

interface HeadTableData {
  names: string[];
  layer: number[];
  head: number[];
  columns: TableColumn[];
}

interface TableState {
  where: string;
  sort: string;
  up: boolean;
  chosen: string[];
}

/** One number of a head among all heads. */
interface HeadValue {
  key: string;
  label: string;
  definition: string;
  value: number;
  low: number | null;
  high: number | null;
  baseline: number | null;
  baseline_name: string;
  percentile: number | null;
  p: number | null;
  q: number | null;
}

/** `analysis.HeadReport` as JSON. */
interface HeadReport {
  name: string;
  layer: number;
  head: number;
  layers: number;
  heads: number;
  summary: string;
  titles: Record<string, string>;
  values: Record<string, HeadValue[]>;
  [section: string]: any;
}

// ---- the live page ----

interface LiveInfo {
  state: "off" | "loading" | "ready" | "failed";
  message: string;
  model: string;
  layers: number;
  heads: number;
  device: string;
  modes: string[];
  tokens: number;
  answer_tokens: number;
  draws: number;
  scoring_unavailable: string | null;
  scores: {name: string; note: string; alarm: string}[]; // of an answer that is being generated, the default first
  scores_unavailable: string | null;
}

type Factors = Record<string, number>;

interface NextTokens {
  top: {text: string; id: number; p: number}[];
  rest: number;
  entropy: number;
}

/** One score of an answer up to a token. */
interface ScoreSoFar {
  score: number | null;
  probability: number | null;
  heads: Record<string, number | null>;
  unusual: string[];
  alarm: boolean;
}

interface GeneratedToken {
  text: string;
  id: number;
  logprob: number;
  distribution: NextTokens;
  scores: Record<string, ScoreSoFar>;
}

interface RunResult {
  id: string;
  mode: string;
  text: string;
  changes: Factors;
  layers: number;
  heads: number;
  tokens: {text: string; special: boolean; generated: boolean}[];
  prompt_tokens: number;
  answer: string;
  finished: boolean;
  logprob: number;
  next: NextTokens;
  steps: GeneratedToken[];
  scores: Record<string, ScoreSoFar>;
  figures: {key: string; label: string; payload: Payload}[];
  numbers: Record<string, Numbers[]>;
  seconds: number;
}

interface Continuation {
  finished: boolean;
  next: NextTokens;
  steps: GeneratedToken[];
  scores: Record<string, ScoreSoFar>;
}

interface Effect {
  kl: number;
  answer_kl: number | null;
  logprob_change: number;
  top_changed: boolean;
}

type ControlEffect = Effect & {heads: Factors};

interface StoredEffect {
  head: string;
  effect: number | null;
  effect_low: number | null;
  effect_high: number | null;
  q: number | null;
  exact: boolean;
  rank: number | null;
  heads: number;
  excess: number | null;
  excess_low: number | null;
  excess_high: number | null;
  answer: number | null;
  answer_low: number | null;
  answer_high: number | null;
}

interface WhatIfResult {
  before: Continuation;
  after: Continuation;
  effect: Effect;
  controls: ControlEffect[];
  controls_at_least: number;
  stored: StoredEffect[];
  logprob: number | null;
  logprob_after: number | null;
  changes: Factors;
  seconds: number;
}

interface AnswerScore {
  probability: number | null;
  block_contributions: Record<string, number>;
  out_of_range: string[];
  figure: Payload | null;
}

interface JobEvent extends Partial<GeneratedToken> {
  event: string;
  part?: string;
  index?: number;
  limit?: number;
  finished?: boolean;
  stage?: string;
  share?: number;
  ahead?: number;
  result?: any;
  error?: string;
}

interface Job {
  result: Promise<any>;
  cancel(): void;
}

/** An answer so far; times in milliseconds. */
interface AnswerPart {
  steps: GeneratedToken[];
  limit: number;
  done: boolean;
  finished: boolean; // by itself, not at the limit
  scores: Record<string, ScoreSoFar>; // of the whole answer
  first: number;
  latest: number;
}

/** What is known of a job while it runs. */
interface JobState {
  event: string;
  ahead: number;
  stage: string;
  share: number;
  started: number;
  stageStarted: number;
  parts: Record<string, AnswerPart>;
}

interface ProgressParts {
  go: HTMLButtonElement;
  stop: HTMLButtonElement;
  state: HTMLElement;
  time: HTMLElement;
  bar: HTMLProgressElement;
}

type Span = number[]; // [first, end)

interface View {
  rows: Span;
  columns: Span;
}

/** One window of a head's map. */
interface MapWindow extends View {
  row_starts: number[];
  column_starts: number[];
  values: Float32Array;
  high: number;
  wide: number;
}
