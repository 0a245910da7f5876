// Live follows the gateway: its state and a sample each second as server-sent events,
// and what was missed from its history. A hidden page follows nothing.

import { get } from './api.js';

// silence is how long nothing may come before the connection counts as lost.
const silence = 2500;

// patience is how long an answer may take.
const patience = 4000;

export class Live {
  // on has status(s), samples(list, history) and link(state): live, standby or lost.
  constructor(on) {
    this.on = on;
    this.heard = 0;
    this.wait = 500;
    document.addEventListener('visibilitychange', () => (document.hidden ? this.stop() : this.start()));
    addEventListener('pagehide', () => this.stop());
    addEventListener('pageshow', (e) => e.persisted && this.start());
  }

  start() {
    if (this.source || this.retry || document.hidden) return;
    this.open();
    this.watch = setInterval(() => this.look(), 1000);
  }

  stop() {
    this.close();
    clearInterval(this.watch);
    clearTimeout(this.retry);
    this.retry = 0;
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  open() {
    this.retry = 0;
    this.heard = Date.now();
    const source = (this.source = new EventSource('api/v1/events'));
    source.onopen = () => this.catchUp(source);
    source.addEventListener('status', (e) => this.take(source, e, (v) => {
      this.on.link('live');
      this.on.status(v);
    }));
    source.addEventListener('sample', (e) => this.take(source, e, (v) => this.on.samples([v])));
    source.onerror = () => source === this.source && this.lost();
  }

  take(source, event, use) {
    if (source !== this.source) return;
    this.heard = Date.now();
    this.wait = 500;
    use(JSON.parse(event.data));
  }

  // look finds a connection that is silent without an end.
  look() {
    if (!this.source || Date.now() - this.heard <= silence) return;
    this.on.link('lost');
    this.lost();
  }

  // lost asks for the state alone. A gateway that stands by has that and no events; a
  // proxy may keep events for itself, and then this is what there is, every 5 s.
  async lost() {
    this.close();
    try {
      const s = await get('api/v1/status', null, AbortSignal.timeout(patience));
      if (this.source || document.hidden) return;
      const active = s.replica?.leader !== false;
      this.on.link(active ? 'live' : 'standby');
      this.on.status(s);
      if (active) await this.catchUp(null);
    } catch {
      this.on.link('lost');
    }
    if (document.hidden || this.source || this.retry) return;
    this.retry = setTimeout(() => this.open(), this.wait);
    this.wait = Math.min(5000, this.wait * 2);
  }

  // catchUp fills the gap that ends here.
  async catchUp(source) {
    try {
      const h = await get('api/v1/history');
      if (source === this.source) this.on.samples(null, h);
    } catch {
      // The stream says what is wrong, if anything is.
    }
  }
}
