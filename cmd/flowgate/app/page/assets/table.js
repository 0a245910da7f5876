// Table shows rows page by page, and keeps the elements of rows that stay: the focus and
// what is selected stay with them.

import { el, put } from './dom.js';

export class Table {
  // columns: {key, title, text(row), number, sort, wide, open(row), head, title(row)}.
  // key(row) tells rows apart, actions(row) gives [{label, title, run, danger}].
  constructor(place, { caption, columns, key, actions, empty, sort, onsort, onpage }) {
    Object.assign(this, { columns, key, actions, empty, sort, onsort });
    this.elements = new Map();
    this.headers = columns.map((c) => this.header(c));
    const head = el('tr', {}, ...this.headers, ...(actions ? [el('th', { scope: 'col' }, el('span', { class: 'unseen' }, 'Actions'))] : []));
    this.body = el('tbody');
    this.said = el('p', { class: 'empty' }, 'Asking the gateway…');
    this.table = el('table', { class: 'list' }, el('caption', { class: 'unseen' }, caption), el('thead', {}, head), this.body);
    this.where = el('span', { class: 'where' });
    this.back = el('button', { type: 'button', disabled: true, onclick: () => onpage(-1) }, 'Previous');
    this.forth = el('button', { type: 'button', disabled: true, onclick: () => onpage(1) }, 'Next');
    this.table.hidden = this.back.hidden = this.forth.hidden = true;
    this.error = el('p', { class: 'error', role: 'alert' });
    this.error.hidden = true;
    const pager = el('div', { class: 'pager' }, this.where, ...(onpage ? [this.back, this.forth] : []));
    place.replaceChildren(this.error, el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption }, this.table), this.said, pager);
    this.sorted();
  }

  header(c) {
    const th = el('th', { scope: 'col', class: c.number ? 'number' : '' });
    if (c.sort) th.append(el('button', { type: 'button', onclick: () => this.order(c) }, c.title));
    else th.textContent = c.title;
    return th;
  }

  order(c) {
    const again = this.sort.key === c.sort;
    this.sort = { key: c.sort, order: again ? (this.sort.order === 'desc' ? 'asc' : 'desc') : c.number ? 'desc' : 'asc' };
    this.sorted();
    this.onsort(this.sort);
  }

  sorted() {
    this.columns.forEach((c, i) => {
      if (c.sort) this.headers[i].setAttribute('aria-sort', c.sort !== this.sort?.key ? 'none' : this.sort.order === 'desc' ? 'descending' : 'ascending');
    });
  }

  // fail tells what the gateway said in place of rows; null takes it back.
  fail(text) {
    this.error.hidden = !text;
    put(this.error, text ?? '');
  }

  // show takes one page of rows; where says which they are.
  show(rows, { where = '', back = false, forth = false } = {}) {
    this.fail(null);
    const keep = new Map();
    rows.forEach((row, i) => {
      const key = String(this.key(row));
      const tr = this.elements.get(key) ?? this.row(key);
      keep.set(key, tr);
      tr.row = row;
      this.fill(tr, row);
      if (this.body.children[i] !== tr) this.body.insertBefore(tr, this.body.children[i] ?? null);
    });
    for (const [key, tr] of this.elements) if (!keep.has(key)) tr.remove();
    this.elements = keep;
    this.said.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
    put(this.said, this.empty);
    put(this.where, where);
    this.back.disabled = !back;
    this.forth.disabled = !forth;
    this.back.hidden = this.forth.hidden = !back && !forth;
  }

  row(key) {
    const tr = el('tr', { 'data-key': key });
    this.columns.forEach((c, i) => {
      const cell = el(i === 0 ? 'th' : 'td', { class: (c.number ? 'number' : '') + (c.wide ? ' text' : ''), scope: i === 0 ? 'row' : undefined });
      if (c.open) cell.append(el('button', { type: 'button', class: 'link', title: c.hint, onclick: () => c.open(tr.row) }));
      tr.append(cell);
    });
    if (this.actions) tr.append(el('td', { class: 'acts' }));
    return tr;
  }

  fill(tr, row) {
    this.columns.forEach((c, i) => {
      const cell = tr.children[i];
      const text = String(c.text(row));
      put(c.open ? cell.firstChild : cell, text);
      if (c.wide) cell.title = text;
    });
    if (!this.actions) return;
    const acts = this.actions(row);
    const cell = tr.lastChild;
    const names = acts.map((a) => a.label).join();
    if (cell.dataset.names === names) return;
    cell.dataset.names = names;
    cell.replaceChildren(...acts.map((a, i) => el('button', {
      type: 'button', class: a.danger ? 'small danger' : 'small', 'aria-label': a.title, onclick: () => this.actions(tr.row)[i].run(),
    }, a.label)));
  }
}
