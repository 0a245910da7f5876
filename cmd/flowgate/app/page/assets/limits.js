// The limits: which are in force, and changing the live ones.

import { get, guarded, search } from './api.js';
import { ask } from './ask.js';
import { count, time, words, none } from './format.js';
import { Table } from './table.js';

const size = 20;
const scopes = ['tenant', 'gateway', 'service', 'user', 'ip', 'api_key'].map((s) => [s, words(s)]);
const path = (scope, key) => `api/v1/limits/${scope}/${encodeURIComponent(key)}`;

export class Limits {
  constructor(place, input, button) {
    this.all = [];
    this.offset = 0;
    this.table = new Table(place, {
      caption: 'Limits', key: (l) => `${l.source}/${l.scope}/${l.key}`, sort: { key: 'scope', order: 'asc' },
      columns: [
        { title: 'Scope', sort: 'scope', text: (l) => words(l.scope) },
        { title: 'Key', sort: 'key', text: (l) => l.key },
        { title: 'Limit', sort: 'limit', text: (l) => l.limit },
        { title: 'Source', sort: 'source', text: (l) => l.source + (l.in_force ? '' : ', not in force') },
        { title: 'Reason', sort: 'reason', text: (l) => l.reason || none, wide: true },
        { title: 'By', sort: 'author', text: (l) => l.author || none },
        { title: 'Since', sort: 'at', text: (l) => time(l.at) },
      ],
      actions: (l) => [
        { label: 'Change…', title: `Change the limit of ${l.scope} ${l.key}`, run: () => this.set(l) },
        ...(l.source === 'live' ? [{ label: 'Delete…', danger: true, title: `Delete the limit of ${l.scope} ${l.key}`, run: () => this.delete(l) }] : []),
      ],
      empty: 'No limit matches.', onsort: () => this.show(), onpage: (by) => ((this.offset += by * size), this.show()),
    });
    input.addEventListener('input', () => ((this.search = input.value.trim().toLowerCase()), (this.offset = 0), this.show()));
    button.addEventListener('click', () => this.set());
  }

  async load() {
    try {
      const list = await get('api/v1/limits');
      this.all = list.limits;
      this.show();
      const broken = list.broken?.length ? `${count(list.broken.length)} entries of the bucket are no limits and are not used.` : '';
      this.table.fail([list.stale && `These may be old: ${list.stale}.`, broken].filter(Boolean).join(' ') || null);
    } catch (err) {
      this.table.fail(err.message);
    }
  }

  show() {
    const { key, order } = this.table.sort;
    const text = (l) => [l.scope, l.key, l.limit, l.source, l.reason, l.author].join('\n').toLowerCase();
    const list = this.all.filter((l) => !this.search || text(l).includes(this.search));
    const turn = order === 'desc' ? -1 : 1;
    // Sorting is stable: within a scope the gateway's own order stays.
    list.sort((a, b) => turn * String(a[key] ?? '').localeCompare(String(b[key] ?? ''), 'en', { numeric: true }));
    this.offset = Math.max(0, Math.min(this.offset, Math.floor((list.length - 1) / size) * size));
    const rows = list.slice(this.offset, this.offset + size);
    this.table.show(rows, {
      where: list.length ? `${count(this.offset + 1)}–${count(this.offset + rows.length)} of ${count(list.length)}` : '',
      back: this.offset > 0, forth: this.offset + size < list.length,
    });
  }

  set(l) {
    ask({
      title: l ? 'Change a limit' : 'Set a limit', text: 'It holds for the next message, and over restarts. What was used so far stays used.',
      fields: [
        { name: 'scope', label: 'Scope', options: l ? [[l.scope, words(l.scope)]] : scopes },
        { name: 'key', label: 'Key', value: l?.key ?? '', required: true, fixed: Boolean(l), hint: 'A name, a pattern like free-*, or * for the scope’s own limit.' },
        { name: 'limit', label: 'Limit', value: l?.limit ?? '', required: true, hint: 'Like token-bucket:100/s,burst=200, or unlimited.' },
      ],
      confirm: 'Set limit',
      run: async ({ scope, key, limit, reason, author }) => {
        const e = await guarded('PUT', path(scope, key), { limit, reason, author });
        await this.load();
        return `The limit of ${words(e.scope)} ${e.key} is ${e.limit}.`;
      },
    });
  }

  delete(l) {
    ask({
      title: 'Delete a limit', text: `${words(l.scope)} ${l.key}, ${l.limit}: the environment’s limit holds again.`, confirm: 'Delete limit', danger: true,
      run: async ({ reason, author }) => {
        await guarded('DELETE', path(l.scope, l.key) + search({ reason, author }));
        await this.load();
        return `The limit of ${words(l.scope)} ${l.key} is deleted.`;
      },
    });
  }
}
