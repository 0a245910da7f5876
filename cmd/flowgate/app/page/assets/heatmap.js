// The heatmap: a column for some seconds, a row for a bucket of latency, darker for more.

import { seconds } from './format.js';

// place is where a latency lies on the axis of buckets.
function place(v, bounds) {
  let i = 0;
  while (i < bounds.length && bounds[i] < v) i++;
  const low = i === 0 ? 0 : bounds[i - 1];
  const high = bounds[i] ?? low * 2;
  return i + (high > low ? Math.min(1, (v - low) / (high - low)) : 0);
}

// heatRange leaves out the buckets that nothing fell in.
export function heatRange(panel) {
  const bounds = panel.charts.store.bounds;
  let low = Infinity, high = -1;
  for (const r of panel.rows) {
    r.latency?.counts?.forEach((n, i) => {
      if (n > 0) (low = Math.min(low, i)), (high = Math.max(high, i));
    });
  }
  const target = panel.rows.at(-1)?.target_latency;
  if (target > 0 && bounds.length) {
    const at = Math.floor(place(target, bounds));
    (low = Math.min(low, at)), (high = Math.max(high, at));
  }
  if (high < 0) return [0, Math.max(4, bounds.length)];
  return [Math.max(0, low - 1), Math.min(bounds.length + 1, Math.max(high + 2, low + 5))];
}

// heatLabels names the upper ends of the buckets.
export function heatLabels(panel) {
  const bounds = panel.charts.store.bounds;
  const [low, high] = heatRange(panel);
  const step = Math.ceil((high - low) / 6);
  const labels = [];
  for (let at = Math.ceil(low); at <= high; at += step) {
    if (at === 0) labels.push({ at, text: '0' });
    else if (at <= bounds.length) labels.push({ at, text: seconds(bounds[at - 1]) });
  }
  return labels;
}

// columnsOf joins samples until a column is wide enough to be seen. A sample stands for the
// time since the one before it, which on a busy machine is not quite a second.
function columnsOf(rows, width) {
  const columns = [];
  let before = 0, column = null;
  for (const r of rows) {
    const end = r.at / 1000;
    const start = end - before < 3 ? before : end - 1;
    before = end;
    if (!r.latency?.counts) continue;
    const key = width === 1 ? end : Math.floor(end / width);
    if (column?.key !== key) columns.push((column = { key, start, counts: [] }));
    column.end = end;
    r.latency.counts.forEach((n, i) => (column.counts[i] = (column.counts[i] ?? 0) + n));
  }
  return columns;
}

export function heat(u, panel, color) {
  const { ctx, bbox } = u;
  const [from, to] = panel.range;
  const bounds = panel.charts.store.bounds;
  const columns = columnsOf(panel.rows, Math.max(1, Math.ceil(((to - from) * 4) / Math.max(1, u.width - 60))));
  const most = Math.max(1, ...columns.map((c) => Math.max(...c.counts)));
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = color('heat');
  for (const { start, end, counts } of columns) {
    const left = Math.round(u.valToPos(start, 'x', true)), right = Math.round(u.valToPos(end, 'x', true));
    counts.forEach((n, i) => {
      if (!n) return;
      const top = Math.round(u.valToPos(i + 1, 'y', true)), bottom = Math.round(u.valToPos(i, 'y', true));
      ctx.globalAlpha = 0.12 + 0.88 * Math.sqrt(n / most);
      ctx.fillRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top));
    });
  }
  ctx.globalAlpha = 1;
  const target = panel.rows.at(-1)?.target_latency;
  if (target > 0 && bounds.length) {
    const y = Math.round(u.valToPos(place(target, bounds), 'y', true)) + 0.5;
    ctx.strokeStyle = color('high');
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.setLineDash([6 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
  }
  ctx.restore();
}
