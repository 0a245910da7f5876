// The tenants, and why one was refused.

import { get } from './api.js';
import { el } from './dom.js';
import { count, rate, seconds, time, words, none } from './format.js';
import { Table } from './table.js';

const size = 20;

export class Tenants {
  constructor(place, search) {
    this.offset = 0;
    this.table = new Table(place, {
      caption: 'Tenants', key: (t) => t.tenant, sort: { key: 'depth', order: 'desc' },
      columns: [
        { title: 'Tenant', sort: 'tenant', text: (t) => t.tenant, open: (t) => whyRefused(t.tenant), hint: 'Why was it refused?' },
        { title: 'Depth', sort: 'depth', number: true, text: (t) => count(t.depth) },
        { title: 'Weight', sort: 'weight', number: true, text: (t) => t.weight },
        { title: 'Admitted', sort: 'admitted', number: true, text: (t) => rate(t.admitted) },
        { title: 'Refused', sort: 'refused', number: true, text: (t) => rate(t.refused) },
        { title: 'Refused in all', number: true, text: (t) => count(t.refused_total) },
        { title: 'Last refused for', text: (t) => words(t.last_reason) },
        { title: 'Oldest', sort: 'oldest', number: true, text: (t) => seconds(t.oldest_age_seconds) },
      ],
      empty: 'No tenant matches.', onsort: () => this.first(), onpage: (by) => ((this.offset = Math.max(0, this.offset + by * size)), this.load()),
    });
    let typing = 0;
    search.addEventListener('input', () => {
      clearTimeout(typing);
      typing = setTimeout(() => ((this.search = search.value.trim()), this.first()), 200);
    });
  }

  first() {
    this.offset = 0;
    return this.load();
  }

  async load() {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    const { key, order } = this.table.sort;
    try {
      const { total, tenants } = await get('api/v1/tenants', { search: this.search, sort: key, order, limit: size, offset: this.offset }, signal);
      if (this.offset && this.offset >= total) return this.first();
      this.table.empty = this.search ? `No tenant’s name contains “${this.search}”.` : 'No tenant has sent anything yet.';
      this.table.show(tenants, {
        where: total ? `${count(this.offset + 1)}–${count(this.offset + tenants.length)} of ${count(total)}` : '',
        back: this.offset > 0, forth: this.offset + tenants.length < total,
      });
    } catch (err) {
      if (err.name !== 'AbortError') this.table.fail(err.message);
    }
  }
}

// whyRefused opens the last refusals of a tenant.
async function whyRefused(tenant) {
  const dialog = document.getElementById('look');
  const place = el('div', {}, el('p', {}, 'Asking…'));
  dialog.replaceChildren(
    el('h2', { id: 'look-title' }, `Why was ${tenant} refused?`), place,
    el('div', { class: 'buttons' }, el('button', { type: 'button', onclick: () => dialog.close() }, 'Close')));
  dialog.showModal();
  try {
    const { refusals } = await get('api/v1/refusals', { tenant, limit: 20 });
    let n = 0;
    const rows = refusals.map((r) => ({ ...r, n: n++ }));
    new Table(place, {
      caption: `Last refusals of ${tenant}, newest first`, key: (r) => r.n,
      columns: [
        { title: 'At', text: (r) => time(r.at) },
        { title: 'Reason', text: (r) => words(r.reason) + (r.enforced === false ? ' (shadow: admitted)' : '') },
        { title: 'Scope', text: (r) => words(r.scope) },
        { title: 'Rule', text: (r) => r.rule || none, wide: true },
        { title: 'Detail', text: (r) => r.detail || none, wide: true },
        { title: 'Depth then', number: true, text: (r) => count(r.depth) },
        { title: 'Told to wait', number: true, text: (r) => (r.retry_after_ms > 0 ? seconds(r.retry_after_ms / 1000) : none) },
        { title: 'Message', text: (r) => r.id || none, wide: true },
        { title: 'Over', text: (r) => r.transport || none },
      ],
      empty: 'None that is remembered.',
    }).show(rows);
  } catch (err) {
    place.replaceChildren(el('p', { class: 'error', role: 'alert' }, err.message));
  }
}
