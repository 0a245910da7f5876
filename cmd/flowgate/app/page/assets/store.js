// Store holds the samples of the last 15 minutes, a second each, oldest first.

export const span = 15 * 60;

export class Store {
  samples = [];
  bounds = [];

  // add takes samples in any order; one of a known second takes its place.
  add(list) {
    const last = this.samples.at(-1);
    if (list.length === 1 && (!last || list[0].at > last.at)) {
      this.samples.push(list[0]);
    } else {
      const at = new Map(this.samples.map((s) => [s.at, s]));
      for (const s of list) at.set(s.at, s);
      this.samples = [...at.values()].sort((a, b) => a.at - b.at);
    }
    const first = this.samples.at(-1)?.at - span * 1000;
    let old = 0;
    while (old < this.samples.length && this.samples[old].at < first) old++;
    if (old) this.samples.splice(0, old);
  }

  // history fills what is missing.
  history(h) {
    this.bounds = h.latency_bounds ?? this.bounds;
    this.add(h.samples ?? []);
  }

  // rows are the samples with a hole where seconds are missing, so that no line is drawn
  // over what nobody saw.
  rows() {
    const rows = [];
    let before = 0;
    for (const s of this.samples) {
      if (before && s.at - before > 3500) rows.push({ at: before + 1000, hole: true });
      rows.push(s);
      before = s.at;
    }
    return rows;
  }

  // range is the charts' time, in seconds: what there is, two minutes at least.
  range() {
    const end = (this.samples.at(-1)?.at ?? Date.now()) / 1000;
    const start = (this.samples[0]?.at ?? Date.now()) / 1000;
    return [Math.max(end - span, Math.min(start, end - 120)), end];
  }

  transitions() {
    return this.samples.flatMap((s) => s.transitions ?? []);
  }

  // pressured are the stretches of time, in seconds, at that level.
  pressured() {
    const list = [];
    let open = null;
    for (const s of this.samples) {
      if (s.level === 'pressured') {
        if (open && s.at / 1000 - open[1] < 4) open[1] = s.at / 1000;
        else list.push((open = [s.at / 1000, s.at / 1000]));
      } else if (open) {
        open[1] = s.at / 1000;
        open = null;
      }
    }
    return list;
  }
}
