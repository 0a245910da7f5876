// Charts draws the last 15 minutes, one panel a question.

import uPlot from './uplot/uPlot.esm.js';
import { put } from './dom.js';
import { count, rate, seconds, short, words, none } from './format.js';
import { heat, heatLabels, heatRange } from './heatmap.js';
import { reasons, tenants } from './refusals.js';

const field = (name) => (s) => s[name];
const decades = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => 10 ** (from + i)).flatMap((n) => [n, 2 * n, 5 * n]);
const messages = { value: count, axis: short, steps: decades(0, 12) };
const aSecond = { value: rate, axis: short };
const time = {
  value: seconds, axis: (v) => (v === 0 ? '0' : seconds(v).replace(/ (min|h) 00 (s|min)$/, ' $1').replace(/^(\d+)\.0 s$/, '$1 s')),
  // Steps that a clock has.
  steps: decades(-6, -1).concat(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 43200, 86400, 864000),
};

// panels are what is drawn: a line or an area for each of series; stack lays the areas
// that are no line on each other.
const panels = [
  {
    id: 'depth', title: 'Depth', unit: 'messages', ...messages, stack: true, wide: true, bands: true,
    series: [
      { label: 'waiting', of: field('waiting'), color: 1 }, { label: 'in flight', of: field('in_flight'), color: 2 },
      { label: 'delayed', of: field('delayed'), color: 3 },
      { label: 'LOW', of: field('low'), color: 'low', line: true, dash: [2, 4] }, { label: 'HIGH', of: field('high'), color: 'high', line: true, dash: [6, 3] },
      { label: 'MAX', of: field('max'), color: 'max', line: true },
    ],
  },
  { id: 'age', title: 'Oldest message', unit: 'age', ...time, series: [{ label: 'age', of: field('oldest_age_seconds'), color: 1 }] },
  {
    id: 'flow', title: 'In and out', unit: 'messages a second', ...aSecond,
    series: [
      { label: 'admitted', of: field('admitted'), color: 1 }, { label: 'refused', of: field('refused'), color: 4, dash: [6, 3] },
      { label: 'delivered', of: field('delivered'), color: 2 },
    ],
  },
  { id: 'refusals', title: 'Refusals by reason', unit: 'messages a second', ...aSecond, stack: true, parts: reasons, series: [] },
  { id: 'refused-tenants', title: 'Refusals by tenant', unit: 'messages a second', ...aSecond, stack: true, parts: tenants, series: [] },
  {
    id: 'shaper', title: 'Shaper rate', unit: 'messages a second', ...aSecond,
    series: [
      { label: 'configured', of: field('rate_configured'), color: 'muted', dash: [2, 4], step: true },
      { label: 'effective', of: field('rate_effective'), color: 3, step: true },
      { label: 'real', of: (s) => (s.delivered ?? 0) + (s.retried ?? 0) + (s.dead_lettered ?? 0), color: 2 },
    ],
  },
  { id: 'lateness', title: 'Shaper lateness', unit: 'p99', ...time, series: [{ label: 'p99', of: field('lateness_p99_seconds'), color: 5, points: true }] },
  {
    id: 'in-flight', title: 'In flight', unit: 'messages, until their end is confirmed', ...messages,
    series: [{ label: 'in flight', of: field('in_flight'), color: 2 }, { label: 'cap', of: field('cap'), color: 'high', dash: [6, 3], step: true, line: true }],
  },
  { id: 'heat', title: 'Consumer latency', unit: 'deliveries by how long they took', heat: true, wide: true, ...time, series: [] },
  {
    id: 'latency', title: 'Consumer latency', unit: 'percentiles', ...time,
    series: [
      { label: 'p50', of: field('latency_p50'), color: 2, points: true }, { label: 'p95', of: field('latency_p95'), color: 3, points: true },
      { label: 'p99', of: field('latency_p99'), color: 5, points: true }, { label: 'target', of: field('target_latency'), color: 'high', dash: [6, 3] },
    ],
  },
  {
    id: 'trouble', title: 'Retries and dead letters', unit: 'messages a second', ...aSecond, full: true,
    series: [{ label: 'retried', of: field('retried'), color: 3 }, { label: 'dead letters', of: field('dead_lettered'), color: 4, dash: [6, 3] }],
  },
];

const height = 140;

export class Charts {
  constructor(grid, store) {
    this.store = store;
    this.panels = panels.map((spec) => new Panel(spec, grid, this));
    this.style();
    const resized = new ResizeObserver((entries) => {
      for (const e of entries) this.panels.find((p) => p.plot === e.target)?.size(e.contentRect.width);
    });
    for (const p of this.panels) resized.observe(p.plot);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.style();
      for (const p of this.panels) p.drop();
      this.draw();
    });
  }

  // style reads the colors: a canvas knows no variables.
  style() {
    const css = getComputedStyle(document.documentElement);
    this.color = (name) => css.getPropertyValue(`--${typeof name === 'number' ? 'series-' + name : name}`).trim();
  }

  // draw brings every panel up to the store, once a frame at most.
  draw() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      const rows = this.store.rows();
      const range = this.store.range();
      this.transitions = this.store.transitions();
      this.pressured = this.store.pressured();
      for (const p of this.panels) p.draw(rows, range);
    });
  }
}

class Panel {
  constructor(spec, grid, charts) {
    Object.assign(this, { spec, charts, series: spec.series, rows: [], at: null });
    this.figure = document.createElement('figure');
    this.figure.id = 'chart-' + spec.id;
    if (spec.wide || spec.full) this.figure.className = spec.wide ? 'wide' : 'full';
    const caption = document.createElement('figcaption');
    const title = document.createElement('h3');
    title.textContent = spec.title;
    const unit = document.createElement('span');
    unit.className = 'unit';
    unit.textContent = spec.unit;
    caption.append(title, unit);
    this.legend = document.createElement('ul');
    this.legend.className = 'legend';
    this.plot = document.createElement('div');
    this.plot.className = 'plot';
    this.plot.setAttribute('role', 'img');
    this.figure.append(caption, this.legend, this.plot);
    grid.append(this.figure);
  }

  size(width) {
    if (this.width === width) return;
    this.width = width;
    if (this.u) this.u.setSize({ width, height });
    else this.charts.draw();
  }

  drop() {
    this.u?.destroy();
    this.u = null;
  }

  draw(rows, range) {
    this.rows = rows;
    this.range = range;
    if (!this.width) return;
    if (this.spec.parts) this.split(rows);
    const data = this.data(rows);
    if (!this.u) {
      this.u = new uPlot(this.options(), data, this.plot);
      this.captions();
    } else {
      this.u.setData(data, false);
      this.u.batch(() => {
        this.u.setScale('x', { min: range[0], max: range[1] });
      });
    }
    this.values();
  }

  // split has a series for each part that there is.
  split(rows) {
    const series = this.spec.parts(rows, this.series);
    if (series.length === this.series.length && series.every((s, i) => s.key === this.series[i].key)) return;
    this.series = series;
    this.drop();
  }

  data(rows) {
    const x = rows.map((r) => r.at / 1000);
    const raw = this.series.map((s) => rows.map((r) => (r.hole ? null : s.of(r) ?? null)));
    if (this.spec.heat) return [x, rows.map((r) => (r.hole ? null : 0))];
    if (this.spec.stack) {
      const sum = new Array(x.length).fill(0);
      this.series.forEach((s, i) => {
        if (!s.line) raw[i] = raw[i].map((v, j) => (v === null ? null : (sum[j] += v)));
      });
    }
    return [x, ...raw];
  }

  options() {
    const { spec, charts } = this;
    const { color } = charts;
    const axis = { stroke: color('muted'), font: '11px system-ui, sans-serif', ticks: { show: false }, grid: { stroke: color('grid'), width: 1 } };
    const stacked = this.series.filter((s) => !s.line).length;
    return {
      width: this.width, height, legend: { show: false }, padding: [14, 6, 0, 0],
      cursor: { sync: { key: 'flowgate' }, drag: { x: false, y: false }, points: { show: !spec.heat, size: 5 }, y: false },
      scales: {
        x: { time: true, range: () => this.range },
        y: { range: spec.heat ? () => heatRange(this) : (u, min, max) => this.top(max) },
      },
      axes: [
        { ...axis, size: 22, space: 70, values: (u, splits, a, b, step) => splits.map((v) => (this.atEnd(v) ? '' : hour(v, step))) },
        { ...axis, size: 56, space: spec.heat ? 18 : 28, splits: spec.heat ? () => heatLabels(this).map((l) => l.at) : undefined,
          incrs: spec.steps, values: (u, splits) => (spec.heat ? heatLabels(this).map((l) => l.text) : splits.map((v) => spec.axis(v))) },
      ],
      series: [{}, ...(spec.heat ? [{ stroke: null, paths: () => null, points: { show: false } }] : this.series.map((s) => this.line(s)))],
      bands: spec.stack ? Array.from({ length: Math.max(0, stacked - 1) }, (_, i) => ({ series: [i + 2, i + 1] })) : [],
      hooks: {
        drawClear: [(u) => this.behind(u)],
        draw: [(u) => (spec.heat && heat(u, this, color), this.before(u))],
        setCursor: [(u) => ((this.at = u.cursor.left >= 0 ? u.cursor.idx : null), this.values())],
      },
    };
  }

  // atEnd tells where a label would be cut off.
  atEnd(x) {
    const [from, to] = this.range;
    return ((to - x) / (to - from)) * (this.width - 62) < 22;
  }

  line(s) {
    const stroke = this.charts.color(s.color);
    const area = this.spec.stack && !s.line;
    return {
      stroke, width: area ? 0 : 1.5, dash: s.dash, fill: area ? stroke + 'b0' : undefined,
      paths: s.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
      points: { show: s.points ? (u, i, from, to) => to - from < 240 : false, size: 3, stroke, fill: stroke },
    };
  }

  // top gives the scale its end: with depth in view, the watermark that comes next.
  top(max) {
    const last = this.rows.at(-1);
    if (this.spec.bands && last && !last.hole) {
      const deepest = this.rows.reduce((m, r) => Math.max(m, r.depth ?? 0), 0);
      return [0, deepest > 0.9 * last.high ? Math.max(last.max * 1.05, deepest * 1.02) : last.high * 1.15];
    }
    return [0, max > 0 ? max * 1.12 : this.spec.value === seconds ? 0.1 : 1];
  }

  // behind draws what lies under the lines.
  behind(u) {
    const { ctx, bbox } = u;
    const { color } = this.charts;
    const box = (x1, x2, y1, y2, fill) => {
      const left = Math.max(bbox.left, x1), right = Math.min(bbox.left + bbox.width, x2);
      const top = Math.max(bbox.top, y1), bottom = Math.min(bbox.top + bbox.height, y2);
      if (right <= left || bottom <= top) return;
      ctx.fillStyle = fill;
      ctx.fillRect(left, top, right - left, bottom - top);
    };
    ctx.save();
    const last = this.rows.at(-1);
    if (this.spec.bands && last?.high) {
      const y = (v) => u.valToPos(v, 'y', true);
      box(bbox.left, Infinity, y(last.high), y(last.low), color('zone-warn'));
      box(bbox.left, Infinity, y(last.max), y(last.high), color('zone-bad'));
    } else {
      for (const [from, to] of this.charts.pressured) {
        box(u.valToPos(from, 'x', true), u.valToPos(to, 'x', true), bbox.top, Infinity, color('shade'));
      }
    }
    ctx.restore();
  }

  // before marks the transitions: a shape for where to, and the signal's name.
  before(u) {
    const { ctx, bbox } = u;
    const { color } = this.charts;
    const k = uPlot.pxRatio;
    let free = -Infinity;
    ctx.save();
    ctx.font = `${10 * k}px system-ui, sans-serif`;
    ctx.textBaseline = 'middle';
    ctx.textAlign = 'left';
    for (const t of this.charts.transitions) {
      const x = Math.round(u.valToPos(t.at / 1000, 'x', true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      const up = t.to === 'pressured';
      ctx.strokeStyle = ctx.fillStyle = color(up ? 'bad' : 'ok');
      ctx.lineWidth = k;
      ctx.setLineDash(up ? [] : [2 * k, 3 * k]);
      ctx.beginPath();
      ctx.moveTo(x + 0.5, bbox.top);
      ctx.lineTo(x + 0.5, bbox.top + bbox.height);
      ctx.stroke();
      ctx.setLineDash([]);
      const y = bbox.top - 7 * k;
      ctx.beginPath();
      if (up) ctx.moveTo(x - 4 * k, y + 3.5 * k), ctx.lineTo(x + 4 * k, y + 3.5 * k), ctx.lineTo(x, y - 3.5 * k);
      else ctx.moveTo(x - 4 * k, y - 3.5 * k), ctx.lineTo(x + 4 * k, y - 3.5 * k), ctx.lineTo(x, y + 3.5 * k);
      ctx.closePath();
      if (up) ctx.fill();
      else ctx.stroke();
      const text = words(t.signal);
      const width = ctx.measureText(text).width;
      const right = x + 7 * k + width < bbox.left + bbox.width;
      const from = right ? x + 7 * k : x - 7 * k - width;
      if (from > free) {
        ctx.fillText(text, from, y);
        free = from + width + 4 * k;
      }
    }
    ctx.restore();
  }

  captions() {
    this.legend.replaceChildren(...this.series.map((s) => {
      const item = document.createElement('li');
      const mark = document.createElement('i');
      mark.style.color = this.charts.color(s.color);
      mark.className = this.spec.stack && !s.line ? 'area' : s.dash ? 'dashed' : 'line';
      const label = document.createElement('span');
      label.textContent = s.label;
      const value = document.createElement('b');
      item.append(mark, label, value);
      return item;
    }));
    if (this.spec.heat) {
      const item = document.createElement('li');
      const mark = document.createElement('i');
      mark.className = 'ramp';
      const label = document.createElement('span');
      label.textContent = 'few to many';
      item.append(mark, label, document.createElement('b'));
      this.legend.append(item);
    }
  }

  // values shows the numbers under the cursor, else the newest ones.
  values() {
    const row = (this.at !== null && this.rows[this.at]) || this.rows.at(-1);
    if (!row) return;
    const value = (s) => (row.hole ? none : this.spec.value(s.of(row)));
    this.series.forEach((s, i) => this.legend.children[i] && put(this.legend.children[i].lastChild, value(s)));
    if (this.spec.parts && this.series.length === 0) {
      if (!this.legend.firstChild) this.legend.append(document.createElement('li'));
      put(this.legend.firstChild, 'none refused');
    }
    if (this.at === null) {
      const text = this.series.map((s) => `${s.label} ${value(s)}`).join(', ');
      this.plot.setAttribute('aria-label', `${this.spec.title}, ${this.spec.unit}` + (text && `. Now: ${text}`));
    }
  }
}

function hour(at, step) {
  const d = new Date(at * 1000);
  const two = (n) => String(n).padStart(2, '0');
  return two(d.getHours()) + ':' + two(d.getMinutes()) + (step < 60 ? ':' + two(d.getSeconds()) : '');
}
