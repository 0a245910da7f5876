// The dead letters: look, replay, purge.

import { get, guarded, search } from './api.js';
import { ask, unlocked } from './ask.js';
import { el } from './dom.js';
import { bytes, count, time, words, none } from './format.js';
import { Table } from './table.js';

const size = 20;
const shownBytes = 64 << 10;

export class DeadLetters {
  constructor(place, { tenant, replay, purge }) {
    this.pages = [{}]; // the queries of the pages up to this one
    this.table = new Table(place, {
      caption: 'Dead letters, newest first', key: (d) => d.seq,
      columns: [
        { title: 'Number', number: true, text: (d) => d.seq },
        { title: 'Tenant', text: (d) => d.tenant },
        { title: 'Topic', text: (d) => d.topic },
        { title: 'Message', text: (d) => d.id, wide: true },
        { title: 'Class', text: (d) => words(d.class) },
        { title: 'Error', text: (d) => d.error || none, wide: true },
        { title: 'Attempts', number: true, text: (d) => count(d.attempts) },
        { title: 'Size', number: true, text: (d) => bytes(d.bytes) },
        { title: 'Died', text: (d) => time(d.died_at) },
      ],
      actions: (d) => [
        { label: 'Look', title: `Look at dead letter ${d.seq}`, run: () => this.look(d) },
        { label: 'Replay…', title: `Replay dead letter ${d.seq}`, run: () => this.replay(d) },
        { label: 'Purge…', title: `Purge dead letter ${d.seq}`, danger: true, run: () => this.purge(d) },
      ],
      empty: 'No dead letters.',
      onpage: (by) => {
        if (by < 0) this.pages.pop();
        else if (this.next) this.pages.push(this.next);
        this.load();
      },
    });
    this.wanted = () => tenant.value.trim();
    let typing = 0;
    tenant.addEventListener('input', () => {
      clearTimeout(typing);
      typing = setTimeout(() => {
        this.tenant = this.wanted();
        this.pages = [{}];
        this.load();
        replay.textContent = this.tenant ? 'Replay this tenant’s…' : 'Replay all…';
        purge.textContent = this.tenant ? 'Purge this tenant’s…' : 'Purge all…';
      }, 200);
    });
    replay.addEventListener('click', () => this.many('replay'));
    purge.addEventListener('click', () => this.many('purge'));
    this.buttons = [replay, purge];
  }

  async load() {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    try {
      const { dead_letters: list, next } = await get('api/v1/dead-letters', { tenant: this.tenant, ...this.pages.at(-1), limit: size }, signal);
      this.next = next;
      this.table.empty = next ? 'None here; go on to the next page.' : this.tenant ? `No dead letters of ${this.tenant}.` : 'No dead letters.';
      this.table.show(list, { where: this.pages.length > 1 || next ? `page ${this.pages.length}` : '', back: this.pages.length > 1, forth: Boolean(next) });
      for (const b of this.buttons) b.disabled = list.length === 0 && !next;
    } catch (err) {
      if (err.name !== 'AbortError') this.table.fail(err.message);
    }
  }

  look(d) {
    unlocked(`api/v1/dead-letters/${d.seq}`, (c) => {
      const dialog = document.getElementById('look');
      const facts = [['Message', c.id], ['Tenant', c.tenant], ['Topic', c.topic], ['Class', words(c.class)], ['Error', c.error || none],
        ['Attempts', count(c.attempts)], ['Admitted', time(c.admitted_at)], ['Died', time(c.died_at)],
        ...Object.entries(c.headers ?? {}).map(([name, values]) => ['Header ' + name, values.join(', ')])];
      const cut = c.payload.length > shownBytes;
      dialog.replaceChildren(
        el('h2', { id: 'look-title' }, `Dead letter ${c.seq}`),
        el('dl', {}, ...facts.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, String(value))])),
        el('h3', {}, `Payload, ${bytes(c.bytes)}` + (c.payload_base64 ? ', not text: as base64' : '') + (cut ? ', its beginning' : '')),
        el('pre', { tabindex: '0' }, c.payload.slice(0, shownBytes)),
        el('div', { class: 'buttons' },
          el('button', { type: 'button', onclick: () => (dialog.close(), this.replay(d)) }, 'Replay…'),
          el('button', { type: 'button', onclick: () => dialog.close() }, 'Close')));
      dialog.showModal();
    });
  }

  replay(d) {
    ask({
      title: 'Replay a dead letter', text: `${d.id} of ${d.tenant} joins the backlog again and keeps its id. Its attempts count anew.`, confirm: 'Replay',
      run: async (why) => {
        await guarded('POST', `api/v1/dead-letters/${d.seq}/replay` + search({ reason: why.reason, author: why.author }));
        await this.load();
        return `Dead letter ${d.seq} is replayed.`;
      },
    });
  }

  purge(d) {
    ask({
      title: 'Purge a dead letter', text: `${d.id} of ${d.tenant} is deleted and cannot be replayed any more.`, confirm: 'Purge', danger: true,
      run: async (why) => {
        await guarded('DELETE', `api/v1/dead-letters/${d.seq}` + search({ reason: why.reason, author: why.author }));
        await this.load();
        return `Dead letter ${d.seq} is purged.`;
      },
    });
  }

  // many goes on until all is done, the gateway has no room, or the dialog is closed. It
  // means the tenant that the field names at the click, and what is dead by then.
  async many(what) {
    const tenant = this.wanted() || undefined;
    const whose = tenant ? `the dead letters of ${tenant}` : 'all dead letters';
    let newest;
    try {
      const { dead_letters: list } = await get('api/v1/dead-letters', { tenant, limit: 1 });
      newest = list[0];
    } catch (err) {
      this.table.fail(err.message);
      return;
    }
    if (!newest) {
      this.table.fail(tenant ? `There are no dead letters of ${tenant}.` : 'There are no dead letters.');
      return;
    }
    const purge = what === 'purge';
    ask({
      title: `${purge ? 'Purge' : 'Replay'} ${whose}`,
      text: (purge ? 'They are deleted and cannot be replayed any more' : 'They join the backlog again while its depth is below LOW')
        + `, up to number ${newest.seq}, which died at ${time(newest.died_at)}.`,
      confirm: purge ? 'Purge' : 'Replay', danger: purge,
      run: async ({ reason, author }, progress, wanted) => {
        let n = 0, skipped = 0, next = { tenant, to: newest.seq };
        try {
          while (next) {
            const p = await guarded('POST', `api/v1/dead-letters/${what}`, { ...next, all: true, reason, author });
            n += p.count;
            skipped += p.skipped;
            next = p.next;
            const done = `${count(n)} ${purge ? 'purged' : 'replayed'}` + (skipped ? `, ${count(skipped)} cannot be` + (p.why ? ` (${p.why})` : '') : '');
            if (p.stopped) return `${done}. It stopped: ${p.stopped}.`;
            if (!next) return done + '.';
            if (!wanted()) return `${done}; the rest stays.`;
            progress(done + (p.waiting ? '; waiting for room in the backlog' : '') + '. Cancel leaves the rest as it is.');
          }
        } finally {
          this.load();
        }
      },
    });
  }
}
